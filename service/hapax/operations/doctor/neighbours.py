"""Checks of the programs around, of claim store and schema registry, and of what keeps state.

The programs are producers, the consumer group and readers; with them the user's rights.
"""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hapax.cluster.topic_rules import UNLIMITED, TopicRules
from hapax.core.errors import HapaxError
from hapax.core.formats import WITH_REGISTRY
from hapax.kafka.produce.target import target_prefixes
from hapax.operations.doctor.acls import kafka_rights, target_rights
from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    CheckResult,
    Verdict,
    check,
    fail,
    kept_ms,
    listed,
    number,
    ok,
    set_topic,
    unknown,
    warn,
)
from hapax.processing.state import AGAIN, changelog_problem, unlike
from hapax.schemas.codec import Encoder, check_output
from hapax.schemas.lookup import Lookup
from hapax.schemas.registry import Registry, UnknownSchemaError
from hapax.settings.value_types import duration_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.cluster.cluster_state import ConsumerGroup, LastRecords, Right
    from hapax.core.ports import StoreHealth
    from hapax.operations.doctor.check import Check, CheckContext, Judge

JAVA: Final = "murmur2"
WHOSE: Final = {
    "crc32": "CRC32 (consistent_random, librdkafka's and so confluent-kafka's default)",
    "fnv1a": "FNV-1a (the default of Sarama, Hash of kafka-go)",
}
SURE, DEVIATIONS = 1_000, 4
"""What chance gives in fewer than one of 1,000 cases, or so far above the average, is no chance."""
AFTER, AHEAD_MAX_MS = "message.timestamp.after.max.ms", HOUR_MS
"""What brokers from 4.0 take unless they are set otherwise."""
ASSIGNOR: Final = "cooperative-sticky"
UNUSED: Final = {"DEAD", "UNKNOWN", "UNKOWN"}  # the second spelling is the client's


def _of_each(judge: Callable[[CheckContext, str, LastRecords], Iterator[CheckResult]]) -> Judge:
    def judged(context: CheckContext) -> Iterator[CheckResult]:
        why = context.kafka.untold.get("samples", "its offsets are not known")
        for name in context.inputs:
            sample = context.kafka.samples.get(name)
            told = unknown(f"last records of {name}: {why}")
            yield from [told] if sample is None else judge(context, name, sample)

    return judged


@check("keys", at="input")
@_of_each
def _keys(context: CheckContext, name: str, sample: LastRecords) -> Iterator[CheckResult]:
    places, chosen = sample.placed_by(), context.settings.output.partitioner
    saw, rest = f"{name}: {places} sampled keys", places - sample.placed_by(JAVA)
    others = (one for one in WHOSE if sample.placed_by(one) - sample.placed_by(one, JAVA) == rest)
    other = next(others, "") if sample.partitions**rest >= SURE else ""
    share = 1 / sample.partitions
    spread = (places * share * (1 - share)) ** 0.5
    some = sample.placed_by(JAVA) > places * share + DEVIATIONS * spread
    if not rest:
        yield ok(f"{saw} lie where Java's partitioner puts them")
    elif other and sample.placed_by(other) == places:
        same = (chosen, other) == ("consistent_random", "crc32")
        so = "as well" if same else "elsewhere: the two do not join by key"
        yield ok(f"{saw} lie where {WHOSE[other]} puts them; {chosen} puts those of outputs {so}")
    elif sample.torn or other or some:
        torn = f", {sample.torn} are seen in two partitions" if sample.torn else ""
        yield warn(
            f"{saw}{torn}: {rest} lie where Java's partitioner would not put them: a producer uses "
            f"{WHOSE.get(other, 'another one')}, and records of one key may lie in two partitions, "
            "where joins miss them and their order is lost",
            "set Java's on that producer: partitioner=murmur2_random in librdkafka, the one named "
            "Murmur2 in Sarama and kafka-go; keys from before partitions were added look the same",
        )
    else:
        yield ok(f"{saw}: no partitioner that is known here puts them where they lie")


@check("timestamps", at="input")
@_of_each
def _timestamps(context: CheckContext, name: str, sample: LastRecords) -> Iterator[CheckResult]:
    stamps, topic = sample.timestamps_ms, context.kafka.topics[name]
    saw = f"{name}: of {len(stamps)} sampled records"
    cure = "correct clock and unit (milliseconds) of their producer, or let brokers"
    stamped = f"{cure} set the time: {set_topic(name, 'message.timestamp.type=LogAppendTime')}"
    ahead = [one for one in stamps if one - sample.seen_ms > AHEAD_MAX_MS]
    none = sum(one < 0 for one in stamps)
    kept, segment = kept_ms(topic), number(topic.settings.get("segment.ms"))
    age = sample.seen_ms - next((one for one in stamps if one >= 0), sample.seen_ms)
    # A record that is so much older than one before it was as old when it was written; and so was
    # one that retention and the longest time of a segment together should have deleted.
    old = kept is not None and (sample.behind_ms > kept or age > kept + (segment or UNLIMITED))
    if ahead:
        yield warn(
            f"{saw} {len(ahead)} have timestamps in the future, by up to "
            f"{(ahead[-1] - sample.seen_ms) / DAY_MS:.1f} days: their segments are kept until then",
            f"{cure} refuse them: {set_topic(name, f'{AFTER}={AHEAD_MAX_MS}')}",
        )
    if none:
        yield warn(
            f"{saw} {none} have no timestamp, or one before 1970: a start at a time passes over "
            "them, and windows take them as late",
            stamped,
        )
    if old:
        yield warn(
            f"{saw} some, up to {age / DAY_MS:.1f} days old, were older than retention.ms={kept} "
            "when they were written: a segment of them is deleted within minutes, read or not",
            stamped,
        )
    if not (ahead or none or old):
        yield ok(f"{saw} all have timestamps in its range")


@check("output-timestamps", at="outputs")
def _output(context: CheckContext) -> Iterator[CheckResult]:
    name, letters = context.settings.output.topic, context.settings.dead_letter.topic
    settings = context.outputs[name].settings if name in context.outputs else {}
    cure = "HAPAX_OUTPUT__TIMESTAMP=now, or raise the limit"
    rules = TopicRules() if context.settings.output.timestamp == "now" else TopicRules.of(settings)
    refused = [
        why
        for sample in (context.source or context).kafka.samples.values()
        for one in sample.timestamps_ms
        if (why := rules.refusal(name, b"", one, sample.seen_ms))
    ]
    kept = [UNLIMITED if one is None else one for one in map(kept_ms, context.read.values())]
    if refused:
        yield (warn if letters else fail)(
            f"{len(refused)} sampled records of the input have {refused[0].partition(': ')[0]}: "
            f"their outputs {'become dead letters' if letters else 'stop the service'}",
            cure,
        )
    elif max(kept, default=0) > rules.before_ms:
        yield warn(
            f"{name}: message.timestamp.before.max.ms={rules.before_ms}, and the input keeps "
            "records for longer: after an outage or in a backfill their outputs are refused",
            cure,
        )
    else:
        yield (ok if settings else unknown)(f"{name}: refuses no timestamp as far as is known")


@check("rights", now=True)
def _rights(context: CheckContext) -> Iterator[CheckResult]:
    missing = False
    settings = context.settings
    there = context.side == "outputs"
    rights = target_rights(settings) if there else kafka_rights(settings, state=context.state)
    for right in rights:
        if right.optional:
            continue
        allowed, why = _allowed(context, right)
        what = f"{right.operation} on {right.resource.lower()} {right.name}"
        if why:
            yield unknown(f"{what}: {why}")
        elif right.operation not in allowed and "ALL" not in allowed:
            missing = True
            yield fail(
                f"the user lacks {what}: {right.reason}",
                "grant it; hapax doctor --acls lists all that is needed",
            )
    if not missing:
        yield ok("the permissions that the brokers report are sufficient")


@check("group-state", now=True, at="input")
def _state(context: CheckContext) -> Iterator[CheckResult]:
    group = context.kafka.group
    if group is None:
        yield unknown(_why(context))
        return
    name = context.settings.app
    waiting = [at for topic in context.inputs for at, log in context.logs(topic) if log.unread]
    if group.members and group.state != "STABLE":
        yield warn(
            f"group {name} is {group.state}: no member reads until it is STABLE again",
            "check again; if it continues, compare the logs of the processes: members join and "
            "leave",
        )
    elif waiting and not group.members:
        yield warn(
            f"group {name} has no members, and {len(waiting)} partitions have unread records: "
            f"{', '.join(waiting[:5])}",
            "start the service, or read the last line of its log",
        )
    elif group.state in UNUSED:
        yield ok(f"group {name} was never used")
    else:
        yield ok(f"group {name} is {group.state} with {len(group.members)} members")


@check("group-members", now=True, at="input")
def _members(context: CheckContext) -> Iterator[CheckResult]:
    group = context.kafka.group
    if group is None:
        yield unknown(_why(context))
        return
    found = [*_strangers(context, group), *_protocols(context, group)]
    names = Counter(each.static_name for each in group.members if each.static_name)
    fix = "give every process its own HAPAX_INSTANCE"
    found += [
        fail(f"{count} members are called {name}: they fence each other", fix)
        for name, count in names.items()
        if count > 1
    ]
    yield from found or [ok(f"{len(group.members)} members, all of this pipeline")]


@check("group-offsets", at="input")
def _offsets(context: CheckContext) -> Iterator[CheckResult]:
    app, start = context.settings.app, context.settings.input.start
    logs = [log for name in context.inputs for _place, log in context.logs(name)]
    foreign = [log.foreign for log in logs if log.foreign is not None]
    bare = sum(log.committed is None for log in logs)
    saw = f"{len(foreign)} of {len(logs)} partitions"
    if foreign and len(foreign) + bare == len(logs):
        who = listed(sorted(filter(None, set(foreign)))) or "which does not say its name"
        yield warn(
            f"group {app} has offsets of another client ({who}) in {saw}, and none of this "
            f"pipeline: it continues there, and begins {bare} by HAPAX_INPUT__START={start}",
            "to take over from it, stop it and compare hapax offsets with what it has done; "
            "otherwise set another HAPAX_APP",
        )
    elif why := context.kafka.untold.get("committed offsets"):
        yield unknown(f"committed offsets: {why}")
    else:
        yield ok(f"group {app} has offsets of another client in {saw}")


@check("readers", at="outputs")
def _readers(context: CheckContext) -> Iterator[CheckResult]:
    for group, readers in groupby(context.kafka.readers, lambda one: one.group):
        found = list(readers)
        at = listed(f"{one.topic}/{one.partition}/{one.committed}" for one in found[:5])
        yield warn(
            f"group {group} has read every record of {len(found)} partitions, and end - committed "
            f"says {sum(one.end - one.committed for one in found)}: it is at one past the last "
            f"record ({at}), before markers and aborted records; of clients that commit nothing "
            "else that number never gets to 0",
            f"alert and scale by hapax lag {group}, which counts records (docs/world/lag.md)",
        )
    if why := context.kafka.untold.get("readers"):
        yield unknown(f"groups that read the outputs: {why}")
    elif not context.kafka.readers:
        yield ok("no group that may be seen is kept from the end of an output by markers")


def _strangers(context: CheckContext, group: ConsumerGroup) -> Iterator[CheckResult]:
    inputs = set(context.settings.read_topics)
    for member in group.members:
        who = f"member {member.client_id} at {member.host}"
        fix = "stop it or give it a group of its own: no two programs share HAPAX_APP"
        if not member.client_id.startswith(f"{context.settings.app}-"):
            yield fail(f"{who} is no process of this pipeline: what it reads has no effect", fix)
        elif other := ", ".join(sorted(set(member.topics) - inputs)):
            yield fail(f"{who} reads {other}, which is no input here", fix)


def _protocols(context: CheckContext, group: ConsumerGroup) -> Iterator[CheckResult]:
    wanted = context.settings.group.protocol
    if not group.members:
        return
    if group.protocol != wanted:
        yield fail(
            f"the group's members speak the {group.protocol} protocol, HAPAX_GROUP__PROTOCOL is "
            f"{wanted}",
            "stop all processes before the protocol changes, or set the same for all",
        )
    elif wanted == "classic" and group.assignor not in {ASSIGNOR, ""}:
        yield fail(
            f"the group's members assign partitions by {group.assignor}, this service by "
            f"{ASSIGNOR}: it cannot join",
            "stop the other members",
        )


def _allowed(context: CheckContext, right: Right) -> tuple[tuple[str, ...], str]:
    kafka, app = context.kafka, context.settings.app
    if right.resource == "TOPIC":
        topic = kafka.topics.get(right.name)
        if topic is not None and topic.problem and "AUTHORIZATION" in topic.problem:
            return (), ""
        told = topic.operations if topic is not None else None
        return told or (), "" if told is not None else "the topic is not known"
    # The group that was looked at is one of these lanes.
    if right.resource == "GROUP" and right.name in {app, target_prefixes(app).group}:
        why = _why(context)
        if kafka.group is None and "AUTHORIZATION" in why:
            return (), ""
        told = kafka.group.operations if kafka.group is not None else None
        return told or (), "" if told is not None else why
    name = tried_id(right)
    if right.resource != "TRANSACTIONAL_ID" or name not in kafka.ids:
        return (), kafka.untold.get(f"transactional id {name}", "the brokers do not report it")
    return (() if kafka.ids[name] else (right.operation,)), ""


def tried_id(right: Right) -> str:
    """Return the transactional id by which a right is tried out: any that begins with a prefix."""
    return right.name if right.pattern == "LITERAL" else f"{right.name}doctor"


def _why(context: CheckContext) -> str:
    return context.kafka.untold.get("consumer group", "the brokers do not report it")


# -- The claim store, the schema registry, and what keeps state ------------------------------------


SKEW_MAX_MS: Final = 2000
FULL, NEARLY_FULL = 0.95, 0.80
ADDRESS: Final = "HAPAX_DEDUP__REDIS_URL"


def _store_of(context: CheckContext) -> StoreHealth:
    if context.claims is None:
        raise ValueError("no claim store is configured")
    return context.claims


def _by_store(name: str, *, now: bool = False) -> Check:
    """Return the check of what a store itself makes of one aspect; silent where it has none."""

    def judge(context: CheckContext) -> Iterator[CheckResult]:
        judgements = _store_of(context).judgements
        for verdict, saw, fix in judgements.get(name.removeprefix("claim-"), ()):
            yield CheckResult(Verdict(verdict), saw, fix)

    return check(name, needs="claims", now=now)(judge)


@check("claim-store", needs="claims or nothing", now=True)
def _store(context: CheckContext) -> Iterator[CheckResult]:
    if context.claims is None:
        yield ok("HAPAX_DEDUP__REDIS_URL is unset: events that were sent twice are not detected")
    elif context.claims.problem is not None:
        yield fail(
            f"{ADDRESS}: {context.claims.problem}",
            f"start {context.claims.name}, or fix {ADDRESS}; until then HAPAX_DEDUP__ON_OUTAGE="
            f"{context.settings.dedup.on_outage} decides",
        )
    else:
        yield ok(f"{context.claims.name} answers at {context.claims.place}")


_version = _by_store("claim-version")
_permissions = _by_store("claim-permissions", now=True)
_role = _by_store("claim-role", now=True)


@check("claims-present", needs="claims", now=True)
def _present(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    worked = [at for name in context.inputs for at, log in context.logs(name) if log.committed]
    if store.claimed is None:
        yield unknown("the claims of this app cannot be read")
    elif not store.claimed and worked:
        yield warn(
            f"the group has committed offsets, but there are no claims: {store.name} was "
            "emptied, or is new; copies of earlier events pass",
            "hapax claims rebuild restores them from the outputs",
        )
    else:
        yield ok("claims of this app exist" if store.claimed else "no claim was made yet")


@check("claim-clock", needs="claims")
def _clock(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    if (skew := store.skew_ms) is None:
        yield unknown(f"{store.name} does not return its time")
    elif abs(skew) > SKEW_MAX_MS:
        yield warn(
            f"the clock of {store.name} is {skew} ms ahead of the local clock",
            "synchronize the clocks of all machines by NTP",
        )
    else:
        yield ok(f"the clock of {store.name} agrees with the local clock")


_eviction = _by_store("claim-eviction")
_persistence = _by_store("claim-persistence")
_replicas = _by_store("claim-replicas")


@check("claim-memory", needs="claims")
def _memory(context: CheckContext) -> Iterator[CheckResult]:
    store = _store_of(context)
    used, allowed = store.used_bytes, store.limit_bytes
    if used is None or allowed is None:
        yield unknown(f"{store.name} does not return its memory use")
        return
    limit = allowed or store.machine_bytes or 0
    # Of all claims that live at once, from the input of the last hour.
    last_hour = sum(
        max(0, log.offsets.high_watermark - log.since[HOUR_MS])
        for name in context.inputs
        for _, log in context.logs(name)
        if log.offsets is not None and HOUR_MS in log.since
    )
    needed = int(last_hour * context.settings.dedup.ttl_ms / HOUR_MS * store.bytes_per_id)
    fix = (
        f"raise {store.limit_name}, or shorten HAPAX_DEDUP__TTL: a full {store.name} takes no "
        "claims"
    )
    if allowed and used > NEARLY_FULL * allowed:
        saw = f"{_size(used)} of {store.limit_name} {_size(allowed)} are in use"
        yield fail(saw, fix) if used > FULL * allowed else warn(saw, fix)
    elif limit and needed > limit:
        yield warn(
            f"at the rate of the last hour claims need about {_size(needed)}, {store.name} has "
            f"{_size(limit)}",
            fix,
        )
    else:
        yield ok(
            f"{_size(used)} in use, about {_size(needed)} needed at the rate of the last hour, "
            f"limit {_size(allowed) if allowed else 'none'}"
        )


def _size(count: int) -> str:
    for unit in (1 << 30, 1 << 20, 1 << 10):
        if count >= unit:
            return size_text(count // unit * unit)
    return f"{count}B"


@check("schema-registry", needs="process", now=True)
def _registry(context: CheckContext) -> Iterator[CheckResult]:
    formats, settings = context.settings.formats, context.settings
    if not formats.needs_registry:
        yield ok("no format needs a schema registry")
        return
    registry = Registry(formats.registry)
    try:
        registry.compatibility()
        check_output(formats, Lookup(formats.registry))
        if formats.output not in WITH_REGISTRY:
            yield ok("the schema registry answers")
            return
        key = Encoder(formats, Lookup(formats.registry)).key(settings.output.topic)
        subject = key.partition(":")[2].partition("\n")[0]
        level = registry.compatibility(subject)
    except (HapaxError, UnknownSchemaError) as error:
        yield fail(str(error), "see docs/schemas.md; a start waits for a registry, or ends with it")
        return
    if level == "NONE":
        yield warn(
            f"the subject {subject} takes any new version (compatibility NONE)",
            f"set the compatibility of {subject} to BACKWARD or stricter, or readers of the output"
            " meet data that they cannot read",
        )
    else:
        yield ok(f"the schema registry has {subject}, compatibility {level}")


@check("state-changelog", needs="process", now=True, sound="the transform keeps no state")
def _changelog(context: CheckContext) -> Iterator[CheckResult]:
    if not context.state:
        return
    (name,), inputs = context.state, list(context.inputs.values())
    if context.kafka.problem is not None or not inputs:
        yield unknown(f"topic {name}: {context.kafka.problem or 'the input is not known'}")
        return
    if problem := unlike({at: len(one.partitions) for at, one in context.inputs.items()}):
        yield fail(problem, "create them with the same number of partitions")
        return
    topic = context.kafka.topics.get(name)
    count, told = (0, {}) if topic is None else (len(topic.partitions), topic.settings)
    policy, kept_ms = told.get("cleanup.policy"), number(told.get("delete.retention.ms"))
    if found := changelog_problem(name, count, len(inputs[0].partitions), policy):
        yield fail(*found)
    elif kept_ms is None:
        yield unknown(f"settings of topic {name}: the brokers do not report them")
    elif kept_ms < HOUR_MS:
        yield warn(
            f"{name}: delete.retention.ms={kept_ms}: an instance that is away for more than half of"
            " it reads the whole changelog again",
            set_topic(name, f"delete.retention.ms={DAY_MS}"),
        )
    elif cut := [at for at, log in context.logs(name) if log.offsets and log.offsets.log_start]:
        saw = f"{', '.join(cut)}: the first records were deleted, and with them what they kept"
        yield warn(saw, f"if state was in use by then, {AGAIN}")
    elif lag_ms := number(told.get("min.compaction.lag.ms")):
        yield warn(
            f"{name}: min.compaction.lag.ms={lag_ms}: an instance without its folder reads each"
            f" change of the last {duration_text(lag_ms)}",
            set_topic(name, "min.compaction.lag.ms=0"),
        )
    else:
        away = duration_text(kept_ms // 2)
        yield ok(f"{name}: compacted; an instance keeps its state when it is away for up to {away}")


@check("state-disk", needs="process", sound="the transform keeps no state")
def _disk(context: CheckContext) -> Iterator[CheckResult]:
    folder, most = context.settings.state.dir, context.settings.state.size_max
    if not context.state:
        return
    if folder is None:
        fix = "set it to a folder of this instance, on a volume that its restarts find again"
        yield warn("HAPAX_STATE__DIR is unset: each start reads the whole changelog", fix)
        return
    try:
        free, written = shutil.disk_usage(folder).free, Path(folder, "lmdb", "data.mdb")
        used = written.stat().st_size if written.exists() else 0
    except OSError as error:
        yield unknown(f"HAPAX_STATE__DIR={folder}: {error}; a start makes it")
        return
    has = f"HAPAX_STATE__DIR={folder} has {_size(used)} of state and {_size(free)} free"
    if used + free < most:
        yield warn(
            f"{has}, less than HAPAX_STATE__SIZE_MAX={_size(most)}: a full disk ends the process",
            "give the volume more room, or lower HAPAX_STATE__SIZE_MAX",
        )
    else:
        yield ok(f"{has}; HAPAX_STATE__SIZE_MAX={_size(most)}")

"""Checks of positions and of what deletes or holds up records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.kafka.admin.topics import output_topics
from hapax.operations.doctor.check import (
    DAY_MS,
    HOUR_MS,
    TRANSACTION_AGE_MAX_MS,
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
from hapax.processing.retry_later import COMPACTED, LEVELS, LONGEST_MS, create_command
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hapax.cluster.cluster_state import Topic
    from hapax.operations.doctor.check import CheckContext, CheckResult
    from hapax.settings import Settings

ADOPT: Final = (
    "set the addresses to the previous cluster, set a new HAPAX_APP, or run hapax claims adopt"
)
DEAD_LETTERS_KEPT_MIN_MS = 7 * DAY_MS
"""Long enough to see them and to fix their cause: a week."""
SPARE_MS: Final = 2 * DAY_MS
"""Alongside the longest wait: a weekend without the service."""


def open_age_ms(settings: Settings, topic: str) -> int:
    """Return the age from which on an open transaction has no owner any more."""
    if topic in settings.input.topics:
        return TRANSACTION_AGE_MAX_MS
    return 2 * settings.transaction.timeout_ms


def ages_ms(settings: Settings, topic: str, topic_settings: Mapping[str, str]) -> tuple[int, ...]:
    ages = {open_age_ms(settings, topic)}
    if topic in settings.input.topics:
        kept = number(topic_settings.get("retention.ms"))
        if kept is not None and kept > 0:
            ages |= {kept // 2, kept * 9 // 10}
        if settings.dedup.enabled:
            ages |= {settings.dedup.ttl_ms, HOUR_MS}
    return tuple(sorted(ages))


@check("cluster-offsets", now=True, at="input")
def _cluster_of_offsets(context: CheckContext) -> Iterator[CheckResult]:
    here = context.kafka.cluster_id
    if here is None:
        yield unknown("the brokers do not return the id of their cluster")
        return
    beside = {
        place: log.cluster_id
        for name in context.inputs
        for place, log in context.logs(name)
        if log.cluster_id is not None
    }
    foreign = [place for place, cluster in beside.items() if cluster != here]
    if foreign:
        others = listed(sorted({str(beside[place]) for place in foreign}))
        yield fail(
            f"the group's offsets of {listed(foreign)} were committed on cluster {others}, and "
            f"{here} answers: they mean other records, and the service refuses to start",
            ADOPT,
        )
    elif beside:
        yield ok(f"the group's offsets were committed on the cluster that answers, {here}")
    else:
        yield ok(f"cluster {here} answers; no offset says that it belongs to another")


@check("outputs-cluster", at="outputs", now=True)
def _outputs_cluster(context: CheckContext) -> Iterator[CheckResult]:
    here = context.kafka.cluster_id
    if context.source is None:
        yield ok("outputs go to the cluster that is read")
    elif here is None or context.source.kafka.cluster_id is None:
        yield unknown("one of the clusters does not return its id")
    elif here == context.source.kafka.cluster_id:
        servers = context.settings.kafka.bootstrap_servers
        yield fail(
            f"{context.prefix}BOOTSTRAP_SERVERS={servers}: its brokers are those of cluster "
            f"{here}, which is read: the service refuses to start",
            "remove it, and outputs go there in one transaction with the group's offsets",
        )
    else:
        yield ok(f"outputs go to cluster {here}")


@check("claim-cluster", needs="claims", now=True)
def _cluster_of_claims(context: CheckContext) -> Iterator[CheckResult]:
    here, store = context.kafka.cluster_id, context.claims
    if store is None or store.cluster_id is None or here is None:
        yield ok("no claim says that it belongs to another cluster")
    elif store.cluster_id != here:
        yield fail(
            f"the claims in {store.place} belong to cluster {store.cluster_id}, and {here} "
            "answers: the coordinates in them mean other records, and the service refuses to start",
            ADOPT,
        )
    else:
        yield ok(f"the claims belong to the cluster that answers, {here}")


@check("positions", now=True, at="input", sound="every committed offset is in its log")
def _positions(context: CheckContext) -> Iterator[CheckResult]:
    if "committed offsets" in context.kafka.untold:
        yield unknown(f"committed offsets: {context.kafka.untold['committed offsets']}")
        return
    for name in context.inputs:
        if why := context.unseen(name):
            yield unknown(why)
        for place, log in context.logs(name):
            at, ends = log.committed, log.offsets
            if at is None or ends is None:
                continue
            if at < ends.log_start:
                yield fail(
                    f"{place}: the group is at {at}, the log begins at {ends.log_start}: "
                    f"{ends.log_start - at} offsets are gone; the service exits with code 6",
                    "decide about the gap as docs/runbooks.md describes, and raise the retention",
                )
            elif at > ends.high_watermark:
                yield fail(
                    f"{place}: the committed offset {at} is beyond the end of the log at "
                    f"{ends.high_watermark}: the topic was recreated or truncated",
                    "choose a new HAPAX_APP, or set the offset as docs/runbooks.md says",
                )


@check("undecodable", at="input", sound="the next record of every partition can be decoded")
def _undecodable(context: CheckContext) -> Iterator[CheckResult]:
    for (topic, partition), one in sorted(context.kafka.undecodable.items()):
        place = f"{topic}/{partition}/{one.offset}"
        yield fail(
            f"{place}: the set that begins there cannot be read ({one.reason}): the partition "
            "is blocked",
            f"elect a leader whose replica is intact, or skip the set: hapax offsets skip {place}"
            " --dead-letter",
        )


@check("open-transactions", now=True)
def _open(context: CheckContext) -> Iterator[CheckResult]:
    for name in (*context.inputs, *context.outputs):
        sound = True
        if why := context.unseen(name):
            sound = False
            yield unknown(why)
        for place, log in context.logs(name):
            if log.offsets is None or not log.stuck:
                continue
            sound = False
            age = open_age_ms(context.settings, name)
            told = f"{place}: an open transaction holds readers at offset {log.offsets.last_stable}"
            fix = "find its owner with hapax transactions list; abort it if it has no owner"
            if log.since.get(age, 0) > log.offsets.last_stable:
                yield fail(f"{told}; the record there is older than {duration_text(age)}", fix)
            elif name in output_topics(context.settings):
                yield warn(f"{told}, and did so for a moment", f"check again; then {fix}")
            else:
                yield ok(f"{told}, not for long yet")
        if sound:
            yield ok(f"{name}: no transaction stayed open")


@check("retention", now=True, at="input")
def _retention(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in context.inputs.items():
        kept = kept_ms(topic)
        if "retention.ms" not in topic.settings:
            yield unknown(f"{name}: the brokers do not report its retention")
            continue
        if kept is None:
            yield ok(f"{name}: no record is deleted for its age")
            continue
        # From nine tenths on records may go any moment: segments go as a whole.
        late, soon = (_unread(context, name, age) for age in (kept * 9 // 10, kept // 2))
        fix = f"{set_topic(name, 'retention.ms=…')} to a longer time, and add processes"
        ground = f"retention.ms={kept} ({duration_text(kept)})"
        if late:
            yield fail(
                f"{', '.join(late)}: unread records are older than nine tenths of {ground}: they "
                "are about to be deleted",
                fix,
            )
        elif soon:
            yield warn(f"{', '.join(soon)}: unread records are older than half of {ground}", fix)
        elif why := context.unseen(name):
            yield unknown(why)
        else:
            yield ok(f"{name}: unread records are far younger than {ground}")


@check("retention-bytes", at="input")
def _retention_bytes(context: CheckContext) -> Iterator[CheckResult]:
    for name, topic in context.inputs.items():
        most_bytes = number(topic.settings.get("retention.bytes"))
        if most_bytes is None:
            yield unknown(f"{name}: the brokers do not report its retention")
        elif most_bytes >= 0:
            yield warn(
                f"{name}: retention.bytes={most_bytes}: a burst deletes unread records, however "
                "young",
                set_topic(name, "retention.bytes=-1"),
            )
        else:
            yield ok(f"{name}: no record is deleted for the size of its log")


@check("claim-ttl", at="input")
def _claim_ttl(context: CheckContext) -> Iterator[CheckResult]:
    if not context.settings.dedup.enabled:
        yield ok("no claim store")
        return
    ttl = context.settings.dedup.ttl_ms
    ours = f"HAPAX_DEDUP__TTL={duration_text(ttl)}"
    for name, topic in context.inputs.items():
        late = _unread(context, name, ttl)
        if late:
            yield fail(
                f"{', '.join(late)}: unread records are older than {ours}: the claim of an event's "
                "first copy may be gone before its second one is read",
                "raise HAPAX_DEDUP__TTL above the longest wait of a record, and add processes",
            )
        elif "retention.ms" not in topic.settings:
            yield unknown(f"{name}: the brokers do not report its retention")
        elif (kept := kept_ms(topic)) is None or kept > ttl:
            yield warn(
                f"{name}: records are kept for {_kept(topic)}, {ours} ends before: a copy that "
                "waits longer than that passes as new",
                set_topic(name, f"retention.ms={ttl}")
                + ("" if kept is None else f", or set HAPAX_DEDUP__TTL={duration_text(kept)}"),
            )
        else:
            yield ok(f"{name}: {ours} outlives its records")


@check("dead-letter-retention", at="outputs")
def _dead_letters(context: CheckContext) -> Iterator[CheckResult]:
    name = context.settings.dead_letter.topic
    if name is None:
        yield ok("HAPAX_DEAD_LETTER__TOPIC is unset: poison stops the service")
        return
    topic = context.outputs.get(name)
    if topic is None or "retention.ms" not in topic.settings:
        yield unknown(f"{name}: the brokers do not report its retention")
        return
    kept = kept_ms(topic)
    if kept is not None and kept < DEAD_LETTERS_KEPT_MIN_MS:
        yield warn(
            f"{name}: retention.ms={kept}: dead letters are deleted after {duration_text(kept)}, "
            "read or not",
            set_topic(name, f"retention.ms={4 * DEAD_LETTERS_KEPT_MIN_MS}"),
        )
    else:
        yield ok(f"{name}: dead letters are kept for {_kept(topic)}")


def _unread(context: CheckContext, topic: str, age_ms: int) -> list[str]:
    return [
        place
        for place, log in context.logs(topic)
        if log.unread and log.since.get(age_ms, 0) > (0 if log.committed is None else log.committed)
    ]


def _kept(topic: Topic) -> str:
    kept = kept_ms(topic)
    return "ever" if kept is None else duration_text(kept)


@check("retry-topic", at="input")
def _retry_topic(context: CheckContext) -> Iterator[CheckResult]:
    name = context.settings.retry_topic
    if name is None:
        yield ok("HAPAX_RETRY__TOPIC and HAPAX_RETRY__LATER are unset: no record waits")
        return
    topic = context.outputs.get(name)
    if topic is None:
        yield fail(f"HAPAX_RETRY__TOPIC: topic {name} does not exist", create_command(name))
        return
    count = len(topic.partitions)
    if count < LEVELS:
        yield fail(
            f"{name} has {count} partitions, later tries need {LEVELS}: one for each length of "
            "wait",
            create_command(name, existing=True),
        )
    if "retention.ms" not in topic.settings:
        yield unknown(f"{name}: the brokers do not report its retention")
        return
    if "compact" in topic.settings.get("cleanup.policy", "delete"):
        yield fail(
            f"{name}: cleanup.policy={topic.settings['cleanup.policy']}: {COMPACTED}",
            set_topic(name, "cleanup.policy=delete"),
        )
    if topic.settings.get("retention.bytes", "-1") != "-1":
        yield fail(
            f"{name}: retention.bytes={topic.settings['retention.bytes']}: many records that wait "
            "delete each other",
            set_topic(name, "retention.bytes=-1"),
        )
    kept = kept_ms(topic)
    longest = duration_text(LONGEST_MS)
    fix = set_topic(name, f"retention.ms={max(7 * DAY_MS, 2 * LONGEST_MS)}")
    if kept is not None and kept <= LONGEST_MS:
        yield fail(
            f"{name}: retention.ms={kept}: records are deleted after {duration_text(kept)}, and "
            f"may wait for {longest}",
            fix,
        )
    elif kept is not None and kept < LONGEST_MS + SPARE_MS:
        yield warn(
            f"{name}: retention.ms={kept}: what waits for {longest} is soon deleted while the "
            "service is stopped",
            fix,
        )
    else:
        yield ok(f"{name}: records outlive the longest delay, {longest}")

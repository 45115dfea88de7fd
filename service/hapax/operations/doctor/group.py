"""Checks of the consumer group and of the rights of the user."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from hapax.kafka.produce.target_lane import target_prefixes
from hapax.operations.doctor.acls import kafka_rights, target_rights
from hapax.operations.doctor.check import check, fail, listed, ok, unknown, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.cluster_state import ConsumerGroup
    from hapax.core.rights import Right
    from hapax.operations.doctor.check import Case, CheckResult
    from hapax.settings import Settings

ASSIGNOR: Final = "cooperative-sticky"
UNUSED: Final = {"DEAD", "UNKNOWN", "UNKOWN"}  # the second spelling is the client's


@check(
    "rights",
    "what the user may do with topics and group, as the brokers report it, and with its "
    "transactional id, by trying",
    "FAIL: something that the service needs is not allowed.",
    now=True,
)
def _rights(case: Case) -> Iterator[CheckResult]:
    missing = False
    for right in _rights_of(case.settings, there=case.side == "outputs"):
        if right.optional:
            continue
        allowed, why = _allowed(case, right)
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


@check(
    "group-state",
    "the consumer group",
    "WARN: it has no members and there are unread records, or it keeps rebalancing.",
    now=True,
    at="input",
)
def _state(case: Case) -> Iterator[CheckResult]:
    group = case.kafka.group
    if group is None:
        yield unknown(_why(case))
        return
    name = case.settings.app
    waiting = [place for topic in case.inputs for place, log in case.logs(topic) if log.unread]
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


@check(
    "group-members",
    "the members of the consumer group",
    "FAIL: one of another program, another protocol, one static name twice. WARN: more than "
    "partitions.",
    now=True,
    at="input",
)
def _members(case: Case) -> Iterator[CheckResult]:
    group = case.kafka.group
    if group is None:
        yield unknown(_why(case))
        return
    found = [*_strangers(case, group), *_protocols(case, group), *_doubles(group)]
    partitions = sum(len(topic.partitions) for topic in case.inputs.values())
    if len(group.members) > partitions > 0:
        found.append(
            warn(
                f"{len(group.members)} members share {partitions} partitions: some have nothing "
                "to do",
                "stop some processes, or add partitions to the input",
            )
        )
    yield from found or [ok(f"{len(group.members)} members, all of this pipeline")]


@check(
    "group-offsets",
    "which client committed the group's offsets",
    "WARN: another one than Hapax.",
    at="input",
)
def _offsets(case: Case) -> Iterator[CheckResult]:
    app, start = case.settings.app, case.settings.input.start
    logs = [log for name in case.inputs for _place, log in case.logs(name)]
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
    elif why := case.kafka.untold.get("committed offsets"):
        yield unknown(f"committed offsets: {why}")
    else:
        yield ok(f"group {app} has offsets of another client in {saw}")


@check(
    "readers",
    "offsets of other groups against the last records of the outputs",
    "WARN: markers keep one from the end, so that its end - committed never gets to 0.",
    at="outputs",
)
def _readers(case: Case) -> Iterator[CheckResult]:
    for group, readers in groupby(case.kafka.readers, lambda one: one.group):
        found = list(readers)
        at = listed(f"{one.topic}/{one.partition}/{one.committed}" for one in found[:5])
        yield warn(
            f"group {group} has read every record of {len(found)} partitions, and end - committed "
            f"says {sum(one.end - one.committed for one in found)}: it is at one past the last "
            f"record ({at}), before markers and aborted records; of clients that commit nothing "
            "else that number never gets to 0",
            f"alert and scale by hapax lag {group}, which counts records (docs/world/lag.md)",
        )
    if why := case.kafka.untold.get("readers"):
        yield unknown(f"groups that read the outputs: {why}")
    elif not case.kafka.readers:
        yield ok("no group that may be seen is kept from the end of an output by markers")


def _strangers(case: Case, group: ConsumerGroup) -> Iterator[CheckResult]:
    inputs = set(case.settings.read_topics)
    for member in group.members:
        who = f"member {member.client_id} at {member.host}"
        fix = "stop it or give it a group of its own: no two programs share HAPAX_APP"
        if not member.client_id.startswith(f"{case.settings.app}-"):
            yield fail(f"{who} is no process of this pipeline: what it reads has no effect", fix)
        elif set(member.topics) - inputs:
            other = ", ".join(sorted(set(member.topics) - inputs))
            yield fail(f"{who} reads {other}, which is no input here", fix)


def _protocols(case: Case, group: ConsumerGroup) -> Iterator[CheckResult]:
    wanted = case.settings.group.protocol
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


def _doubles(group: ConsumerGroup) -> Iterator[CheckResult]:
    names = Counter(each.static_name for each in group.members if each.static_name)
    for name, count in names.items():
        if count > 1:
            yield fail(
                f"{count} members are called {name}: they fence each other",
                "give every process its own HAPAX_INSTANCE",
            )


def _allowed(case: Case, right: Right) -> tuple[tuple[str, ...], str]:
    """Return what the user may do, or why that is not known."""
    if right.resource == "TOPIC":
        topic = case.kafka.topics.get(right.name)
        if topic is not None and topic.problem and "AUTHORIZATION" in topic.problem:
            return (), ""
        told = topic.operations if topic is not None else None
        return told or (), "" if told is not None else "the topic is not known"
    lanes = target_prefixes(case.settings.app).group  # the group that was looked at is one of them
    if right.resource == "GROUP" and right.name in {case.settings.app, lanes}:
        why = _why(case)
        if case.kafka.group is None and "AUTHORIZATION" in why:
            return (), ""
        told = case.kafka.group.operations if case.kafka.group is not None else None
        return told or (), "" if told is not None else why
    name = tried_id(right)
    if right.resource != "TRANSACTIONAL_ID" or name not in case.kafka.ids:
        return (), case.kafka.untold.get(f"transactional id {name}", "the brokers do not report it")
    return (() if case.kafka.ids[name] else (right.operation,)), ""


def _rights_of(settings: Settings, *, there: bool) -> tuple[Right, ...]:
    return target_rights(settings) if there else kafka_rights(settings)


def tried_id(right: Right) -> str:
    """Return the transactional id by which a right is tried out: any that begins with a prefix."""
    return right.name if right.pattern == "LITERAL" else f"{right.name}doctor"


def tried_ids(settings: Settings, *, there: bool) -> list[str]:
    """Return the transactional ids to try out. ``there``: on another cluster of the outputs."""
    return [
        tried_id(right)
        for right in _rights_of(settings, there=there)
        if right.resource == "TRANSACTIONAL_ID" and not right.optional
    ]


def _why(case: Case) -> str:
    return case.kafka.untold.get("consumer group", "the brokers do not report it")

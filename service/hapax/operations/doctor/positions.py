"""Checks of positions: of which cluster, whether in their logs, and what holds readers up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.operations.doctor.check import (
    HOUR_MS,
    TRANSACTION_AGE_MAX_MS,
    check,
    fail,
    listed,
    number,
    ok,
    output_topics,
    unknown,
    warn,
)
from hapax.operations.doctor.retention import half, most
from hapax.settings.value_types import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hapax.operations.doctor.check import Case, CheckResult
    from hapax.settings import Settings


ADOPT: Final = (
    "set the addresses to the previous cluster, set a new HAPAX_APP, or run hapax claims adopt"
)


def open_age_ms(settings: Settings, topic: str) -> int:
    """Return the age from which on an open transaction has no owner any more."""
    if topic in settings.input.topics:
        return TRANSACTION_AGE_MAX_MS
    return 2 * settings.transaction.timeout_ms


def ages_ms(settings: Settings, topic: str, topic_settings: Mapping[str, str]) -> tuple[int, ...]:
    """Return the ages whose first offsets these checks want to know."""
    ages = {open_age_ms(settings, topic)}
    if topic in settings.input.topics:
        kept = number(topic_settings.get("retention.ms"))
        if kept is not None and kept > 0:
            ages |= {half(kept), most(kept)}
        if settings.dedup.enabled:
            ages |= {settings.dedup.ttl_ms, HOUR_MS}
    return tuple(sorted(ages))


@check(
    "cluster-offsets",
    "Kafka's id of the cluster against the one stored with the group's offsets",
    "FAIL: they were committed on another cluster.",
    now=True,
    at="input",
)
def _cluster_of_offsets(case: Case) -> Iterator[CheckResult]:
    here = case.kafka.cluster_id
    if here is None:
        yield unknown("the brokers do not return the id of their cluster")
        return
    beside = {
        place: log.cluster_id
        for name in case.inputs
        for place, log in case.logs(name)
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


@check(
    "outputs-cluster",
    "Kafka's id of the cluster of the outputs against that of the input's",
    "FAIL: `HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS` leads to the cluster that is read.",
    at="outputs",
    now=True,
)
def _outputs_cluster(case: Case) -> Iterator[CheckResult]:
    here = case.kafka.cluster_id
    if case.source is None:
        yield ok("outputs go to the cluster that is read")
    elif here is None or case.source.kafka.cluster_id is None:
        yield unknown("one of the clusters does not return its id")
    elif here == case.source.kafka.cluster_id:
        servers = case.settings.kafka.bootstrap_servers
        yield fail(
            f"{case.prefix}BOOTSTRAP_SERVERS={servers}: its brokers are those of cluster {here}, "
            "which is read: the service refuses to start",
            "remove it, and outputs go there in one transaction with the group's offsets",
        )
    else:
        yield ok(f"outputs go to cluster {here}")


@check(
    "claim-cluster",
    "Kafka's id of the cluster against the one stored with the claims",
    "FAIL: they were made for another cluster.",
    needs="claims",
    now=True,
)
def _cluster_of_claims(case: Case) -> Iterator[CheckResult]:
    here, store = case.kafka.cluster_id, case.claims
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


@check(
    "positions",
    "committed offsets against the beginnings and ends of the logs",
    "FAIL: one is not in its log.",
    now=True,
    at="input",
)
def _positions(case: Case) -> Iterator[CheckResult]:
    if "committed offsets" in case.kafka.untold:
        yield unknown(f"committed offsets: {case.kafka.untold['committed offsets']}")
        return
    sound = True
    for name in case.inputs:
        if why := case.unseen(name):
            sound = False
            yield unknown(why)
        for place, log in case.logs(name):
            at, ends = log.committed, log.offsets
            if at is None or ends is None:
                continue
            if at < ends.log_start:
                sound = False
                yield fail(
                    f"{place}: the group is at {at}, the log begins at "
                    f"{ends.log_start}: {ends.log_start - at} offsets are gone; the service "
                    "exits with code 6",
                    "decide about the gap as docs/runbooks.md describes, and raise the retention",
                )
            elif at > ends.high_watermark:
                sound = False
                yield fail(
                    f"{place}: the committed offset {at} is beyond the end of the log at "
                    f"{ends.high_watermark}: the topic was recreated or truncated",
                    "choose a new HAPAX_APP, or set the offset as docs/runbooks.md says",
                )
    if sound:
        yield ok("every committed offset is in its log")


@check(
    "undecodable",
    "the next record of every partition with unread ones",
    "FAIL: its set is damaged, of an unknown codec, too large unpacked, or larger than the client "
    "takes: the partition is blocked; the fix names the command that passes it.",
    at="input",
)
def _undecodable(case: Case) -> Iterator[CheckResult]:
    for (topic, partition), one in sorted(case.kafka.undecodable.items()):
        place = f"{topic}/{partition}/{one.offset}"
        yield fail(
            f"{place}: the set that begins there cannot be read ({one.reason}): the partition "
            "is blocked",
            f"elect a leader whose replica is intact, or skip the set: hapax offsets skip {place}"
            " --dead-letter",
        )
    if not case.kafka.undecodable:
        yield ok("the next record of every partition can be decoded")


@check(
    "open-transactions",
    "last stable offsets against the ends of the logs, twice",
    "FAIL: it stays before a record that is older than any live transaction (output: twice "
    "`HAPAX_TRANSACTION__TIMEOUT`; input: 15 minutes). WARN: it does not move, on the output.",
    now=True,
)
def _open(case: Case) -> Iterator[CheckResult]:
    for name in (*case.inputs, *case.outputs):
        sound = True
        if why := case.unseen(name):
            sound = False
            yield unknown(why)
        for place, log in case.logs(name):
            if log.offsets is None or not log.stuck:
                continue
            sound = False
            age = open_age_ms(case.settings, name)
            told = f"{place}: an open transaction holds readers at offset {log.offsets.last_stable}"
            fix = "find its owner with hapax transactions list; abort it if it has no owner"
            if log.since.get(age, 0) > log.offsets.last_stable:
                yield fail(f"{told}; the record there is older than {duration_text(age)}", fix)
            elif name in output_topics(case.settings):
                yield warn(f"{told}, and did so for a moment", f"check again; then {fix}")
            else:
                yield ok(f"{told}, not for long yet")
        if sound:
            yield ok(f"{name}: no transaction stayed open")

"""What a check gets, what it answers with, and how it is declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from hapax.cluster.cluster_state import ClusterState, Log, ProcessState, Topic
    from hapax.core.ports import StoreHealth
    from hapax.settings import Settings

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
TRANSACTION_AGE_MAX_MS = 15 * MINUTE_MS
"""``transaction.max.timeout.ms`` of brokers that are set to nothing else: no sender's transaction
may be open for longer."""


class Verdict(StrEnum):
    """How good it is.

    PASS     as it should be
    WARN     works today; the saw and the fix say what it will cost
    FAIL     records are, or can be, lost, doubled or stuck
    UNTOLD   could not be looked at; ``saw`` says why
    """

    PASS = "PASS"  # noqa: S105 - a verdict, no secret
    WARN = "WARN"
    FAIL = "FAIL"
    UNTOLD = "UNTOLD"


class Section(StrEnum):
    """Where a finding is shown: what is broken now, what can be one day, the rest."""

    BROKEN = "broken now"
    AT_RISK = "at risk"
    UNKNOWN = "not known"
    FINE = "fine"


class Finding(msgspec.Struct, frozen=True):
    """One verdict.

    check    name of the check; docs/doctor.md has a row for each
    saw      what was looked at and found, one phrase
    fix      what to do, one sentence; empty where nothing is to be done
    now      whether the check speaks of this moment, and not of what can happen one day
    cluster  the bootstrap addresses of the cluster it speaks of, where there are two; else empty
    """

    check: str
    verdict: Verdict
    saw: str
    fix: str = ""
    now: bool = False
    cluster: str = ""

    @property
    def group(self) -> Section:
        if self.verdict is Verdict.FAIL and self.now:
            return Section.BROKEN
        others = {Verdict.PASS: Section.FINE, Verdict.UNTOLD: Section.UNKNOWN}
        return others.get(self.verdict, Section.AT_RISK)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings worst first; of one verdict those about this moment come first."""
    order = (Verdict.FAIL, Verdict.WARN, Verdict.UNTOLD, Verdict.PASS)
    return sorted(findings, key=lambda one: (order.index(one.verdict), not one.now))


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    seen = Counter(finding.verdict for finding in findings)
    return {verdict.value: seen[verdict] for verdict in Verdict}


class CheckResult(NamedTuple):
    """A finding without the name of its check."""

    verdict: Verdict
    saw: str
    fix: str = ""


class CheckContext(NamedTuple):
    """One pipeline on one cluster, and all that was found out about it.

    settings  on the cluster of the outputs, where that is another one: ``target_settings``
    claims    None without a claim store
    state     the topic that keeps the state of the transform; empty: it keeps none
    source    where ``kafka`` is the cluster of the outputs, and another one: that of the input
    """

    settings: Settings
    kafka: ClusterState
    claims: StoreHealth | None
    process: ProcessState
    source: CheckContext | None = None
    state: tuple[str, ...] = ()

    @property
    def side(self) -> Literal["", "input", "outputs"]:
        """Which of two clusters ``kafka`` is; empty where there is one."""
        if self.source is not None:
            return "outputs"
        return "input" if self.settings.elsewhere else ""

    @property
    def prefix(self) -> str:
        return "HAPAX_KAFKA__" if self.source is None else "HAPAX_OUTPUT__KAFKA__"

    @property
    def read(self) -> dict[str, Topic]:
        return self.inputs if self.source is None else self.source.inputs

    @property
    def inputs(self) -> dict[str, Topic]:
        return self._there(self.settings.input.topics)

    @property
    def outputs(self) -> dict[str, Topic]:
        from hapax.kafka.admin.topics import output_topics  # commands import verdicts alone

        return self._there((*output_topics(self.settings), *self.state))

    def _there(self, names: tuple[str, ...]) -> dict[str, Topic]:
        topics = self.kafka.topics
        return {name: topics[name] for name in names if name in topics and topics[name].partitions}

    def logs(self, topic: str) -> Iterator[tuple[str, Log]]:
        for number in self.kafka.topics[topic].partitions:
            if (topic, number) in self.kafka.logs:
                yield f"{topic}/{number}", self.kafka.logs[(topic, number)]

    def unseen(self, topic: str) -> str:
        logs = self.kafka.logs
        missing = [
            f"{topic}/{number}"
            for number in self.kafka.topics[topic].partitions
            if (log := logs.get((topic, number))) is None or log.offsets is None
        ]
        why = next((why for what, why in self.kafka.untold.items() if "offsets of" in what), "")
        return f"offsets of {', '.join(missing)}{why and ': '}{why}" if missing else ""

    def broker_settings(self, name: str) -> dict[int, str]:
        return {at: each[name] for at, each in self.kafka.settings.items() if name in each}


Judge = Callable[[CheckContext], Iterator[CheckResult]]
Needs = Literal["process", "addresses", "brokers", "claims", "claims or nothing"]
At = Literal["none", "input", "outputs", "each"]


class Check(NamedTuple):
    """One check; docs/doctor.md says what it examines and finds.

    needs     what must have answered before there is anything to judge
    at        which cluster it judges, where outputs go to another one than that of the input
    now       whether a FAIL or WARN of it says that something is broken at this moment; others
              speak of what can happen one day, and are shown after these
    sound     what a PASS says where it judged nothing else; empty: it always judges
    """

    name: str
    needs: Needs
    judge: Judge
    now: bool = False
    at: At = "none"
    sound: str = ""


def check(
    name: str, *, needs: Needs = "brokers", now: bool = False, at: At | None = None, sound: str = ""
) -> Callable[[Judge], Check]:
    """Declare the function below as a check; what asks brokers asks those of each cluster."""
    at = at or ("each" if needs in {"addresses", "brokers"} else "none")
    return lambda judge: Check(name, needs, judge, now, at, sound)


ok, unknown = partial(CheckResult, Verdict.PASS), partial(CheckResult, Verdict.UNTOLD)
warn, fail = partial(CheckResult, Verdict.WARN), partial(CheckResult, Verdict.FAIL)


def number(text: str | None) -> int | None:
    """Read a whole number of a broker or of Redis; None when it is none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def listed(words: Iterable[object]) -> str:
    return ", ".join(str(word) for word in words)


def kept_ms(topic: Topic) -> int | None:
    """Return ``retention.ms``; None where records are kept without end, or it is not known."""
    kept = number(topic.settings.get("retention.ms"))
    deleted = "delete" in topic.settings.get("cleanup.policy", "delete")
    return kept if kept is not None and kept >= 0 and deleted else None


def in_files(change: str) -> str:
    """Return how to change what brokers read at their start alone."""
    return f"set {change} in server.properties of each broker, and start them again in turn"


def set_topic(topic: str, change: str) -> str:
    return (
        f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {change}"
    )

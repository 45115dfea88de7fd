"""The order of things: publish, break, drain, audit."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.demo.faults import (
    DemoFault,
    HandOver,
    SparkStage,
    break_spark,
    break_workers,
    check_spark,
)
from hapax.demo.orders import DEAD_LETTERS, ORDINARY_DEAD_LETTERS
from hapax.demo.stage import DemoError, Screen, Stage, committed, ended_by_itself, lag
from hapax.operations.audit.result import Audit

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRAIN_TIMEOUT_S, _AUDIT_S = 120.0, 600.0
_DEAD_LETTERS = {DEAD_LETTERS, ORDINARY_DEAD_LETTERS}
_KINDS = {
    "missing": "lost",
    "dedup_loss": "lost",
    "doubled": "doubled_by_crashes",
    "repeated": "doubled_by_repeats",
    "out_of_order": "out_of_order",
    "from_aborted": "from_aborted",
}
"""Classes of the audit, as the demo counts them; all others are ``wrong``."""


class DemoVerdict(msgspec.Struct):
    """What an audit came to. The counts below ``duplicates_removed`` must all be 0.

    records_in          input records, without those of aborted transactions
    events              distinct ids among them
    outputs             records in the output topic
    dead_letters        records in the dead-letter topic
    duplicates_removed  input records without effect because another one of their id has it
    lost                records without an effect that is due
    doubled_by_repeats  records with an effect although the event had one: it was sent twice
    doubled_by_crashes  effects too many of a record that was processed twice
    out_of_order        effects after one of a later record of their input partition
    wrong               effects that are not what their source asks for, or a part of it
    from_aborted        effects of records that were never committed
    examples            the first few of each kind
    """

    records_in: int
    events: int
    outputs: int
    dead_letters: int
    duplicates_removed: int
    lost: int = 0
    doubled_by_repeats: int = 0
    doubled_by_crashes: int = 0
    out_of_order: int = 0
    wrong: int = 0
    from_aborted: int = 0
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @property
    def doubled(self) -> int:
        return self.doubled_by_repeats + self.doubled_by_crashes

    @property
    def exact(self) -> bool:
        """Whether every event had its effect exactly once, in order, and nothing else did."""
        anomalies = self.lost + self.doubled + self.out_of_order + self.wrong + self.from_aborted
        return anomalies == 0


class DemoSummary(msgspec.Struct):
    """All figures of one demo.

    engine            what ran the pipeline
    published         records sent, aborted ones included
    aborted           records of aborted transactions, which no reader of the output may notice
    faults            what struck the workers; ``ordinary_faults``: what struck the ordinary loop
    hand_overs        from one engine to the other, with the exit codes of those that left
    exit_codes        of the workers, asked to exit at the end
    ordinary_restarts how often the ordinary loop ended by itself and was started again
    """

    engine: str
    published: int
    aborted: int
    faults: list[DemoFault]
    hand_overs: list[HandOver]
    ordinary_faults: list[DemoFault]
    ordinary_restarts: int
    exit_codes: list[int]
    hapax: DemoVerdict
    ordinary: DemoVerdict

    @property
    def exact(self) -> bool:
        left = [*self.exit_codes, *(one.exit_code for one in self.hand_overs)]
        return self.hapax.exact and not any(left)


@contextmanager
def set_stage(engine: str, screen: Screen, *, seed: int, rate: int) -> Iterator[Stage]:
    kind = SparkStage if engine == SparkStage.engine else Stage
    if kind is SparkStage:
        check_spark()
    screen.phase("Starting Kafka and Redis")
    with ExitStack() as exits:
        yield kind(screen, exits, seed=seed, rate=rate)


def tell(stage: Stage, seconds: float) -> DemoSummary:
    """Raise DemoError when it cannot continue, HapaxError when topics cannot be read."""
    until_s = time.monotonic() + seconds
    if isinstance(stage, SparkStage):
        faults, hand_overs = break_spark(stage, until_s)
    else:
        faults, hand_overs = break_workers(stage, until_s), []
    stage.screen.phase("Publishing on, without faults")
    left_s = max(0.0, until_s - time.monotonic())
    stage.wait(lambda: time.monotonic() > until_s, "time passes", left_s + 1.0)
    stage.publisher.stop()
    stage.publisher.check()
    exit_codes, (hapax, ordinary) = _drain(stage), _judged(stage)
    sent, loop_name = stage.publisher, stage.ordinary.name
    return DemoSummary(
        engine=stage.engine,
        published=sent.published,
        aborted=sent.aborted,
        faults=[fault for fault in faults if fault.target != loop_name],
        hand_overs=hand_overs,
        ordinary_faults=[fault for fault in faults if fault.target == loop_name],
        ordinary_restarts=stage.ordinary_restarts,
        exit_codes=exit_codes,
        hapax=hapax,
        ordinary=ordinary,
    )


def _drain(stage: Stage) -> list[int]:
    names = " and ".join(worker.name for worker in stage.workers)
    stage.screen.phase(f"Published all; until lag 0: {names}")
    stage.wait(lambda: lag(stage.offsets, stable=True) == 0, f"lag 0: {names}", _DRAIN_TIMEOUT_S)
    stage.screen.note(f"lag 0 on every partition, beyond aborted records; SIGTERM to {names}")
    codes = [stage.leave(worker) for worker in stage.workers]
    last, offsets = stage.publisher.last, stage.ordinary_offsets
    stage.screen.phase("The ordinary loop finishes")
    stage.wait(
        # It never gets to lag 0: beyond its last record are those of an aborted transaction.
        lambda: all(at > last.get(partition, -1) for partition, at in committed(offsets).items()),
        "the ordinary loop commits its last record",
        _DRAIN_TIMEOUT_S,
    )
    stage.leave(stage.ordinary)
    return codes


def _judged(stage: Stage) -> list[DemoVerdict]:
    stage.screen.phase("hapax audit of both: every record is read back and compared")
    for process in stage.judges:
        process.start()
    stage.wait(lambda: not any(one.running for one in stage.judges), "both audits end", _AUDIT_S)
    verdicts = []
    for process in stage.judges:
        text = process.log.read_text(encoding="utf-8")
        if process.exit_code not in {0, 1}:
            raise ended_by_itself(process)
        found = msgspec.json.decode(text[text.index("{\n") :], type=Audit)
        verdicts.append(verdict_of(found, len(stage.publisher.events)))
        if verdicts[-1].records_in != stage.publisher.visible:
            raise DemoError(
                f"{stage.publisher.visible} records were published, but {process.name} found"
                f" {verdicts[-1].records_in}: nothing can be judged."
            )
    return verdicts


def verdict_of(found: Audit, events: int) -> DemoVerdict:
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for name, count in found.anomalies.items():
        kind = _KINDS.get(name, "wrong")
        counts[kind] += count
        examples.setdefault(kind, []).extend(found.examples.get(name, ()))
    # The topics of the demo are its own, and what the rule takes is no dead letter.
    foreign = sum(one.foreign for one in found.outputs)
    counts["wrong"] += foreign + found.totals.get("unexpected_dead", 0)
    dead = sum(one.records for one in found.outputs if one.bounds.topic in _DEAD_LETTERS)
    return DemoVerdict(
        records_in=found.totals["records"],
        events=events,
        outputs=sum(one.records for one in found.outputs) - dead,
        dead_letters=dead,
        duplicates_removed=found.totals["duplicates"],
        examples=examples,
        **counts,
    )

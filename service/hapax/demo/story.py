"""The order of things: publish, break, drain, judge."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from hapax.demo.child import DemoError
from hapax.demo.judge import DemoInput, DemoVerdict, as_effect, as_given, judge
from hapax.demo.orders import shipments
from hapax.demo.ordinary import as_record
from hapax.demo.readings import read_back
from hapax.demo.stage import (
    DEAD_LETTERS,
    ORDERS,
    ORDINARY_DEAD_LETTERS,
    ORDINARY_PRICED,
    PRICED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.demo.damage import Damage, DemoFault, HandOver
    from hapax.demo.judge import DemoEffect
    from hapax.demo.stage import Stage

    Strike = Callable[[float], Damage]

_DRAIN_TIMEOUT_S = 120.0


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
        """Whether the promise was kept."""
        left = [*self.exit_codes, *(one.exit_code for one in self.hand_overs)]
        return self.hapax.exact and not any(left)


def tell(stage: Stage, seconds: float, strike: Strike) -> DemoSummary:
    """Run the whole demo on a built stage. Publishes for ``seconds``, or until faults are done.

    ``strike`` starts what is to be broken, breaks it, and stops in time for the end it is given.
    Raises DemoError when it cannot continue.
    """
    until_s = time.monotonic() + seconds
    damage = strike(until_s)
    _publish_until(stage, until_s)
    exit_codes = _drain(stage)
    given = _read_input(stage)
    _await_ordinary(stage, given)
    stage.screen.phase("Reading everything back, and judging")
    ours = judge(given, _effects(stage, PRICED, DEAD_LETTERS), shipments)
    theirs = judge(given, _effects(stage, ORDINARY_PRICED, ORDINARY_DEAD_LETTERS), shipments)
    ordinary_name = stage.ordinary.name
    return DemoSummary(
        engine=stage.engine,
        published=stage.publisher.published,
        aborted=stage.publisher.aborted,
        faults=[fault for fault in damage.faults if fault.target != ordinary_name],
        ordinary_faults=[fault for fault in damage.faults if fault.target == ordinary_name],
        hand_overs=damage.hand_overs,
        ordinary_restarts=stage.ordinary_restarts,
        exit_codes=exit_codes,
        hapax=ours,
        ordinary=theirs,
    )


def _publish_until(stage: Stage, until_s: float) -> None:
    stage.screen.phase("Publishing on, without faults")
    left_s = until_s - time.monotonic()
    stage.wait(lambda: time.monotonic() > until_s, "time passes", max(0.0, left_s) + 1.0)
    stage.publisher.stop()


def _drain(stage: Stage) -> list[int]:
    """Wait until everything is committed, then ask the workers to exit."""
    names = " and ".join(worker.name for worker in stage.workers)
    stage.screen.phase(f"Published all; until lag 0: {names}")
    stage.wait(lambda: stage.group.lag(stable=True) == 0, f"lag 0: {names}", _DRAIN_TIMEOUT_S)
    stage.screen.note(f"lag 0 on every partition, beyond aborted records; SIGTERM to {names}")
    return [stage.leave(worker) for worker in stage.workers]


def _read_input(stage: Stage) -> DemoInput:
    """Read the input with both isolations; what only one of them sees was aborted."""
    stage.screen.phase("Reading the input back")
    servers = stage.sandbox.bootstrap_servers
    visible = {
        record.coordinates: as_given(record)
        for record in map(as_record, read_back(servers, ORDERS, "read_committed"))
    }
    everything = {
        as_record(message).coordinates for message in read_back(servers, ORDERS, "read_uncommitted")
    }
    given = DemoInput(visible, frozenset(everything - visible.keys()))
    publisher = stage.publisher
    if (len(visible), len(given.aborted)) != (publisher.visible, publisher.aborted):
        raise DemoError(
            f"{publisher.visible} records were published and {publisher.aborted} aborted, but "
            f"the input holds {len(visible)} and {len(given.aborted)}: nothing can be judged."
        )
    return given


def _await_ordinary(stage: Stage, given: DemoInput) -> None:
    """Wait for the loop's commit after the last record it can see; it never gets to lag 0."""
    stage.screen.phase("The ordinary loop finishes")
    last: dict[int, int] = {}
    for where in given.visible:
        last[where.partition] = max(where.offset, last.get(where.partition, 0))

    def finished() -> bool:
        committed = stage.ordinary_group.committed()
        return all(committed[partition] > offset for partition, offset in last.items())

    stage.wait(finished, "the ordinary loop commits its last record", _DRAIN_TIMEOUT_S)
    stage.leave(stage.ordinary)


def _effects(stage: Stage, outputs: str, dead_letters: str) -> Iterator[DemoEffect]:
    servers = stage.sandbox.bootstrap_servers
    for message in read_back(servers, outputs, "read_committed"):
        yield as_effect(as_record(message))
    for message in read_back(servers, dead_letters, "read_committed"):
        yield as_effect(as_record(message), dead=True)

"""The order of things: publish, break, drain, judge."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from service.core.records import Coordinates
from service.demo import faults
from service.demo.child import DemoError
from service.demo.judge import Input, Verdict, as_effect, as_given, judge
from service.demo.orders import shipments
from service.demo.ordinary import as_record
from service.demo.readings import read_back
from service.demo.stage import (
    DEAD_LETTERS,
    ORDERS,
    ORDINARY_DEAD_LETTERS,
    ORDINARY_PRICED,
    PRICED,
    SESSION_TIMEOUT_S,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.demo.child import Child
    from service.demo.faults import Fault
    from service.demo.judge import Effect
    from service.demo.stage import Stage

_DRAIN_TIMEOUT_S = 120.0
_ROUND_S = 18.0
"""What one round of faults takes: another one begins only when there is time for it."""


class Outcome(msgspec.Struct):
    """All figures of one demo.

    published         records sent, aborted ones included
    aborted           records of aborted transactions, which no reader of the output may notice
    faults            what struck the workers; ``ordinary_faults``: what struck the ordinary loop
    exit_codes        of the workers, asked to leave at the end
    ordinary_restarts how often the ordinary loop ended by itself and was started again
    """

    published: int
    aborted: int
    faults: list[Fault]
    ordinary_faults: list[Fault]
    ordinary_restarts: int
    exit_codes: list[int]
    hapax: Verdict
    ordinary: Verdict

    @property
    def exact(self) -> bool:
        """Whether the promise was kept."""
        return self.hapax.exact and not any(self.exit_codes)


def tell(stage: Stage, seconds: float) -> Outcome:
    """Run the whole demo on a built stage. Publishes for ``seconds``, or until faults are done.

    Raises DemoError when it cannot go on.
    """
    until_s = time.monotonic() + seconds
    struck = _break(stage, until_s)
    _publish_until(stage, until_s)
    exit_codes = _drain(stage)
    given = _read_input(stage)
    _await_ordinary(stage, given)
    stage.screen.phase("Reading everything back, and judging")
    ours = judge(given, _effects(stage, PRICED, DEAD_LETTERS), shipments)
    theirs = judge(given, _effects(stage, ORDINARY_PRICED, ORDINARY_DEAD_LETTERS), shipments)
    ordinary_name = stage.ordinary.name
    return Outcome(
        published=stage.publisher.published,
        aborted=stage.publisher.aborted,
        faults=[fault for fault in struck if fault.target != ordinary_name],
        ordinary_faults=[fault for fault in struck if fault.target == ordinary_name],
        ordinary_restarts=stage.ordinary_restarts,
        exit_codes=exit_codes,
        hapax=ours,
        ordinary=theirs,
    )


def _break(stage: Stage, until_s: float) -> list[Fault]:
    stage.screen.phase("Publishing; two workers and an ordinary loop start")
    stage.begin()
    for worker in stage.workers:
        stage.wait(partial(_has_committed, worker), f"{worker.name} starts to commit")
    struck = _round(stage, *stage.workers)
    while until_s - time.monotonic() > _ROUND_S:
        struck += _round(stage, *reversed(stage.workers))
    return struck


def _round(stage: Stage, first: Child, second: Child) -> list[Fault]:
    stage.screen.phase(f"kill -9 {first.name}, and the ordinary loop")
    struck = _told(stage, *faults.kill_inside(stage, first))
    stage.screen.phase(f"Freezing {second.name} for more than {SESSION_TIMEOUT_S} s")
    struck += _told(stage, faults.freeze(stage, second))
    stage.screen.phase("kill -9 both workers at once, and the ordinary loop")
    struck += _told(stage, *faults.kill(stage, first, second))
    return struck


def _has_committed(worker: Child) -> bool:
    return any(line.get("event") == "transaction_settled" for line in worker.events())


def _told(stage: Stage, *struck: Fault) -> list[Fault]:
    for fault in struck:
        back = "" if fault.back_after_s is None else f"; commits again after {fault.back_after_s} s"
        stage.screen.note(f"{fault.kind}: {fault.target}, {fault.while_doing}{back}")
    return list(struck)


def _publish_until(stage: Stage, until_s: float) -> None:
    stage.screen.phase("Publishing on, without faults")
    left_s = until_s - time.monotonic()
    stage.wait(lambda: time.monotonic() > until_s, "time passes", max(0.0, left_s) + 1.0)
    stage.publisher.stop()


def _drain(stage: Stage) -> list[int]:
    """Wait until everything is committed, then ask the workers to leave."""
    stage.screen.phase("Published all; the workers drain")
    stage.wait(
        lambda: stage.group.lag(stable=True) == 0, "the workers reach lag 0", _DRAIN_TIMEOUT_S
    )
    stage.screen.note("lag 0 on every partition, behind aborted records; SIGTERM to both workers")
    return [stage.leave(worker) for worker in stage.workers]


def _read_input(stage: Stage) -> Input:
    """Read the input with both isolations; what only one of them sees was aborted."""
    stage.screen.phase("Reading the input back")
    servers = stage.sandbox.bootstrap_servers
    visible = {
        record.coordinates: as_given(record)
        for record in map(as_record, read_back(servers, ORDERS, "read_committed"))
    }
    everything = {
        Coordinates(ORDERS, message.partition() or 0, message.offset() or 0)
        for message in read_back(servers, ORDERS, "read_uncommitted")
    }
    given = Input(visible, frozenset(everything - visible.keys()))
    publisher = stage.publisher
    if (len(visible), len(given.aborted)) != (publisher.visible, publisher.aborted):
        raise DemoError(
            f"{publisher.visible} records were published and {publisher.aborted} aborted, but "
            f"the input holds {len(visible)} and {len(given.aborted)}: nothing can be judged."
        )
    return given


def _await_ordinary(stage: Stage, given: Input) -> None:
    """Wait for the loop's commit behind the last record it can see; it never gets to lag 0."""
    stage.screen.phase("The ordinary loop finishes")
    last: dict[int, int] = {}
    for where in given.visible:
        last[where.partition] = max(where.offset, last.get(where.partition, 0))

    def finished() -> bool:
        committed = stage.ordinary_group.committed()
        return all(committed[partition] > offset for partition, offset in last.items())

    stage.wait(finished, "the ordinary loop commits its last record", _DRAIN_TIMEOUT_S)
    stage.leave(stage.ordinary)


def _effects(stage: Stage, outputs: str, dead_letters: str) -> Iterator[Effect]:
    servers = stage.sandbox.bootstrap_servers
    for message in read_back(servers, outputs, "read_committed"):
        yield as_effect(as_record(message))
    for message in read_back(servers, dead_letters, "read_committed"):
        yield as_effect(as_record(message), dead=True)

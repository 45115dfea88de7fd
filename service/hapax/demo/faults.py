"""What is done to two workers, and the proof that it struck them while they worked.

No process is killed at random. It is frozen first, and keeps what it has open, so the broker can
be queried; when the moment is not the right one, it continues as if nothing had happened.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from hapax.core.headers import SOURCE, coordinates
from hapax.core.ports import silent
from hapax.demo.orders import ORDINARY_PRICED, PARTITIONS
from hapax.demo.stage import OUTPUTS, SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S, Stage, committed
from hapax.operations.reading import read_ranges, undecided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.sandbox.processes import ManagedProcess

_TRIES, _STEP_S = 20, 0.004
_STALLED_S = 0.6
_ROUND_S = 18.0
"""What one round of faults takes: another one begins only when there is time for it."""


class DemoFault(msgspec.Struct):
    """One fault that really struck.

    kind          kill or freeze; of Spark: driver kill or Python worker kill
    while_doing   what is known to have gone on at that moment
    back_after_s  until the process itself committed again; None for the ordinary loop
    """

    kind: str
    target: str
    while_doing: str
    back_after_s: float | None = None

    @property
    def sentence(self) -> str:
        back = "" if self.back_after_s is None else f"; commits again after {self.back_after_s} s"
        return f"{self.kind}: {self.target}, {self.while_doing}{back}"


def break_workers(stage: Stage, until_s: float) -> list[DemoFault]:
    stage.screen.phase("Publishing; two workers and an ordinary loop start")
    stage.begin()
    struck = _round(stage, *stage.workers)
    while until_s - time.monotonic() > _ROUND_S:
        struck += _round(stage, *reversed(stage.workers))
    return struck


def _round(stage: Stage, first: ManagedProcess, second: ManagedProcess) -> list[DemoFault]:
    phase = stage.screen.phase
    phase(f"kill -9 {first.name}, and the ordinary loop")
    # Both are frozen first, for as long as it takes to see that transactions exist.
    other = freeze_uncommitted(stage)
    done = kill(stage, other, [DemoFault("kill", first.name, freeze_inside(stage, first))], [first])
    phase(f"Freezing {second.name} for more than {SESSION_TIMEOUT_S} s")
    done += freeze(stage, second)
    phase("kill -9 both workers at once, and the ordinary loop")
    other, workers = freeze_uncommitted(stage), [first, second]
    for worker in workers:  # each right after a commit of its own
        stage.await_commit(worker, worker.position())
    faults = [DemoFault("kill", worker.name, "committing batch after batch") for worker in workers]
    return done + kill(stage, other, faults, workers)


def noted(stage: Stage, *faults: DemoFault) -> list[DemoFault]:
    for fault in faults:
        stage.screen.note(fault.sentence)
    return list(faults)


def kill(
    stage: Stage, other: DemoFault, faults: list[DemoFault], workers: Sequence[ManagedProcess]
) -> list[DemoFault]:
    """Kill them and the ordinary loop, start all, and return when each has committed again."""
    for process in (*workers, stage.ordinary):
        stage.kill(process)
    killed_s = time.monotonic()
    lives = [worker.position() for worker in workers]
    for process in (*workers, stage.ordinary):
        stage.start(process)
    stage.struck += len(faults)
    for worker, fault, since in zip(workers, faults, lives, strict=True):
        stage.await_commit(worker, since)
        fault.back_after_s = elapsed_s(killed_s)
    return noted(stage, *faults, other)


def freeze(stage: Stage, worker: ManagedProcess) -> list[DemoFault]:
    """Freeze a worker inside a transaction, past both timeouts, and thaw it again.

    Returns when another worker has gone on in its place and it has found its way back.
    """
    where = freeze_inside(stage, worker)
    past_s = time.monotonic() + max(SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S) + 1.0
    stage.struck += 1
    before = committed(stage.offsets)

    def taken_over() -> bool:
        if time.monotonic() < past_s:
            return False
        now = committed(stage.offsets)
        return all(now[partition] > offset for partition, offset in before.items())

    stage.wait(taken_over, f"another worker commits on the partitions of {worker.name}")
    since = worker.position()
    worker.resume()
    thawed_s = time.monotonic()
    stage.await_commit(worker, since)
    back_after_s = elapsed_s(thawed_s)
    return noted(stage, DemoFault("freeze", worker.name, where, back_after_s))


def elapsed_s(began_s: float) -> float:
    return round(time.monotonic() - began_s, 1)


def freeze_inside(stage: Stage, worker: ManagedProcess) -> str:
    """Freeze; when no transaction of it is open, thaw and try again. Return where it was caught."""
    for number in range(_TRIES):
        stage.await_commit(worker, worker.position())
        # Each try strikes at another moment of what follows the commit.
        time.sleep(number * _STEP_S)
        worker.pause()
        if is_inside(stage):
            return "inside a transaction"
        worker.resume()
    worker.pause()
    return "between two transactions"


def is_inside(stage: Stage) -> bool:
    """Return whether a transaction is open that makes no progress: that of a frozen process."""
    since_s = time.monotonic()
    open_ = _open(stage)
    # Other transactions end by themselves: what stays was frozen.
    while open_ and time.monotonic() - since_s < _STALLED_S:
        open_ &= _open(stage)
    return bool(open_)


def _open(stage: Stage) -> set[tuple[tuple[str, int], int]]:
    return {(where, ends[0]) for where, ends in undecided(stage.offsets, OUTPUTS).items()}


def freeze_uncommitted(stage: Stage) -> DemoFault:
    """Freeze the ordinary loop while outputs are in Kafka whose input is not committed."""
    loop = stage.ordinary
    for number in range(_TRIES):
        before = committed(stage.ordinary_offsets)
        stage.wait(lambda: committed(stage.ordinary_offsets) != before, "the ordinary loop commits")  # noqa: B023 - called at once
        time.sleep(number * _STEP_S)
        loop.pause()
        done = committed(stage.ordinary_offsets)
        if any(offset >= done[partition] for partition, offset in _last_sources(stage)):
            return DemoFault("kill", loop.name, "between produce and commit")
        loop.resume()
    loop.pause()
    return DemoFault("kill", loop.name, "between two records")


def _last_sources(stage: Stage) -> list[tuple[int, int]]:
    outputs = [(ORDINARY_PRICED, number) for number in range(PARTITIONS)]
    ends = stage.ordinary_offsets.last_stable(outputs)
    spans = {where: (end - 1, end) for where, end in ends.items() if end}
    found = read_ranges(stage.ordinary_settings, spans, silent, "")
    named = [coordinates(dict(one.record.headers).get(SOURCE)) for chunk in found for one in chunk]
    return [(source.partition, source.offset) for source in named if source is not None]

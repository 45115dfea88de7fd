"""What is done to the processes, and the proof that it struck them while they worked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.demo.child import DemoError
from hapax.demo.damage import DemoFault
from hapax.demo.moments import await_commit, freeze_inside, freeze_uncommitted
from hapax.demo.stage import ORDERS, SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.demo.child import Child
    from hapax.demo.stage import Stage


def kill_inside(stage: Stage, worker: Child) -> list[DemoFault]:
    """Kill a worker inside a transaction, and the ordinary loop between produce and commit.

    Both are frozen first, for as long as it takes to see that they exist.
    """
    other = freeze_uncommitted(stage)
    inside = freeze_inside(stage, worker)
    return _kill(stage, other, [DemoFault("kill", worker.name, _where(inside=inside))], [worker])


def kill(stage: Stage, *workers: Child) -> list[DemoFault]:
    """Kill workers, each right after a commit of its own, and the ordinary loop with them.

    All are started again at once. Returns when the workers have committed again.
    """
    other = freeze_uncommitted(stage)
    for worker in workers:
        await_commit(stage, worker, since=worker.position())
    faults = [DemoFault("kill", worker.name, "committing batch after batch") for worker in workers]
    return _kill(stage, other, faults, workers)


def _kill(
    stage: Stage, other: DemoFault, faults: list[DemoFault], workers: Sequence[Child]
) -> list[DemoFault]:
    for child in (*workers, stage.ordinary):
        stage.kill(child)
    killed_s = time.monotonic()
    lives = [worker.position() for worker in workers]
    for child in (*workers, stage.ordinary):
        stage.start(child)
    stage.struck += len(faults)
    for worker, fault, since in zip(workers, faults, lives, strict=True):
        await_commit(stage, worker, since)
        fault.back_after_s = round(time.monotonic() - killed_s, 1)
    return [*faults, other]


def freeze(stage: Stage, worker: Child) -> DemoFault:
    """Freeze a worker inside a transaction, past both timeouts, and thaw it again.

    Returns when another worker has gone on in its place and it has found its way back.
    """
    inside = freeze_inside(stage, worker)
    frozen_s = time.monotonic()
    stage.struck += 1
    before = stage.group.committed()
    partitions = _partitions(worker)
    if not partitions:
        raise DemoError(f"{worker.name} was frozen without partitions: its log has none assigned.")
    past_s = frozen_s + max(SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S) + 1.0

    def taken_over() -> bool:
        if time.monotonic() < past_s:
            return False
        now = stage.group.committed()
        return all(now[partition] > before[partition] for partition in partitions)

    stage.wait(taken_over, f"another worker commits on the partitions of {worker.name}")
    since = worker.position()
    worker.thaw()
    thawed_s = time.monotonic()
    await_commit(stage, worker, since)
    back_after_s = round(time.monotonic() - thawed_s, 1)
    return DemoFault("freeze", worker.name, _where(inside=inside), back_after_s)


def _where(*, inside: bool) -> str:
    return "inside a transaction" if inside else "between two transactions"


def _partitions(worker: Child) -> set[int]:
    """Return the partitions that are the worker's, as its log has it."""
    ours: set[str] = set()
    for line in worker.events():
        changed = line.get("partitions")
        names = set(changed) if isinstance(changed, list) else set()
        match line.get("event"):
            case "service_started":
                ours.clear()
            case "partitions_assigned":
                ours |= names
            case "partitions_revoked" | "partitions_lost":
                ours -= names
    return {int(name.removeprefix(f"{ORDERS}/")) for name in ours}

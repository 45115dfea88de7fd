"""What is done to the processes, and the proof that it struck them while they worked."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from service.demo.child import DemoError
from service.demo.judge import as_effect
from service.demo.ordinary import as_record
from service.demo.readings import lasts, open_transactions
from service.demo.stage import (
    ORDERS,
    ORDINARY_PRICED,
    PRICED,
    SESSION_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from service.demo.child import Child
    from service.demo.readings import Group
    from service.demo.stage import Stage

_TRIES, _STEP_S = 20, 0.004
_STALLED_S = 0.6


class Fault(msgspec.Struct):
    """One fault that really struck.

    kind          kill or freeze
    target        the process
    while_doing   what is known to have gone on at that moment
    back_after_s  until the process itself committed again; None for the ordinary loop
    """

    kind: str
    target: str
    while_doing: str
    back_after_s: float | None = None


def kill_inside(stage: Stage, worker: Child) -> list[Fault]:
    """Kill a worker inside a transaction, and the ordinary loop between produce and commit.

    Both are frozen first, for as long as it takes to see that they are there.
    """
    other = _freeze_uncommitted(stage)
    inside = _freeze_inside(stage, worker)
    return _kill(stage, other, [Fault("kill", worker.name, _where(inside=inside))], [worker])


def kill(stage: Stage, *workers: Child) -> list[Fault]:
    """Kill workers, each right after a commit of its own, and the ordinary loop with them.

    All are started again at once. Returns when the workers have committed again.
    """
    other = _freeze_uncommitted(stage)
    for worker in workers:
        _await_commit(stage, worker, since=worker.position())
    faults = [Fault("kill", worker.name, "committing batch after batch") for worker in workers]
    return _kill(stage, other, faults, workers)


def _kill(stage: Stage, other: Fault, faults: list[Fault], workers: Sequence[Child]) -> list[Fault]:
    for child in (*workers, stage.ordinary):
        stage.kill(child)
    killed_s = time.monotonic()
    lives = [worker.position() for worker in workers]
    for child in (*workers, stage.ordinary):
        stage.start(child)
    stage.struck += len(faults)
    for worker, fault, since in zip(workers, faults, lives, strict=True):
        _await_commit(stage, worker, since)
        fault.back_after_s = round(time.monotonic() - killed_s, 1)
    return [*faults, other]


def freeze(stage: Stage, worker: Child) -> Fault:
    """Freeze a worker inside a transaction, past both timeouts, and thaw it again.

    Returns when another worker has gone on in its place and it has found its way back.
    """
    inside = _freeze_inside(stage, worker)
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
    _await_commit(stage, worker, since)
    back_after_s = round(time.monotonic() - thawed_s, 1)
    return Fault("freeze", worker.name, _where(inside=inside), back_after_s)


def _where(*, inside: bool) -> str:
    return "inside a transaction" if inside else "between two transactions"


def _freeze_inside(stage: Stage, worker: Child) -> bool:
    """Freeze; when no transaction of it is open, thaw and try again. Say whether one is open."""
    servers = stage.sandbox.bootstrap_servers
    for number in range(_TRIES):
        _await_commit(stage, worker, since=worker.position())
        # Each try strikes at another moment of what follows the commit.
        time.sleep(number * _STEP_S)
        worker.freeze()
        since_s = time.monotonic()
        open_ = open_transactions(servers, PRICED)
        # The other worker's transactions end by themselves: what stays was frozen.
        while open_ and time.monotonic() - since_s < _STALLED_S:
            open_ &= open_transactions(servers, PRICED)
        if open_:
            return True
        worker.thaw()
    worker.freeze()
    return False


def _freeze_uncommitted(stage: Stage) -> Fault:
    """Freeze the ordinary loop while outputs stand in Kafka whose input is not committed."""
    servers, loop = stage.sandbox.bootstrap_servers, stage.ordinary
    for number in range(_TRIES):
        before = stage.ordinary_group.committed()
        stage.wait(partial(_has_moved, stage.ordinary_group, before), "the ordinary loop commits")
        time.sleep(number * _STEP_S)
        loop.freeze()
        sources = [as_effect(as_record(last)).source for last in lasts(servers, ORDINARY_PRICED)]
        committed = stage.ordinary_group.committed()
        if any(source and source.offset >= committed[source.partition] for source in sources):
            return Fault("kill", loop.name, "between produce and commit")
        loop.thaw()
    loop.freeze()
    return Fault("kill", loop.name, "between two records")


def _has_moved(group: Group, before: dict[int, int]) -> bool:
    return group.committed() != before


def _await_commit(stage: Stage, worker: Child, since: int) -> None:
    stage.wait(
        lambda: any(line.get("event") == "transaction_settled" for line in worker.events(since)),
        f"{worker.name} commits",
    )


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

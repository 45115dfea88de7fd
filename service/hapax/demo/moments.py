"""The right moment: a process is frozen to see what it was about, before it is killed there.

No process is killed at random. A frozen process keeps what it has open, so the broker can be
queried; when the moment is not the right one, the process continues as if nothing had happened.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from hapax.demo.child import DemoError
from hapax.demo.damage import DemoFault
from hapax.demo.judge import as_effect
from hapax.demo.ordinary import as_record
from hapax.demo.readings import lasts
from hapax.demo.stage import ORDINARY_PRICED

if TYPE_CHECKING:
    from hapax.demo.child import Child
    from hapax.demo.readings import GroupReadings
    from hapax.demo.stage import Stage

_TRIES, _STEP_S = 20, 0.004
_CATCHES, _CATCH_S = 60, 0.2
_STALLED_S = 0.6


class Freezable(Protocol):
    """What can be stopped in its tracks."""

    name: str

    def freeze(self) -> None:
        """Stop it."""

    def thaw(self) -> None:
        """Resume it."""


def freeze_inside(stage: Stage, worker: Child) -> bool:
    """Freeze; when no transaction of it is open, thaw and try again. Return whether one is open."""
    for number in range(_TRIES):
        await_commit(stage, worker, since=worker.position())
        # Each try strikes at another moment of what follows the commit.
        time.sleep(number * _STEP_S)
        worker.freeze()
        if _is_inside(stage):
            return True
        worker.thaw()
    worker.freeze()
    return False


def freeze_in_range(stage: Stage, target: Freezable) -> None:
    """Freeze a Python worker, or all of Spark, while it has a transaction of its range open.

    Its ranges are short, and logged only when they are over, so the broker says when one is open.
    Raises DemoError when the right moment does not come.
    """
    for _ in range(_CATCHES):
        stage.wait(lambda: stage.transactions.catch(_CATCH_S), "Spark opens a transaction")
        target.freeze()
        if _is_inside(stage):
            return
        target.thaw()
    raise DemoError(
        f"a transaction of {target.name} was open at none of {_CATCHES} moments: nothing was killed"
    )


def _is_inside(stage: Stage) -> bool:
    """Return whether a transaction is open that makes no progress: that of a frozen process."""
    since_s = time.monotonic()
    open_ = stage.transactions.open()
    # Other transactions end by themselves: what stays was frozen.
    while open_ and time.monotonic() - since_s < _STALLED_S:
        open_ &= stage.transactions.open()
    return bool(open_)


def freeze_uncommitted(stage: Stage) -> DemoFault:
    """Freeze the ordinary loop while outputs are in Kafka whose input is not committed."""
    servers, loop = stage.sandbox.bootstrap_servers, stage.ordinary
    for number in range(_TRIES):
        before = stage.ordinary_group.committed()
        stage.wait(partial(_has_moved, stage.ordinary_group, before), "the ordinary loop commits")
        time.sleep(number * _STEP_S)
        loop.freeze()
        sources = [as_effect(as_record(last)).source for last in lasts(servers, ORDINARY_PRICED)]
        committed = stage.ordinary_group.committed()
        if any(source and source.offset >= committed[source.partition] for source in sources):
            return DemoFault("kill", loop.name, "between produce and commit")
        loop.thaw()
    loop.freeze()
    return DemoFault("kill", loop.name, "between two records")


def await_commit(stage: Stage, worker: Child, since: int) -> None:
    """Wait for a commit that is logged after byte ``since`` of the worker's log."""
    stage.wait(lambda: worker.has_told("transaction_committed", since), f"{worker.name} commits")


def _has_moved(group: GroupReadings, before: dict[int, int]) -> bool:
    return group.committed() != before

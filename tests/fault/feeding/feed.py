"""Writes the events of a run, in a process of its own.

What is written: tests/fault/rules.py. Each event has the id ``RUN-NUMBER`` in header
``message-id``; header ``dup`` is 1 for the few that are written a second time. A key lives in one
partition. Some partitions' records come in transactions, and before some of these stands one that
is aborted, whose events have negative numbers. A transaction whose outcome is not known is never
repeated; the ledger says so.
"""

from pathlib import Path

from tests.fault.feeding.feed_state import BOUND, RATE, SAVED, STOP, WRITTEN, Child
from tests.fault.feeding.ledger import Ledger
from tests.kit.waiting import await_

UNLIMITED = 10**9
"""A rate that nothing reaches."""
STOP_TIMEOUT_S = 300.0


class Feeder(Child):
    """One feeder; ``stop`` returns its ledger.

    rate        records a second, transactions that are aborted not counted; 0 is a pause
    partitions  of ``topic``
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        folder: Path,
        *,
        run: str,
        partitions: int,
        rate: int,
        seed: int,
    ) -> None:
        super().__init__(
            "tests.fault.feeding.feed_process",
            "feed",
            folder,
            bootstrap=bootstrap,
            topic=topic,
            run=run,
            partitions=partitions,
            seed=seed,
        )
        self._cells[RATE] = rate

    def pace(self, rate: int) -> None:
        """Write so many records a second from now on; 0 is a pause, UNLIMITED means all it can."""
        self._cells[SAVED] = 0
        self._cells[RATE] = rate

    @property
    def written(self) -> int:
        """Records acknowledged or committed so far, second copies among them."""
        return int(self._cells[WRITTEN] + self._cells[BOUND])

    def pause(self) -> Ledger:
        """Write nothing more until ``pace``; return what is known once nothing is under way."""
        self.pace(0)
        await_(lambda: self._cells[SAVED] or not self.running, STOP_TIMEOUT_S)
        assert self.running, self.text()
        return Ledger.load(self._folder / "ledger.npz")

    def stop(self) -> Ledger:
        """Let it finish what it has begun, and return what it knows."""
        self._cells[STOP] = 1
        self.finish(STOP_TIMEOUT_S)
        return Ledger.load(self._folder / "ledger.npz")

"""What the feeder knows of each event that it wrote: sent, acknowledged, committed, or in doubt."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COPIES = 2
"""An event is written once, or a second time with the same id."""


class Fate(IntEnum):
    """What became of one copy of an event: acknowledgement, and its transaction.

    NEVER      was not sent
    OK         acknowledged, no transaction
    INFO       sent without transaction; whether it is in the log is not known
    COMMITTED  acknowledged, and its transaction is committed
    ABORTED    its transaction was aborted for certain: a failure
    UNKNOWN    how its transaction ended is not known
    """

    NEVER = 0
    OK = 1
    INFO = 2
    COMMITTED = 3
    ABORTED = 4
    UNKNOWN = 5


@dataclass(frozen=True)
class Ledger:
    """All fates of a run.

    run     first part of each event's id: ``RUN-NUMBER``
    fates   shape (numbers, 2), by number and copy
    hidden  records with negative numbers that were sent in transactions that ended aborted
    """

    run: str
    fates: NDArray[np.uint8]
    hidden: int = 0

    @property
    def acked(self) -> NDArray[np.bool_]:
        """Return by number and copy whether it must be in the log."""
        return np.isin(self.fates, (Fate.OK, Fate.COMMITTED))

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Return by number and copy whether no reader may ever see it."""
        return np.isin(self.fates, (Fate.ABORTED,))

    def save(self, path: Path) -> None:
        np.savez(path, fates=self.fates, run=np.array(self.run), hidden=np.array(self.hidden))

    @classmethod
    def load(cls, path: Path) -> "Ledger":
        with np.load(path) as file:
            return cls(str(file["run"]), file["fates"], int(file["hidden"]))

"""What a run left behind, as tables: all that the checker judges, and nothing else."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.fault.checking.reading import Ends
from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.ledger import Ledger
from tests.fault.watching.live import LiveHistory

DEAD_WAY = -1
"""In place of the number of an output topic: dead letters."""
_OFFSET_BITS = 44


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One partition of outputs or dead letters.

    way   which output topic: rules.MAIN, rules.SECOND or DEAD_WAY
    """

    topic: str
    partition: int
    way: int
    ends: Ends


@dataclass(kw_only=True)
class History:
    """Everything of one run. Tables are sorted by lane and offset.

    source      the input topic
    inputs      INPUT rows that a read_committed reader sees
    aborted     OFFSET rows of input records that it does not see
    input_ends  by input partition
    committed   by input partition the group's offset, None where it has none
    effects     EFFECT rows; ``lane`` is a place in ``lanes``
    whos        processes that wrote, by their number in ``effects``
    hidden      records of aborted transactions in the lanes
    open        transactional ids whose transaction is open, with what is known of them
    claims      whether second copies of an event are to be dropped
    headers     whether effects carry exactly the headers that the service promises
    """

    source: str
    inputs: Table
    aborted: Table
    input_ends: list[Ends]
    committed: list[int | None]
    lanes: list[Lane]
    effects: Table
    ledger: Ledger
    whos: list[str] = field(default_factory=lambda: [""])
    hidden: int = 0
    open: list[str] = field(default_factory=list)
    live: LiveHistory | None = None
    claims: bool = True
    headers: bool = True

    @property
    def next_offsets(self) -> NDArray[np.int64]:
        """Return by input partition below which offset records count as done."""
        return np.array([offset or 0 for offset in self.committed], np.int64)


def place_keys(lane: NDArray[np.generic], offset: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return one number for lane and offset, which sorts as they do; below 0 for no lane."""
    return (lane.astype(np.int64) << _OFFSET_BITS) | np.maximum(offset.astype(np.int64), 0)


def found_in(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in sorted ``keys`` each of ``wanted`` stands, -1 where it does not."""
    if not keys.size:
        return np.full(wanted.shape, -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, at, -1)

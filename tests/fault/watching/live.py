"""Reads outputs while they are made, as a reader of the pipeline would, in a process of its own.

What it saw is compared with what stands there at the end. It also tells when outputs of each input
partition became visible, which is how times to recover are measured.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.fault.checking.reading_columns import Table
from tests.fault.feeding.feed_state import CELLS, STOP, WRITTEN, Child

DONE = WRITTEN
STOP_TIMEOUT_S = 120.0

SEEN = np.dtype([("offset", "i8"), ("hash", "u4"), ("lane", "i2")])
"""One record that was seen: offset, CRC of the value, place of the partition in ``lanes``."""
MOMENT = np.dtype([("wall_ms", "i8"), ("t_ms", "i8"), ("place", "i4")])
"""When something newer of an input partition became visible; ``t_ms``: when that was written."""


@dataclass(frozen=True)
class LiveHistory:
    """What a live reader saw.

    lanes         topics and partitions, by place
    seen          SEEN rows, in the order in which they were handed out
    moments       MOMENT rows, in order
    complete      whether it had reached the end of everything when it was stopped
    errors        what the client reported, a few of them
    """

    lanes: list[tuple[str, int]]
    seen: Table
    moments: Table
    complete: bool
    partitions: int
    errors: list[str] = field(default_factory=list)

    def first_seen_s(self, since_ms: int) -> list[float | None]:
        """Return for each input partition when an output became visible whose input was written
        at or after ``since_ms``: wall clock, seconds; None where that never was.
        """
        found: list[float | None] = []
        for place in range(self.partitions):
            mine = self.moments[self.moments["place"] == place]
            later = mine["wall_ms"][(mine["t_ms"] >= since_ms) & (mine["wall_ms"] >= since_ms)]
            found.append(float(later[0]) / 1000 if later.size else None)
        return found

    def save(self, folder: Path) -> None:
        np.savez(folder / "live.npz", seen=self.seen, moments=self.moments)
        rest = {name: getattr(self, name) for name in ("lanes", "complete", "partitions", "errors")}
        (folder / "live.json").write_text(json.dumps(rest))

    @classmethod
    def load(cls, folder: Path) -> "LiveHistory":
        rest = json.loads((folder / "live.json").read_text())
        rest["lanes"] = [(topic, partition) for topic, partition in rest["lanes"]]
        with np.load(folder / "live.npz") as file:
            return cls(**rest, **{name: file[name] for name in file.files})


class LiveReader(Child):
    """One reader; ``stop`` returns its history.

    topics      of outputs and dead letters
    source      the input topic
    partitions  of the input topic
    """

    def __init__(
        self, bootstrap: str, topics: Sequence[str], folder: Path, *, source: str, partitions: int
    ) -> None:
        super().__init__(
            "tests.fault.watching.live_process",
            "live",
            folder,
            more=partitions,
            bootstrap=bootstrap,
            topics=list(topics),
            source=source,
            partitions=partitions,
        )

    @property
    def done(self) -> int:
        """Effects seen so far: outputs and dead letters."""
        return int(self._cells[DONE])

    def fed_seen_ms(self) -> list[int]:
        """Return for each input partition when the newest input was written of which an output
        is visible: wall clock, milliseconds; 0 where there is none.
        """
        return [int(cell) for cell in self._cells[CELLS:]]

    def stop(self) -> LiveHistory:
        """Let it read up to the ends as they are now, and return what it saw."""
        self._cells[STOP] = 1
        self.finish(STOP_TIMEOUT_S)
        return LiveHistory.load(self._folder)

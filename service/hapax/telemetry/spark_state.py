"""What the driver of Spark knows of executors and lanes, for the status page.

Each is replaced as a whole by the thread that writes it; any other thread may read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import TopicPartition


class Executor(msgspec.Struct, frozen=True):
    """One executor that Spark says is active; in a local master the driver is one.

    name                      Spark's id of it
    running, done, failed     tasks
    memory_bytes, memory_max_bytes  of storage
    """

    name: str
    address: str
    cores: int
    running: int
    done: int
    failed: int
    memory_bytes: int
    memory_max_bytes: int


class RangeInFlight(msgspec.Struct, frozen=True):
    """A range that a task works on. ``since_s``: Unix time; ``ends``: offsets after the last."""

    since_s: float
    attempt: int
    ends: Mapping[TopicPartition, int]


class RangeDone(msgspec.Struct, frozen=True):
    """The last range of a lane. ``at_s``: Unix time; ``outcome``: ``lost`` without a report."""

    at_s: float
    outcome: str
    records: int = 0
    transactions: int = 0
    open_s: float = 0.0
    work_s: float = 0.0
    round_s: float = 0.0


class LaneState(msgspec.Struct, frozen=True):
    """A lane: the next offset of each partition, None: nothing is committed; and its ranges."""

    positions: Mapping[TopicPartition, int | None]
    running: RangeInFlight | None = None
    last: RangeDone | None = None

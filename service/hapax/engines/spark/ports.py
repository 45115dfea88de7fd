"""What the driver's loop knows of the world, beside the core's ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from hapax.core.ports import Source
from hapax.engines.idle_offsets import Bounds  # noqa: TC001 - msgspec reads Pacing's types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.spark.plan import RangePlan, RangeReport


class DriverSource(Source, Protocol):
    """The driver's membership: a source that can tell ends without reading."""

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Progress:
        """Return the last stable offsets, of those partitions for which they are known."""

    def begin(self, partitions: Iterable[TopicPartition]) -> Progress | None:
        """Return what was committed as the beginning of partitions without an offset.

        None: another member is about to; ask again soon.
        """

    def member(self) -> bytes:
        """Return the live group metadata; raise BatchAbortedError when it is no live member."""

    @property
    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster; None: it is not known."""


class Jobs(Protocol):
    """What runs plans; see SparkJobs."""

    lanes: int

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        """Start a task."""

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run a function of the driver beside the tasks."""

    def cancel(self, lane: int) -> None:
        """End the running task of a lane; its future raises."""

    def check(self) -> None:
        """Raise StopError when no task can ever run again."""


class Fences(Protocol):
    """Registers producers, so that earlier ones of the same id can commit no more."""

    def lane(self, number: int) -> None:
        """Fence a lane. Raises ProducerDeadError when brokers do not answer."""

    def predecessor(self) -> None:
        """Fence a worker of our own name, which may have been here before us."""


class Pacing(msgspec.Struct):
    """How long a range takes, and when a bounded run ends.

    ``sticky``: a partition never changes its lane (KIP-848 groups; see Homes).
    ``task_max_s``: a task that has not reported after so long is cancelled and counts as lost.
    """

    duration_s: float
    task_max_s: float
    attempts_max: int
    bounds: Bounds
    sticky: bool = False

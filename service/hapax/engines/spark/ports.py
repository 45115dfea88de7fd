"""What the driver's loop and a task know of the world, in addition to the core's ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from hapax.core.ports import Source, Transaction
from hapax.engines.idle_offsets import Bounds  # noqa: TC001 - msgspec reads Pacing's types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from contextlib import ExitStack

    from hapax.core.crash_markers import Isolation
    from hapax.core.ports import Clock, Core, Interrupt
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.batch_runner import Sizing
    from hapax.engines.spark.plan import RangePlan, RangeReport
    from hapax.engines.watchdog import Watchdog


class DriverSource(Source, Protocol):
    """The driver's membership: a source that knows ends without reading."""

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Progress:
        """Return the last stable offsets, of those partitions for which they are known."""

    def begin(self, partitions: Iterable[TopicPartition]) -> Progress | None:
        """Return committed beginnings; None: another member is about to, ask again soon."""

    def member(self) -> bytes:
        """Return the live group metadata; raise BatchAbortedError when it is no live member."""

    @property
    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster; None: it is not known."""


class Jobs(Protocol):
    """What runs plans; see SparkJobs."""

    @property
    def lanes(self) -> int:
        """How many tasks may work at once."""

    @property
    def slots(self) -> int:
        """How many tasks Spark can run at once, as far as it says."""

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        """Start a task."""

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run a function of the driver alongside the tasks."""

    def cancel(self, lane: int) -> None:
        """End the running task of a lane; its future raises."""

    def recall(self, *, wanted: bool) -> None:
        """Ask the running tasks to end with the batch in work, or no longer.

        It reaches those that share a file system with the driver; others end when their time is
        over.
        """

    def check(self) -> None:
        """Raise StopError when no task can ever run again."""


class Fences(Protocol):
    """Registers producers, so that earlier ones of the same id can commit no more."""

    def lane(self, number: int) -> None:
        """Fence a lane. Raises ProducerDeadError when brokers do not answer."""

    def predecessor(self) -> None:
        """Fence a worker of the same name, which may have run here before."""


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


class RangeSource(Source, Protocol):
    """Records of the plan's partitions."""

    def place(self) -> None:
        """Begin to read at the offsets that the driver knows of."""

    def confirm(self) -> Progress:
        """Return what the group has committed, once no earlier attempt can commit any more."""

    def positions(self) -> Progress:
        """Return the next offsets to read."""


class TaskTransaction(Transaction, Protocol):
    """The producer of a lane."""

    def diagnose(self) -> None:
        """Find out which message brokers refuse; before ``open``."""

    def close(self) -> None:
        """Drop the producer."""


class TaskParts(Protocol):
    """What a task is made of, built when it asks.

    report                 what parts find out goes there
    records_max            most records of one transaction
    transaction_timeout_s  a transaction that was open for longer explains a fence
    """

    report: RangeReport
    clock: Clock
    sizing: Sizing
    interrupt: Interrupt
    watchdog: Watchdog
    records_max: int
    transaction_timeout_s: float

    def clients(self) -> tuple[RangeSource, TaskTransaction]:
        """Return both sides of the lane; neither has asked a broker yet."""

    def isolation(self) -> Isolation:
        """Return the transform."""

    def core(
        self, source: RangeSource, transaction: TaskTransaction, isolation: Isolation, on: ExitStack
    ) -> Core:
        """Return the core; what it has opened is closed when ``on`` unwinds."""

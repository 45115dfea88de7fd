"""What the driver asks of a task, and what the task answers.

A plan is one row of one Spark job, so it is run whole or not at all: nothing upstream of it can be
cut short without its task failing (Spark ends the iterators of a task cleanly when something before
them fails half-way, so rows would be missing without a word).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hapax.core import errors
from hapax.core.offset_commit import Marks  # noqa: TC001 - as above
from hapax.core.ports import Source, Stuck, Transaction
from hapax.core.records import Coordinates, Progress, TopicPartition  # noqa: TC001 - as above
from hapax.core.results import Failure  # noqa: TC001 - as above
from hapax.engines.idle_offsets import Bounds  # noqa: TC001 - msgspec reads Pacing's types
from hapax.processing.batch_result import BatchResult  # noqa: TC001 - msgspec reads the types

if TYPE_CHECKING:
    from collections.abc import Iterable

RecordedEvents = list[tuple[str, tuple[Any, ...]]]
"""Events of a task: their names in ``Events``, with what they say."""


class RangePlan(msgspec.Struct, kw_only=True):
    """One range of each partition of one lane, for one task.

    lane          number of the lane; with the app and the instance it is the transactional id
    member        group metadata of the driver, with which the broker refuses what was lost since
    starts        per partition the committed offset as the driver knows it; None: there is none.
                  A task that stays reads those without an end as well
    cluster_id    of the cluster that the driver is a member in; None: it is not known
    ends          per partition where the range ends: the last stable offset at planning
    duration_s    the task begins no batch later than this
    stay_s        how long it waits for more after the last record; 0: it ends at its ends
    recall        path of a file that exists while the driver asks its tasks to end; None: driver
                  and tasks share no file system
    pace          records of its first transaction
    records_max   most records of the range (bounded runs)
    batch_max     most records of one transaction, while a culprit is looked for
    attempt       of these records, from 1
    rejected      records that the broker refused in earlier attempts: they become dead letters
    failed        records and failures of the recent past, for the dead-letter rate
    trusted       partitions whose records are neither marked nor suspected (task.py)
    marks         in metadata of offsets although their writer lives
    """

    lane: int
    member: bytes
    starts: dict[TopicPartition, int | None]
    ends: Progress
    cluster_id: str | None = None
    duration_s: float
    stay_s: float = 0.0
    recall: str | None = None
    pace: int
    records_max: int | None = None
    batch_max: int | None = None
    attempt: int = 1
    rejected: dict[Coordinates, Failure] = {}
    failed: tuple[int, int] = (0, 0)
    trusted: frozenset[TopicPartition] = frozenset()
    marks: Marks = {}


class RangeOutcome(StrEnum):
    """How a range ended, in a word; ``RangeReport.settled`` is committed in each case."""

    DONE = "done"
    ABORTED = "aborted"
    FENCED = "fenced"
    DEAD = "dead"
    CLAIMS = "claims"
    SCHEMAS = "schemas"
    STOP = "stop"


class RangeReport(msgspec.Struct, kw_only=True):
    """What became of a plan.

    error       what it ended in; None: it is done
    explained   the transaction of a fenced producer was open for longer than its timeout
    settled     one for each committed transaction with records
    ended       per partition the ends that were committed after the last records
    open_s      seconds until the producer was registered and the positions were known
    work_s      seconds in all
    flowing     its time was over while records kept coming: the next range may begin at once
    records     of the batch that was aborted
    suspect     its first record, to blame when it is alone
    events      of the task, which the driver logs and counts
    trusted     partitions of which this range proved that their records kill no process
    marks       that this range left in metadata of offsets
    stuck       partitions that are held up by a set that cannot be decoded
    counted     by business code (hapax/context.py)
    """

    lane: int
    error: errors.HapaxError | None = None
    explained: bool = False
    settled: list[BatchResult] = []
    ended: Progress = {}
    open_s: float = 0.0
    work_s: float = 0.0
    flowing: bool = False
    pace: int = 0
    records: int = 0
    suspect: Coordinates | None = None
    events: RecordedEvents = []
    trusted: list[TopicPartition] = []
    marks: Marks = {}
    stuck: dict[TopicPartition, Stuck] = {}
    counted: list[Any] = []

    @property
    def outcome(self) -> RangeOutcome:
        match self.error:
            case None:
                return RangeOutcome.DONE
            case errors.ClaimsUnavailableError():
                return RangeOutcome.CLAIMS
            case errors.SchemasUnavailableError():
                return RangeOutcome.SCHEMAS
            case errors.ProducerDeadError(fenced=fenced):
                return RangeOutcome.FENCED if fenced else RangeOutcome.DEAD
            case errors.StopError():
                return RangeOutcome.STOP
        return RangeOutcome.ABORTED

    @property
    def progress(self) -> Progress:
        """Per partition the next offset, as far as this range committed it."""
        progress: Progress = {}
        for result in self.settled:
            progress |= result.progress
        return progress | self.ended


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

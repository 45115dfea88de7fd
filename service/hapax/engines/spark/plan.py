"""What the driver asks of a task, and what the task answers.

A plan is one row of one Spark job, so it is run whole or not at all: nothing upstream of it can be
cut short without its task failing (Spark ends the iterators of a task cleanly when something before
them fails half-way, so rows would be missing without a word).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hapax.core.batch_result import BatchResult  # noqa: TC001 - as above
from hapax.core.crash_markers import Marks  # noqa: TC001 - as above
from hapax.core.ports import Stuck  # noqa: TC001 - msgspec reads the types
from hapax.core.records import (  # noqa: TC001 - msgspec reads the types
    Coordinates,
    Progress,
    TopicPartition,
)
from hapax.core.transform import Failure  # noqa: TC001 - as above

Line = tuple[str, int, str, str]
"""One line of a client's log: client, level as in Python's logging, facility, text."""


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
    """How a range ended. Whatever is in ``Report.settled`` is committed in every case."""

    DONE = "done"
    ABORTED = "aborted"
    FENCED = "fenced"
    DEAD = "dead"
    CLAIMS = "claims"
    SCHEMAS = "schemas"
    STOP = "stop"


class RangeReport(msgspec.Struct, kw_only=True):
    """What became of a plan.

    settled     one for each committed transaction with records
    ended       per partition the ends that were committed after the last records
    open_s      seconds until the producer was registered and the positions were known
    work_s      seconds in all
    flowing     its time was over while records kept coming: the next range may begin at once
    records     of the batch that was aborted
    suspect     its first record, to blame when it is alone
    halved      the transaction took too much of its time: ``pace`` is at most half of its records
    content     the batch's content is the likely reason
    culprits    the records that are surely to blame
    exit_code   of a STOP
    doubts      what made a request go out twice; a new producer has fenced it off
    emptied     how often the claim store was found without its claims
    lines       of the task's clients, warnings and worse
    trusted     partitions of which this range proved that their records kill no process
    marks       that this range left in metadata of offsets
    stuck       partitions that are held up by a set that cannot be decoded
    suspected   partitions at whose offset processes had died: first offset, end, deaths
    killers     records that killed or hung a process of their own: how, and how many by then
    isolation_failures  why there was no such process
    executor     name of the machine
    record_path  ``native`` or ``python``, and why; "" where the task came to no clients
    routes_lost, native_left  as in core/ports.py, Changes
    """

    lane: int
    outcome: RangeOutcome = RangeOutcome.DONE
    reason: str = ""
    settled: list[BatchResult] = []
    ended: Progress = {}
    open_s: float = 0.0
    work_s: float = 0.0
    flowing: bool = False
    pace: int = 0
    records: int = 0
    suspect: Coordinates | None = None
    halved: bool = False
    content: bool = False
    explained: bool = False
    culprits: dict[Coordinates, Failure] = {}
    exit_code: int = 0
    doubts: list[str] = []
    emptied: int = 0
    repeated: dict[TopicPartition, int] = {}
    lines: list[Line] = []
    trusted: list[TopicPartition] = []
    marks: Marks = {}
    stuck: dict[TopicPartition, Stuck] = {}
    suspected: list[tuple[TopicPartition, int, int, int]] = []
    killers: list[tuple[Coordinates, str, int]] = []
    isolation_failures: list[str] = []
    executor: str = ""
    record_path: str = ""
    routes_lost: list[TopicPartition] = []
    native_left: str = ""

    @property
    def progress(self) -> Progress:
        """Per partition the next offset, as far as this range committed it."""
        progress: Progress = {}
        for result in self.settled:
            progress |= result.progress
        return progress | self.ended

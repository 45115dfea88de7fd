"""A micro-batch in parts: the manifest that shares its parcels out, and the tasks that publish.

cluster/micro_batches.py says why a repetition publishes the same rows. Spark calls the sink's
``commit`` in a Python process of the JVM's. Only the process that opened the session can submit
jobs: it keeps a desk there, a socket in a folder of its user with a key, and the sink that is
registered with the session names it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types
from pyspark.errors import PySparkException

from hapax.cluster.micro_batches import WHAT_TO_DO, FixedBatch, PublishedBatch
from hapax.core.errors import PositionLostError, StopError
from hapax.engines.spark.dataframe.rows import Writing
from hapax.engines.spark.dataframe.staging import Parcel, Place, Spool, StagedRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from pyspark import SparkContext

    from hapax.cluster.micro_batches import MicroBatch
    from hapax.cluster.topic_rules import RowNeeds
    from hapax.core.records import Message
    from hapax.engines.spark.dataframe.checkpoint import InputLookup

    Chunks = Callable[[], Iterable[Sequence[Message]]]

_CHECKSUM_CHARS = 32
_KEY_BYTES = 32
_REASON_CHARS_MAX = 600
UNREACHABLE = (
    "the process that opened the Spark session cannot be asked to publish: {}. What is fixed is"
    " published at the next start; HAPAX_SPARK__PUBLISH=together (option publish) needs no such"
    " process"
)


class Share(msgspec.Struct, frozen=True):
    """Rows of one task as a part of the micro-batch; ``first``: the number of its first row."""

    first: int
    parcel: Parcel


class Manifest(msgspec.Struct, frozen=True):
    """Which rows a micro-batch is, and which lane publishes which, in this order."""

    query: str
    number: int
    lanes: tuple[tuple[Share, ...], ...]

    @classmethod
    def of(cls, batch: MicroBatch, parcels: Iterable[Parcel], lanes: int) -> Manifest:
        """Share the parcels out to at most so many lanes, each next one to the least loaded."""
        shares, first = [], 0
        for parcel in parcels:
            if parcel.rows:
                shares.append(Share(first, parcel))
            first += parcel.rows
        loads = [0] * min(lanes, len(shares))
        shared: list[list[Share]] = [[] for _ in loads]
        for share in sorted(shares, key=lambda share: -share.parcel.size):
            lane = loads.index(min(loads))
            loads[lane] += share.parcel.size
            shared[lane].append(share)
        return cls(batch.query, batch.number, tuple(tuple(lane) for lane in shared))

    def keep(self, spool: Spool, inputs: str) -> FixedBatch:
        """Write it; return what the marker says of it."""
        content = msgspec.msgpack.encode(self)
        name = spool.keep(self.number, content)
        return FixedBatch(name, _checksum(content), len(self.lanes), inputs)

    @classmethod
    def load(cls, spool: Spool, fixed: FixedBatch) -> Manifest:
        """Read it back; raise PositionLostError when it is gone or damaged."""
        try:
            content = spool.kept(fixed.manifest)
        except StagedRowsError as error:
            raise _lost(error.what) from error
        if _checksum(content) != fixed.checksum:
            raise _lost(f"{fixed.manifest} in the spool does not hold what was written")
        return msgspec.msgpack.decode(content, type=cls)


class LanePlan(msgspec.Struct, frozen=True):
    """What one task is to publish, as it travels to an executor."""

    lane: int
    manifest: str
    shares: tuple[Share, ...]
    batch: MicroBatch
    app: str
    topic: str
    inputs: frozenset[str]
    spool: str

    def parcels(self) -> list[Callable[[], Iterable[list[Message]]]]:
        spool = Spool(Place(self.spool), 0)

        def messages(share: Share) -> Iterable[list[Message]]:
            writing = Writing(self.batch, self.app, self.topic, self.inputs, share.first)
            return map(writing.messages, spool.rows(share.parcel))

        return [partial(messages, share) for share in self.shares]


class LaneReport(msgspec.Struct, frozen=True):
    """What one task has published: parcels of its lane, and records of this call by topic.

    ``problem``: why it published no more. ``lost``: no repetition can help.
    """

    lane: int
    done: int
    parcels: int
    records: dict[str, int]
    attempts: int
    problem: str = ""
    lost: bool = False


def check_reports(batch: MicroBatch, fixed: FixedBatch, reports: Sequence[LaneReport]) -> None:
    """Raise PositionLostError when no repetition can help, StopError when lanes are unfinished."""
    problems = [report for report in reports if report.problem]
    if len(reports) == fixed.lanes and not problems:
        return
    said = "; ".join(f"lane {report.lane}: {report.problem}" for report in problems)
    reached = ", ".join(
        f"{report.done} of {report.parcels} parcels of lane {report.lane}" for report in reports
    )
    text = (
        f"micro-batch {batch.number} of query {batch.query} is published in part ({reached}), and"
        f" its rows are fixed in {fixed.manifest}. {said or 'Reports of lanes are missing'}."
    )
    if any(report.lost for report in problems):
        raise PositionLostError(f"{text} {WHAT_TO_DO}")
    raise StopError(
        f"{text} The next start publishes the rest. A row that can never be sent is passed with"
        f' hapax.spark.set_marker(query="{batch.query}", number={batch.number}), which takes the'
        " micro-batch again as the pipeline is then and doubles what is published of it; with"
        f" number={batch.number + 1} the rest is given up"
    )


def _lost(what: str) -> PositionLostError:
    return PositionLostError(
        f"{what}: the rows of the micro-batch were fixed there, and part of them may be published."
        f" Bring the file back and start again; {WHAT_TO_DO}"
    )


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHECKSUM_CHARS]


class DeskAddress(NamedTuple):
    """Where a desk is, and the key that it asks for."""

    path: str
    key: bytes

    def lanes(self) -> int:
        return max(1, int(self._asked("lanes")))

    def run(
        self, group: str, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]
    ) -> list[Any]:
        """Run a task for each item; a job of the group that still runs is cancelled first."""
        return list(self._asked("run", group, function, items))

    def _asked(self, *request: object) -> Any:
        try:
            with Client(self.path, "AF_UNIX", authkey=self.key) as connection:
                connection.send(request)
                done, answer = connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            raise StopError(UNREACHABLE.format(f"{type(error).__name__} {error}")) from error
        if not done:
            raise StopError(str(answer))
        return answer


class JobDesk:
    """Answers requests from threads of its own until it is closed."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._folder = tempfile.mkdtemp(prefix="hapax-desk-")
        try:
            path, key = f"{self._folder}/desk", secrets.token_bytes(_KEY_BYTES)
            self.address = DeskAddress(path, key)
            self._listener = Listener(path, "AF_UNIX", backlog=8, authkey=key)
        except OSError:  # a path that is too long for a socket
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._owner = os.getpid()
        self._open = True
        threading.Thread(target=self._serve, name="desk", daemon=True).start()

    def close(self) -> None:
        """Take no more requests. A job that runs is Spark's to end."""
        if os.getpid() == self._owner:  # and not in a process that was forked off
            self._open = False
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                continue
            given = (connection,)
            threading.Thread(target=self._answer, args=given, name="desk-job", daemon=True).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(OSError, EOFError):  # the client may be gone
            kind, *request = connection.recv()
            try:
                lanes = kind == "lanes"
                answer = self._context.defaultParallelism if lanes else self._run(*request)
            except (PySparkException, Py4JError, OSError) as error:
                connection.send((False, _failed(error)))
            else:
                connection.send((True, answer))

    def _run(
        self, group: str, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]
    ) -> list[Any]:
        context = self._context
        context.cancelJobGroup(group)
        context.setJobGroup(group, "a micro-batch in parts", interruptOnCancel=False)
        return context.parallelize(items, len(items)).mapPartitions(function).collect()


def _failed(error: Exception) -> str:
    text = " ".join(str(error).split())[:_REASON_CHARS_MAX]
    return (
        "Spark's job that publishes the micro-batch in parts failed; what is not published follows"
        f" at the next start: {type(error).__name__}: {text}"
    )


# -- How rows become visible: together, or in parts -----------------------------------------------


STAGED_AGAIN = (
    "Nothing of the micro-batch was published; start again, and its tasks write their rows again."
    " If this happens again, check the storage of the spool (option spoolLocation)"
)


class MicroBatchPublisher(Protocol):
    """What publishes; see ``hapax.kafka.produce.micro_batch``."""

    def publish(self, batch: MicroBatch, chunks: Chunks) -> PublishedBatch | FixedBatch:
        """Make the micro-batch visible as a whole, unless it is, or rows of it are fixed."""

    def fix(self, batch: MicroBatch, fixed: FixedBatch, chunks: Chunks) -> FixedBatch | None:
        """Choose these rows, unless some are; return which hold, None when it is published."""

    def finish(self, batch: MicroBatch, fixed: FixedBatch) -> None:
        """Say that all lanes have published these rows."""


class Publishing(NamedTuple):
    """What a micro-batch is published with.

    publisher  of the whole
    app        whose micro-batch it is
    topic      of rows that name none
    inputs     topics that no row may name
    run        publishes lanes: side by side, or one after the other
    lanes      how many side by side; 0: together
    lookup     asks which logs the input has; None: not compared
    problems   says what topics would refuse of rows
    """

    publisher: MicroBatchPublisher
    app: str
    topic: str
    inputs: frozenset[str]
    run: Callable[[Sequence[LanePlan]], list[LaneReport]]
    lanes: int = 0
    lookup: InputLookup | None = None
    problems: Callable[[Mapping[str, RowNeeds]], list[str]] = lambda _needs: []


class Publication(msgspec.Struct):
    """The publication of one micro-batch. ``needs``: what the rows ask of their topics."""

    publishing: Publishing
    batch: MicroBatch
    spool: Spool
    parcels: Sequence[Parcel]
    needs: Mapping[str, RowNeeds] = {}

    def publish(self) -> PublishedBatch:
        try:
            return self._shared_out() if self._large else self._together()
        except StagedRowsError as error:
            raise StopError(f"{error.what}. {STAGED_AGAIN}") from error

    @property
    def _large(self) -> bool:
        size = sum(parcel.size for parcel in self.parcels)
        several = sum(bool(parcel.rows) for parcel in self.parcels) > 1
        return self.publishing.lanes > 1 and several and size > self.spool.inline_bytes_max

    @property
    def _of(self) -> tuple[MicroBatch, str, str, frozenset[str]]:
        publishing = self.publishing
        return self.batch, publishing.app, publishing.topic, publishing.inputs

    def _together(self) -> PublishedBatch:
        try:
            done = self.publishing.publisher.publish(self.batch, self._chunks)
        except StopError as error:  # the client names no topic of a row that it refuses
            named = type(error) is not StopError or any(topic in str(error) for topic in self.needs)
            if named or not (problems := self.publishing.problems(self.needs)):
                raise
            raise StopError(f"{error}: {'; '.join(problems)}") from None
        if not isinstance(done, FixedBatch):
            return done
        self.spool.remove(self.parcels)  # others are published in their place
        return self._finished(done, Manifest.load(self.spool, done))

    def _shared_out(self) -> PublishedBatch:
        batch, spool = self.batch, self.spool
        if problems := self.publishing.problems(self.needs):
            raise StopError(
                f"micro-batch {batch.number}: {'; '.join(problems)}. Nothing of it was published or"
                " fixed: correct what the pipeline writes, or the topic, and start again"
            )
        manifest = Manifest.of(batch, self.parcels, self.publishing.lanes)
        fixed = manifest.keep(spool, batch.inputs)
        holding = self.publishing.publisher.fix(batch, fixed, self._chunks)
        if holding is None:
            return PublishedBatch({}, repeated=True, attempts=1)
        if holding != fixed:
            spool.remove(self.parcels)
            manifest = Manifest.load(spool, holding)
        return self._finished(holding, manifest)

    def _finished(self, fixed: FixedBatch, manifest: Manifest) -> PublishedBatch:
        publishing = self.publishing
        plans = [
            LanePlan(lane, fixed.manifest, shares, *self._of, self.spool.address)
            for lane, shares in enumerate(manifest.lanes)
        ]
        reports = publishing.run(plans)
        check_reports(self.batch, fixed, reports)
        publishing.publisher.finish(self.batch, fixed)
        records = Counter[str]()
        for report in reports:
            records.update(report.records)
        attempts = max(report.attempts for report in reports)
        return PublishedBatch(dict(records), repeated=not records, attempts=attempts)

    def _chunks(self) -> Iterator[list[Message]]:
        writing = Writing(*self._of)
        for parcel in self.parcels:
            yield from map(writing.messages, self.spool.rows(parcel))

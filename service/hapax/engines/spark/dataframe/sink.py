"""The exactly-once Kafka sink of Structured Streaming, as a data source named ``hapax``.

Tasks write to no topic. They hand their rows to the driver, which publishes the whole micro-batch
in one transaction once Spark says that every task has succeeded. A task whose input was cut off
(an iterator in Python ends cleanly when something before it fails), a cancelled one, a speculative
or a zombie attempt may end as well as it likes: Spark never tells the driver of it.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from hapax.core.errors import ConfigurationError, StopError
from hapax.core.micro_batches import MicroBatch
from hapax.engines.spark.dataframe.rows import Writing, check_columns
from hapax.engines.spark.dataframe.staging import (
    FOLDER,
    Parcel,
    Place,
    Spool,
    StagedReport,
    fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from hapax.core.ports import Message

INLINE_BYTES_MAX = 1 << 20
"""Rows of one task that travel in its message; 1,000 tasks of this size fill a driver's default
limit on results (spark.driver.maxResultSize, 1 GiB)."""
NO_CHECKPOINT = (
    "the query has no checkpointLocation: set it as an option of the query itself, on storage that"
    " outlives the driver"
)
COMPLETE = (
    "outputMode complete replaces what was written before, which a topic cannot: use append, and a"
    " watermark where the pipeline aggregates"
)


class PublishedBatch(Protocol):
    """What became of a micro-batch; see ``hapax.kafka.produce.micro_batch``."""

    @property
    def records(self) -> dict[str, int]:
        """Published by this call, by topic."""

    @property
    def repeated(self) -> bool:
        """Whether the micro-batch had been published before."""

    @property
    def attempts(self) -> int:
        """Transactions that it took."""


class MicroBatchPublisher(Protocol):
    """What publishes; see ``hapax.kafka.produce.micro_batch``."""

    def publish(
        self, batch: MicroBatch, chunks: Callable[[], Iterable[Sequence[Message]]]
    ) -> PublishedBatch:
        """Make the micro-batch visible as a whole, unless it is."""


class Publishing(NamedTuple):
    """A publisher, its app, the topic of rows that name none, and topics that no row may name."""

    publisher: MicroBatchPublisher
    app: str
    topic: str
    inputs: frozenset[str]


class SinkOptions(msgspec.Struct, frozen=True):
    """Options of one query.

    checkpoint        the query's checkpointLocation
    spool             folder for rows that wait
    inline_bytes_max  rows of a task up to this size wait in memory
    report            leave the numbers of the last micro-batch beside the rows
    named             all options as they were given, names in lower case
    """

    checkpoint: str
    spool: str
    inline_bytes_max: int
    report: bool
    named: dict[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read the options; raise ConfigurationError for what is missing or wrong."""
        named = {name.lower(): value for name, value in options.items()}
        checkpoint = named.get("checkpointlocation", "").rstrip("/")
        if not checkpoint:
            raise ConfigurationError([NO_CHECKPOINT])
        inline = named.get("inlinebytesmax", str(INLINE_BYTES_MAX))
        if not inline.isdecimal():
            raise ConfigurationError([f"inlineBytesMax={inline} is no number of bytes"])
        spool = named.get("spool", "").rstrip("/") or f"{checkpoint}/{FOLDER}"
        report = named.get("report", "false").lower() == "true"
        return cls(checkpoint, spool, int(inline), report, named)


@dataclass(frozen=True)
class TaskRows(WriterCommitMessage):
    """What one task hands to the driver."""

    query: str
    parcel: Parcel


class ExactlyOnceSink(DataSource):
    """The data source; who publishes is told by a subclass, in the process that commits."""

    @classmethod
    def name(cls) -> str:
        """Return the name in ``writeStream.format(...)``."""
        return "hapax"

    @classmethod
    @abstractmethod
    def check(cls, options: SinkOptions) -> None:
        """Raise ConfigurationError for options that cannot work, before any row is taken."""

    @classmethod
    @abstractmethod
    def publishing(cls, options: SinkOptions) -> AbstractContextManager[Publishing]:
        """Give what publishes; called in the process that commits, once per micro-batch."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark calls it so
        """Return the writer. Spark calls it anew for each micro-batch, in any process."""
        if overwrite:
            raise ConfigurationError([COMPLETE])
        check_columns(schema)
        options = SinkOptions.parse(self.options)
        self.check(options)
        return SinkWriter(type(self), options)


class SinkWriter(DataSourceStreamArrowWriter):
    """One micro-batch: ``write`` runs in tasks, ``commit`` and ``abort`` beside the driver."""

    def __init__(self, sink: type[ExactlyOnceSink], options: SinkOptions) -> None:
        self._sink = sink
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Keep the rows; nothing of them is visible."""
        context = cast("TaskContext", TaskContext.get())
        number = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId")
        if number is None or query is None:
            raise StopError(
                "this version of Spark does not pass query and micro-batch to its tasks"
            )
        name = f"{number}-{context.partitionId()}-{context.taskAttemptId()}"
        return TaskRows(query, self._spool().store(iterator, name))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark calls it so
        """Publish the rows of all tasks in one transaction, unless they are published."""
        tasks = [message for message in messages if isinstance(message, TaskRows)]
        queries = {task.query for task in tasks}
        if len(tasks) != len(messages) or len(queries) != 1:
            raise StopError(
                f"micro-batch {batchId}: Spark commits it, but rows of tasks are missing"
            )
        options, spool = self._options, self._spool()
        batch = MicroBatch(queries.pop(), batchId, fingerprint(Place(options.checkpoint), batchId))

        began_s = time.monotonic()
        with self._sink.publishing(options) as (publisher, app, topic, inputs):

            def chunks() -> Iterator[list[Message]]:
                writing = Writing(batch, app, topic, inputs)
                for task in tasks:
                    yield from map(writing.messages, spool.rows(task.parcel))

            published = publisher.publish(batch, chunks)
        spool.clear(batchId)
        if options.report:
            spool.report(
                StagedReport(
                    batchId,
                    published.records,
                    published.repeated,
                    published.attempts,
                    time.monotonic() - began_s,
                )
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark calls it so
        """Forget the rows. Nothing else is to undo: what is published stays published."""
        self._spool().clear(batchId)

    def _spool(self) -> Spool:
        return Spool(Place(self._options.spool), self._options.inline_bytes_max)

"""The exactly-once Kafka sink of Structured Streaming, as a data source named ``hapax``.

Tasks write to no topic. They hand their rows over, and once Spark says that every task has
succeeded the micro-batch is published: by one producer as a whole, or in parts, by tasks of another
job (parts.py). A task whose input was cut off (an iterator in Python ends cleanly when
something before it fails), a cancelled one, a speculative or a zombie attempt may end as well as it
likes: Spark never reports it to the driver.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from hapax.core.errors import ConfigurationError, StopError
from hapax.core.micro_batches import MicroBatch
from hapax.core.topic_rules import RowNeeds, needs_of_all
from hapax.engines.spark.dataframe.checkpoint import Checkpoint
from hapax.engines.spark.dataframe.parts import Publication, Publishing
from hapax.engines.spark.dataframe.rows import CheckedRows
from hapax.engines.spark.dataframe.staging import FOLDER, Parcel, Place, Spool, StagedReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

INLINE_BYTES_MAX = 1 << 20
"""Rows of one task that travel in its message; 1,000 tasks of this size fill a driver's default
limit on results (spark.driver.maxResultSize, 1 GiB)."""
NO_CHECKPOINT = (
    "the query has no checkpointLocation: set it as an option of the query itself, on storage that"
    " outlives the driver"
)


class SinkOptions(msgspec.Struct, frozen=True):
    """Options of one query.

    checkpoint        the query's checkpointLocation
    spool             folder for rows that wait
    inline_bytes_max  rows of a task up to this size wait in memory
    report            leave the numbers of the last micro-batch with the rows
    named             all options as they were given, names in lower case
    durable           rows that wait in files are on the disk before their task is done
    inputs            topics that no row may name
    topic             of rows that name none
    """

    checkpoint: str
    spool: str
    inline_bytes_max: int
    report: bool
    named: dict[str, str]
    durable: bool = False
    inputs: frozenset[str] = frozenset()
    topic: str = ""

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
    needs: dict[str, RowNeeds]


class SinkWriter(DataSourceStreamArrowWriter):
    """One micro-batch: ``write`` runs in tasks, ``commit`` and ``abort`` at the driver.

    ``sink`` gives what publishes, in the process that commits, once for each micro-batch.
    """

    def __init__(self, sink: Any, options: SinkOptions) -> None:
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
        # What is refused only when it is published could not be taken back from parts.
        checked = CheckedRows(self._options.topic, self._options.inputs)
        parcel = self._spool().store(map(checked.passed, iterator), name)
        return TaskRows(query, parcel, checked.needs)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark calls it so
        """Publish the rows of all tasks in one transaction, unless they are published."""
        tasks = [message for message in messages if isinstance(message, TaskRows)]
        queries = {task.query for task in tasks}
        if len(tasks) != len(messages) or len(queries) != 1:
            raise StopError(
                f"micro-batch {batchId}: Spark commits it, but rows of tasks are missing"
            )
        options, spool = self._options, self._spool()
        checkpoint = Checkpoint(options.checkpoint)
        batch = MicroBatch(queries.pop(), batchId, checkpoint.fingerprint(batchId))

        began_s = time.monotonic()
        publishing: Publishing
        with self._sink.publishing(options) as publishing:
            logs, lookup = None, publishing.lookup
            if lookup is not None:
                logs = checkpoint.followed(lookup, options.inputs, batchId - 1)
            published = Publication(
                publishing,
                batch,
                spool,
                [task.parcel for task in tasks],
                needs_of_all(task.needs for task in tasks),
            ).publish()
        if logs is not None:
            checkpoint.keep(logs)
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
        """Forget the rows, unless all tasks have succeeded: then some may be fixed."""
        tasks = [message for message in messages if isinstance(message, TaskRows)]
        if len(tasks) < len(messages) or not self._options.durable:
            self._spool().remove(task.parcel for task in tasks)

    def _spool(self) -> Spool:
        options = self._options
        return Spool(Place(options.spool), options.inline_bytes_max, durable=options.durable)

"""The exactly-once Kafka sink of Structured Streaming, as a data source named ``hapax``.

Tasks write to no topic. They hand their rows over, and once Spark says that every task has
succeeded the micro-batch is published: by one producer as a whole, or in parts, by tasks of another
job (parts.py). A task whose input was cut off (an iterator in Python ends cleanly when
something before it fails), a cancelled one, a speculative or a zombie attempt may end as well as it
likes: Spark never reports it to the driver.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

from hapax.cluster.micro_batches import MicroBatch
from hapax.cluster.topic_rules import RowNeeds, needs_of_all
from hapax.core.errors import ConfigurationError, StopError
from hapax.engines.spark.dataframe.checkpoint import Checkpoint
from hapax.engines.spark.dataframe.parts import Publication, Publishing
from hapax.engines.spark.dataframe.rows import CheckedRows
from hapax.engines.spark.dataframe.staging import FOLDER, Parcel, Place, Spool, StagedReport
from hapax.settings.properties import refusal
from hapax.settings.redaction import is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

INLINE_BYTES_MAX = 1 << 20
"""Rows of one task that travel in its message; 1,000 tasks of this size fill a driver's default
limit on results (spark.driver.maxResultSize, 1 GiB)."""
OPTIONS: Final = {
    "checkpointLocation": "",
    "app": "HAPAX_APP",
    "topic": "HAPAX_OUTPUT__TOPIC",
    "kafka.bootstrap.servers": "HAPAX_KAFKA__BOOTSTRAP_SERVERS",
    "partitioner": "HAPAX_OUTPUT__PARTITIONER",
    "transactionTimeout": "HAPAX_TRANSACTION__TIMEOUT",
    "publish": "HAPAX_SPARK__PUBLISH",
    "spoolLocation": "",
    "maxInlineBytes": "",
    "report": "",
}
"""Options of a query, and the variable of the environment that says the same, where there is one.

Everything else, secrets above all, comes from the driver's environment: options show up in plans.
"""
_NO_CHECKPOINT: Final = (
    "option checkpointLocation is missing: set it for the query itself, on storage that outlives"
    " the driver"
)
_OF_SPARK: Final = {"path", "queryname"}
_KAFKA: Final = "kafka."
_JAVA: Final = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Properties that librdkafka has under another name, in the same unit."""
_SETTING: Final = re.compile(r"use (HAPAX_(?:KAFKA__|TRANSACTION__|OUTPUT__)\w+)")
_ABOUT: Final = re.compile(r"(HAPAX_\w+)(=| is not set: )")
_RELATED: Final = "HAPAX_KAFKA__PROPERTIES or a related setting"
_THERE_ARE: Final = f"there are {', '.join(OPTIONS)}, and properties of the client as kafka.…"
_IN_PLANS: Final = "in the driver's environment: options show up in Spark's plans and logs"


class SinkOptions(msgspec.Struct, frozen=True):
    """Options of one query.

    checkpoint        the query's checkpointLocation
    spool             folder for rows that wait
    inline_bytes_max  rows of a task up to this size wait in memory
    report            leave the numbers of the last micro-batch with the rows
    named             all options as they were given, names in lower case
    variables         what options say in place of the environment
    properties        of librdkafka, in addition to those of the environment
    durable           rows that wait in files are on the disk before their task is done
    inputs            topics that no row may name
    topic             of rows that name none
    """

    checkpoint: str
    spool: str
    inline_bytes_max: int
    report: bool
    named: dict[str, str]
    variables: dict[str, str] = {}
    properties: dict[str, str] = {}
    durable: bool = False
    inputs: frozenset[str] = frozenset()
    topic: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read the options; raise ConfigurationError for all that is missing or wrong."""
        named = {name.lower(): value for name, value in options.items()}
        variables: dict[str, str] = {}
        properties: dict[str, str] = {}
        problems = []
        for name in sorted(named.keys() - _OF_SPARK):
            try:
                place, value = _placed(name, named[name])
            except ValueError as refusal:
                problems.append(str(refusal))
                continue
            target = variables if place.startswith("HAPAX_") else properties
            if place in target:
                problems.append(f"option {name} sets {place}, as another one does: keep one")
            elif place:
                target[place] = value
        checkpoint = named.get("checkpointlocation", "").rstrip("/")
        if not checkpoint:
            problems.append(_NO_CHECKPOINT)
        inline = named.get("maxinlinebytes", str(INLINE_BYTES_MAX))
        if not inline.isdecimal():
            problems.append(f"option maxInlineBytes={inline} is no number of bytes")
        if problems:
            raise ConfigurationError(problems)
        # Queries may share a location: micro-batches have the same numbers in each of them.
        own = blake2b(checkpoint.encode(), digest_size=8).hexdigest()
        spool = named.get("spoollocation", "").rstrip("/")
        spool = f"{spool}/{own}" if spool else f"{checkpoint}/{FOLDER}"
        report = named.get("report", "false").lower() == "true"
        return cls(checkpoint, spool, int(inline), report, named, variables, properties)

    def names(self, problem: str) -> str:
        """Return what is wrong with a setting, or missing, with the option that sets it."""
        places = {_placed(name, "")[0]: name for name in self.named.keys() - _OF_SPARK}
        places |= {said: name for name, said in OPTIONS.items()}
        found = _ABOUT.match(problem)
        if found is None or found[1] not in places:
            return problem.replace(_RELATED, "an option kafka.… or a setting")
        if found[2] != "=":
            return f"option {places[found[1]]} is missing, and {problem}"
        given = found[1] in self.variables
        return f"option {places[found[1]]}{problem.removeprefix(found[1])}" if given else problem


def _placed(name: str, value: str) -> tuple[str, str]:
    """Return the variable or property that an option in lower case sets, or "", and its value.

    Raises ValueError with a sentence where it may not be set; never with the value.
    """
    known = {each.lower(): each for each in OPTIONS}
    if name in known:
        return OPTIONS[known[name]], value
    if not name.startswith(_KAFKA):
        near = get_close_matches(name.replace("_", ""), known, n=1, cutoff=0.55)
        hint = f"did you mean {known[near[0]]}?" if near else _THERE_ARE
        raise ValueError(f"option {name} is unknown: {hint}")
    client = name.removeprefix(_KAFKA)
    client = _JAVA.get(client, client)
    why = refusal(client)
    if is_secret(client):
        raise ValueError(
            f"option {name} is refused: {why or 'use HAPAX_KAFKA__PROPERTIES'}, {_IN_PLANS}"
        )
    if why is None:
        return client, value
    if setting := _SETTING.fullmatch(why):
        return setting[1], f"{value}ms" if client.endswith(".ms") else value
    raise ValueError(f"option {name} is refused: {why}")


@dataclass(frozen=True)
class TaskRows(WriterCommitMessage):
    """What one task hands to the driver."""

    query: str
    parcel: Parcel
    needs: dict[str, RowNeeds]


@datasource.DataSourceArrowWriter.register  # 4.0 has no DataSourceStreamArrowWriter
class SinkWriter(DataSourceStreamWriter):
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
            parcels = [task.parcel for task in tasks]
            needs = needs_of_all(task.needs for task in tasks)
            published = Publication(publishing, batch, spool, parcels, needs).publish()
        if logs is not None:
            checkpoint.keep(logs)
        spool.clear(batchId)
        if options.report:
            numbers = (published.records, published.repeated, published.attempts)
            spool.report(StagedReport(batchId, *numbers, time.monotonic() - began_s))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark calls it so
        """Forget the rows, unless all tasks have succeeded: then some may be fixed."""
        tasks = [message for message in messages if isinstance(message, TaskRows)]
        if len(tasks) < len(messages) or not self._options.durable:
            with suppress(OSError, StopError):  # Spark would say this in place of its reason
                self._spool().remove(task.parcel for task in tasks)

    def _spool(self) -> Spool:
        options = self._options
        return Spool(Place(options.spool), options.inline_bytes_max, durable=options.durable)

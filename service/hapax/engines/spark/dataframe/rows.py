"""Rows of a DataFrame as Kafka records: which columns there may be, and what they become."""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hapax.core.errors import ConfigurationError, StopError
from hapax.core.headers import BATCH
from hapax.core.ports import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from hapax.core.micro_batches import MicroBatch

COLUMNS = {
    "value": frozenset({"binary", "string"}),
    "key": frozenset({"binary", "string"}),
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
}
"""Columns by name, with their types as Spark writes them. Only ``value`` must be there."""


def check_columns(schema: StructType) -> None:
    """Raise ConfigurationError, with a sentence for each column that is not as wanted."""
    problems = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            problems.append(
                f"column {field.name} is no part of a Kafka record: drop it (there may be"
                f" {', '.join(COLUMNS)})"
            )
        elif kind not in wanted:
            problems.append(
                f"column {field.name} is {kind} and must be {' or '.join(sorted(wanted))}: cast it"
            )
    if "value" not in schema.names:
        problems.append("there is no column value: put what to write into one, binary or string")
    if problems:
        raise ConfigurationError(problems)


def refuse_inputs(rows: pa.RecordBatch, inputs: frozenset[str]) -> pa.RecordBatch:
    """Return the rows; raise StopError when one names a topic that is read."""
    if inputs and "topic" in rows.schema.names:
        read = inputs.intersection(rows.column("topic").unique().to_pylist())
        if read:
            raise StopError(
                f"a row names topic {min(read)}, which the pipeline reads: it would read its "
                "own output in an endless loop"
            )
    return rows


class Writing:
    """Turns rows of one micro-batch into messages, numbered through from ``first``."""

    def __init__(
        self, batch: MicroBatch, app: str, topic: str, inputs: frozenset[str], first: int = 0
    ) -> None:
        self._batch = batch
        self._app = app
        self._topic = topic
        self._inputs = inputs
        self._numbers = count(first)

    def messages(self, rows: pa.RecordBatch) -> list[Message]:
        """Return a message for each row, in order; refuse rows for a topic that is read."""
        refuse_inputs(rows, self._inputs)
        topic, header, app = self._topic, self._batch.header, self._app
        messages = []
        for value, key, named, partition, timestamp_ms, headers, number in zip(
            _binaries(rows, "value"),
            _binaries(rows, "key"),
            _plain(rows, "topic"),
            _plain(rows, "partition"),
            _timestamps_ms(rows),
            _plain(rows, "headers"),
            self._numbers,
            strict=False,  # the constant columns have no end
        ):
            own = [(one["key"], one["value"]) for one in headers if one] if headers else []
            own.append((BATCH, header(number, app)))
            messages.append(
                Message(
                    named or topic,
                    value,
                    key,
                    -1 if partition is None else partition,
                    timestamp_ms,
                    own,
                )
            )
        return messages


def _binaries(rows: pa.RecordBatch, name: str) -> Iterable[bytes | None]:
    if name not in rows.schema.names:
        return repeat(None)
    column = rows.column(name)
    wanted = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        column = column.cast(wanted)
    return _listed(column)


def _plain(rows: pa.RecordBatch, name: str) -> Iterable[Any]:
    return _listed(rows.column(name)) if name in rows.schema.names else repeat(None)


def _timestamps_ms(rows: pa.RecordBatch) -> Iterable[int | None]:
    if "timestamp" not in rows.schema.names:
        return repeat(None)
    return _listed(rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast("i8"))


def _listed(column: pa.Array) -> Iterator[Any]:
    return iter(column.to_pylist())

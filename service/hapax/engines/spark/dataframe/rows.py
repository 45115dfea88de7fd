"""Rows of a DataFrame as Kafka records: which columns there may be, and what they become."""

from __future__ import annotations

from functools import reduce
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from hapax.cluster.topic_rules import RowNeeds
from hapax.core.errors import ConfigurationError, StopError
from hapax.core.headers import BATCH
from hapax.core.records import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from hapax.cluster.micro_batches import MicroBatch

COLUMNS = {
    "value": frozenset({"binary", "string"}),
    "key": frozenset({"binary", "string"}),
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "timestamp": frozenset({"timestamp"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
}
"""Columns by name, with their types as Spark writes them. Only ``value`` must be there."""
_NESTED = ("struct", "map", "array", "variant")


def check_columns(schema: StructType) -> None:
    """Raise ConfigurationError, with a sentence for each column that is not as wanted."""
    problems = []
    for field in schema.fields:
        kind, plain = field.dataType.simpleString(), field.name.lower()
        wanted = COLUMNS.get(field.name)
        if wanted is None and plain in COLUMNS:
            problems.append(f"column {field.name} must be written {plain}: rename it")
        elif wanted is None:
            problems.append(
                f"column {field.name} is no part of a Kafka record: drop it (there may be"
                f" {', '.join(COLUMNS)})"
            )
        elif kind not in wanted:
            nested = "binary" in wanted and kind.startswith(_NESTED)
            how = "to_json makes text of it" if nested else "cast it"
            must = " or ".join(sorted(wanted))
            problems.append(f"column {field.name} is {kind} and must be {must}: {how}")
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    problems += [f"there is more than one column {name}: drop all but one" for name in twice]
    if "value" not in map(str.lower, schema.names):
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


class CheckedRows:
    """Rows of one task on their way to the spool; ``needs``: by topic, of those passed."""

    def __init__(self, topic: str, inputs: frozenset[str]) -> None:
        """``topic``: of rows that name none; ``inputs``: topics that no row may name."""
        self._topic = topic
        self._inputs = inputs
        self.needs: dict[str, RowNeeds] = {}

    def passed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows; raise StopError for one that no topic could take as it is."""
        refuse_inputs(rows, self._inputs)
        refuse_headers(rows)
        named = "topic" in rows.schema.names
        for topic in rows.column("topic").unique().to_pylist() if named else [None]:
            of_topic = rows
            if named:
                column = rows.column("topic")
                own = pc.is_null(column) if topic is None else pc.equal(column, topic)
                of_topic = rows.filter(own)
            if topic == "":
                raise StopError(f"a row names an empty topic; null stands for {self._topic}")
            name = self._topic if topic is None else topic
            self.needs[name] = self.needs.get(name, RowNeeds()).and_also(_needs(of_topic))
        return rows


def refuse_headers(rows: pa.RecordBatch) -> None:
    """Raise StopError for a header without a name, or with a NUL in it: it would be cut there."""
    if "headers" not in rows.schema.names:
        return
    names = rows.column("headers").flatten().field("key")
    if names.null_count or pc.any(pc.match_substring(names, "\0")).as_py():
        raise StopError(
            "a row has a header whose name is null or holds a NUL character: Kafka's clients cut"
            " names there. Correct the names in the pipeline, or drop those headers"
        )


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
            place = -1 if partition is None else partition
            messages.append(
                Message(topic if named is None else named, value, key, place, timestamp_ms, own)
            )
        return messages


def _binaries(rows: pa.RecordBatch, name: str) -> Iterable[bytes | None]:
    if name not in rows.schema.names:
        return repeat(None)
    column = rows.column(name)
    wanted = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    if not pa.types.is_binary(column.type) and not pa.types.is_large_binary(column.type):
        column = column.cast(wanted)
    listed: list[bytes | None] = column.to_pylist()
    return listed


def _needs(rows: pa.RecordBatch) -> RowNeeds:
    names = rows.schema.names
    sizes = [_sizes(rows.column(name)) for name in ("value", "key") if name in names]
    if "headers" in names:
        sizes.append(_header_sizes(rows.column("headers")))
    total = reduce(pc.add, sizes)
    range_ = pc.min_max(rows.column("partition")).as_py() if "partition" in names else {}
    low, high = range_.get("min"), range_.get("max")
    times_ms = pc.min_max(_milliseconds(rows)).as_py().values() if "timestamp" in names else ()
    return RowNeeds(
        -1 if low is None else min(low, -1),
        -1 if high is None else high,
        pc.max(total).as_py() or 0,
        "key" not in names or rows.column("key").null_count > 0,
        tuple(each for each in times_ms if each is not None),
    )


def _sizes(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _header_sizes(column: pa.Array) -> pa.Array:
    """Return the bytes of each row's headers, as differences of a running sum."""
    pairs = column.values
    each = pc.add(_sizes(pairs.field("key")), _sizes(pairs.field("value")))
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(each)])
    return pc.subtract(sums.take(column.offsets[1:]), sums.take(column.offsets[:-1]))


def _plain(rows: pa.RecordBatch, name: str) -> Iterable[Any]:
    return rows.column(name).to_pylist() if name in rows.schema.names else repeat(None)


def _timestamps_ms(rows: pa.RecordBatch) -> Iterable[int | None]:
    timed = "timestamp" in rows.schema.names
    return _milliseconds(rows).to_pylist() if timed else repeat(None)


def _milliseconds(rows: pa.RecordBatch) -> pa.Array:
    return rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast("i8")

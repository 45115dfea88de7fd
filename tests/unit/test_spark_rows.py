from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hapax.core import headers
from hapax.core.errors import ConfigurationError, StopError
from hapax.core.micro_batches import MicroBatch
from hapax.engines.spark.dataframe.checkpoint import Checkpoint
from hapax.engines.spark.dataframe.rows import Writing, check_columns
from hapax.engines.spark.dataframe.staging import (
    Parcel,
    Place,
    Spool,
    StagedReport,
)

BATCH = MicroBatch("q", 7, "aa")


TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()
HEADERS = ArrayType(StructType().add("key", TEXT).add("value", BYTES))


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


def test_columns_of_a_record_are_taken():
    check_columns(schema(value=TEXT))
    every = {"key": TEXT, "topic": TEXT, "partition": INT, "timestamp": TimestampType()}
    check_columns(schema(value=BYTES, headers=HEADERS, **every))


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        (schema(key=TEXT), ["there is no column value"]),
        (schema(value=LONG), ["column value is bigint and must be binary or string: cast it"]),
        (schema(value=TEXT, offset=LONG), ["column offset is no part of a Kafka record: drop it"]),
        (schema(value=TEXT, partition=LONG), ["column partition is bigint and must be int"]),
        (schema(value=TEXT, timestamp=TimestampNTZType()), ["column timestamp is timestamp_ntz"]),
        (schema(value=INT, key=INT), ["column value is int", "column key is int"]),
    ],
)
def test_columns_that_are_not_a_records_are_all_told(columns, problems):
    with pytest.raises(ConfigurationError) as refused:
        check_columns(columns)
    assert len(refused.value.problems) == len(problems)
    for told, wanted in zip(refused.value.problems, problems, strict=True):
        assert told.startswith(wanted)


def test_a_row_becomes_a_message():
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["ä", None]),
            "key": pa.array([b"k", None]),
            "topic": pa.array(["other", None]),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array(
                [datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")
            ),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
                pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            ),
        }
    )
    first, second = Writing(BATCH, "shop", "out", frozenset()).messages(rows)
    assert (first.value, first.key, first.topic, first.partition) == (
        "ä".encode(),
        b"k",
        "other",
        3,
    )
    assert first.timestamp_ms == 1_767_225_600_000
    assert first.headers == [("h", b"1"), ("h", None), (headers.BATCH, b"q/7/0/shop")]
    assert (second.value, second.key, second.topic, second.partition) == (None, None, "out", -1)
    assert second.timestamp_ms is None  # that of writing
    assert second.headers == [(headers.BATCH, b"q/7/1/shop")]


def test_rows_are_numbered_through_a_micro_batch():
    writing = Writing(BATCH, "shop", "out", frozenset())
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b"])})
    numbers = [one.headers[-1][1] for _ in range(2) for one in writing.messages(rows)]
    assert numbers == [b"q/7/0/shop", b"q/7/1/shop", b"q/7/2/shop", b"q/7/3/shop"]


def test_a_row_for_a_topic_that_is_read_is_refused():
    rows = pa.RecordBatch.from_pydict({"value": [b"a"], "topic": ["in"]})
    with pytest.raises(StopError, match="names topic in, which the pipeline reads"):
        Writing(BATCH, "shop", "out", frozenset({"in"})).messages(rows)


def batches(count: int) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pydict({"value": [b"%d-%d" % (number, row) for row in range(10)]})
        for number in range(count)
    ]


@pytest.mark.parametrize(("inline_bytes_max", "waits_in_file"), [(1 << 20, False), (10, True)])
def test_rows_come_back_as_they_were(tmp_path, inline_bytes_max, *, waits_in_file):
    spool = Spool(Place(str(tmp_path / "spool")), inline_bytes_max)
    parcel = spool.store(iter(batches(5)), "7-0-1")
    assert (parcel.path is not None) is waits_in_file
    assert parcel.rows == 50
    assert list(spool.rows(parcel)) == batches(5)


@pytest.fixture
def spool(tmp_path):
    return Spool(Place(str(tmp_path)), 10)


def test_a_spooled_file_cut_at_any_byte_is_never_read_to_a_clean_end(tmp_path, spool):
    parcel = spool.store(iter(batches(5)), "7-0-1")
    file = Path(parcel.path or "")
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        with pytest.raises(StopError, match=r"does not hold the 50 rows"):
            list(spool.rows(parcel))
    file.write_bytes(whole)
    assert list(spool.rows(parcel)) == batches(5)


def test_a_spooled_file_with_any_flipped_bit_gives_no_row_of_the_damaged_block(tmp_path, spool):
    parcel = spool.store(iter(batches(5)), "7-0-1")
    file = Path(parcel.path or "")
    whole = file.read_bytes()
    for index in range(len(whole)):
        damaged = bytearray(whole)
        damaged[index] ^= 1 << index % 8
        file.write_bytes(damaged)
        with pytest.raises(StopError, match="are not as written"):
            next(spool.rows(parcel))


@pytest.mark.parametrize("left", ["empty", "another", "appended", "repeated"])
def test_a_spooled_file_that_was_replaced_is_refused(tmp_path, left, spool):
    parcel = spool.store(iter(batches(5)), "7-0-1")
    other = spool.store(iter(batches(6)), "7-0-1")
    file = Path(parcel.path or "")
    whole = file.read_bytes()
    contents = {
        "empty": b"",
        "another": Path(other.path or "").read_bytes(),
        "appended": whole + b"\0",
        "repeated": whole + whole,
    }
    file.write_bytes(contents[left])
    with pytest.raises(StopError, match="does not hold the 50 rows"):
        list(spool.rows(parcel))


def test_rows_of_many_blocks_come_back_and_damage_in_the_last_one_is_found(tmp_path, spool):
    rows = [pa.RecordBatch.from_pydict({"value": [bytes([n]) * 300_000] * 3}) for n in range(5)]
    parcel = spool.store(iter(rows), "7-0-1")
    assert parcel.checksums is not None
    assert len(parcel.checksums.blocks) == 5
    assert list(spool.rows(parcel)) == rows
    file = Path(parcel.path or "")
    damaged = bytearray(file.read_bytes())
    damaged[-20] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(StopError, match=r"bytes 4194304 to \d+ are not as written"):
        list(spool.rows(parcel))


def test_rows_that_travelled_in_a_message_are_counted(tmp_path):
    spool = Spool(Place(str(tmp_path)), 1 << 20)
    parcel = spool.store(iter(batches(5)), "7-0-1")
    with pytest.raises(StopError, match="does not hold the 51 rows that its task wrote: it holds"):
        list(spool.rows(Parcel(51, parcel.inline, None)))


def test_a_task_without_rows_leaves_nothing(tmp_path):
    spool = Spool(Place(str(tmp_path)), 0)
    parcel = spool.store(iter([]), "7-0-1")
    assert list(spool.rows(parcel)) == []
    assert list(tmp_path.iterdir()) == []


def test_two_attempts_of_a_task_never_share_a_file(tmp_path):
    spool = Spool(Place(str(tmp_path)), 0)
    paths = {spool.store(iter(batches(1)), "7-0-1").path for _ in range(2)}
    assert len(paths) == 2


def test_a_published_micro_batch_takes_all_older_files_along(tmp_path):
    spool = Spool(Place(str(tmp_path)), 0)
    parcels = [spool.store(iter(batches(1)), f"{number}-0-1") for number in (6, 7, 8)]
    spool.report(StagedReport(7, {"out": 3}, repeated=False, attempts=1, publish_s=0.1))
    spool.clear(7)
    with pytest.raises(StopError, match="driver and executors must share the folder"):
        list(spool.rows(parcels[1]))
    assert list(spool.rows(parcels[2])) == batches(1)
    assert spool.reported(7) == StagedReport(
        7, {"out": 3}, repeated=False, attempts=1, publish_s=0.1
    )
    assert spool.reported(6) is None


def test_a_checkpoint_tells_its_query_and_its_input(tmp_path):
    assert Checkpoint(str(tmp_path)).query_id() is None
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}")
    for address in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        checkpoint = Checkpoint(address)
        assert checkpoint.query_id() == "q-1"
        assert checkpoint.fingerprint(0) == Checkpoint(str(tmp_path)).fingerprint(0)
    with pytest.raises(StopError, match="name the query's checkpoint in full"):
        Checkpoint(str(tmp_path)).fingerprint(1)


def test_an_address_that_nobody_knows_is_refused():
    with pytest.raises(ConfigurationError, match="nowhere://x cannot be opened from Python"):
        Place("nowhere://x")

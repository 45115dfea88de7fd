from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

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

from hapax.cluster.micro_batches import Marker, MicroBatch, PublishedRecord, due
from hapax.cluster.topic_rules import RowNeeds, TopicRules, TopicTakes, needs_of_all, row_problems
from hapax.core import headers
from hapax.core.errors import ConfigurationError, PositionLostError, StopError
from hapax.core.records import Record
from hapax.engines.spark.dataframe.checkpoint import Checkpoint
from hapax.engines.spark.dataframe.parts import MicroBatchPublisher, Publication, Publishing
from hapax.engines.spark.dataframe.rows import CheckedRows, Writing, check_columns
from hapax.engines.spark.dataframe.staging import Parcel, Place, Spool, StagedReport

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
        (schema(VALUE=TEXT), ["column VALUE must be written value: rename it"]),
        (schema(value=TEXT).add("value", TEXT), ["there is more than one column value"]),
    ],
)
def test_columns_that_are_not_a_records_are_all_told(columns, problems):
    with pytest.raises(ConfigurationError) as refused:
        check_columns(columns)
    assert len(refused.value.problems) == len(problems)
    for told, wanted in zip(refused.value.problems, problems, strict=True):
        assert told.startswith(wanted)
    with pytest.raises(ConfigurationError, match="to_json makes text of it"):
        check_columns(schema(value=HEADERS))


def test_a_row_becomes_a_message():
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    given = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    rows = rows_of(
        value=pa.array(["ä", None]),
        key=pa.array([b"k", None]),
        topic=pa.array(["other", None]),
        partition=pa.array([3, None], pa.int32()),
        timestamp=at,
        headers=pa.array(given, ARROW_HEADERS),
    )
    first, second = Writing(BATCH, "shop", "out", frozenset()).messages(rows)
    assert (first.value, first.key, first.topic) == ("ä".encode(), b"k", "other")
    assert first.partition == 3
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


def test_two_attempts_of_a_task_never_share_a_file_and_one_without_rows_leaves_none(tmp_path):
    spool = Spool(Place(str(tmp_path)), 0)
    assert list(spool.rows(spool.store(iter([]), "7-0-1"))) == []
    assert list(tmp_path.iterdir()) == []
    assert len({spool.store(iter(batches(1)), "7-0-1").path for _ in range(2)}) == 2


@pytest.fixture
def spool(tmp_path):
    return Spool(Place(str(tmp_path)), 10)


def test_a_spooled_file_cut_at_any_byte_is_never_read_to_a_clean_end(spool):
    parcel = spool.store(iter(batches(5)), "7-0-1")
    file = Path(parcel.path or "")
    whole = file.read_bytes()
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        with pytest.raises(StopError, match=r"does not hold the 50 rows"):
            list(spool.rows(parcel))
    file.write_bytes(whole)
    assert list(spool.rows(parcel)) == batches(5)


def test_a_spooled_file_with_any_flipped_bit_gives_no_row_of_the_damaged_block(spool):
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
def test_a_spooled_file_that_was_replaced_is_refused(left, spool):
    parcel = spool.store(iter(batches(5)), "7-0-1")
    other = spool.store(iter(batches(6)), "7-0-1")
    file = Path(parcel.path or "")
    whole = file.read_bytes()
    another = Path(other.path or "").read_bytes()
    contents = {"empty": b"", "another": another, "appended": whole + b"\0", "repeated": whole * 2}
    file.write_bytes(contents[left])
    with pytest.raises(StopError, match="does not hold the 50 rows"):
        list(spool.rows(parcel))


def test_rows_of_many_blocks_come_back_and_damage_in_the_last_one_is_found(spool):
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


def test_a_published_micro_batch_takes_all_older_files_along(tmp_path):
    spool = Spool(Place(str(tmp_path)), 0)
    parcels = [spool.store(iter(batches(1)), f"{number}-0-1") for number in (6, 7, 8)]
    report = StagedReport(7, {"out": 3}, repeated=False, attempts=1, publish_s=0.1)
    spool.report(report)
    spool.clear(7)
    with pytest.raises(StopError, match="driver and executors must share the folder"):
        list(spool.rows(parcels[1]))
    assert list(spool.rows(parcels[2])) == batches(1)
    assert spool.reported(7) == report
    assert spool.reported(6) is None


def test_a_checkpoint_tells_its_query_and_its_input(tmp_path):
    assert Checkpoint(str(tmp_path)).query_id() is None
    tmp_path /= "of ö%20"  # as Hadoop has it, nothing of an address is encoded
    (tmp_path / "offsets").mkdir(parents=True)
    (tmp_path / "metadata").write_text('{"id":"q-1"}')
    (tmp_path / "offsets" / "0").write_text("v1\n{}")
    for address in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        checkpoint = Checkpoint(address)
        assert checkpoint.query_id() == "q-1"
        assert checkpoint.fingerprint(0) == Checkpoint(str(tmp_path)).fingerprint(0)
    with pytest.raises(StopError, match="name the query's checkpoint in full"):
        Checkpoint(str(tmp_path)).fingerprint(1)


def test_of_a_row_that_the_client_refuses_is_said_what_its_topic_takes(spool):
    def refuse(*_: object) -> None:
        raise StopError("record 0 was refused: too large")

    publisher = cast("MicroBatchPublisher", SimpleNamespace(publish=refuse))
    publishing = Publishing(publisher, "a", "out", frozenset(), lambda _: [])
    publishing = publishing._replace(problems=lambda _: ["9 bytes"])
    with pytest.raises(StopError, match="refused: too large: 9 bytes"):
        Publication(publishing, BATCH, spool, []).publish()


def test_an_address_that_nobody_knows_is_refused():
    with pytest.raises(ConfigurationError, match="nowhere://x cannot be opened from Python"):
        Place("nowhere://x")
    assert Place("mock:///of ö%20").path("b") == "of ö /b"


@pytest.mark.parametrize(
    ("batch", "marker", "publish"),
    [
        (BATCH, Marker(7, "q", "99"), True),
        (BATCH, Marker(8, "q", "aa"), False),
        (BATCH, Marker(8, "q"), False),
        (MicroBatch("q", 0, "aa"), None, True),  # the first of all
    ],
)
def test_a_micro_batch_is_due_unless_the_marker_says_that_it_is_published(batch, marker, publish):
    assert due(batch, marker) is publish


@pytest.mark.parametrize(
    ("batch", "marker", "why"),
    [
        (BATCH, None, "it expired while the query was stopped"),
        (BATCH, Marker(7, "other", "99"), "published by query other: the checkpoint was lost"),
        (BATCH, Marker(8, "other", "aa"), "published by query other: the checkpoint was lost"),
        (BATCH, Marker(6, "q", "99"), "it was moved back"),
        (BATCH, Marker(9, "q", "99"), "the checkpoint is an old copy"),
        (BATCH, Marker(8, "q", "bb"), "the last of other input: the checkpoint is an old copy"),
        (MicroBatch("new", 0, "aa"), Marker(12, "q", "bb"), "the checkpoint was lost"),
    ],
)
def test_what_is_not_certain_is_neither_published_nor_skipped(batch, marker, why):
    with pytest.raises(PositionLostError, match=why) as refused:
        due(batch, marker)
    assert "docs/dataframes.md" in str(refused.value)


@pytest.mark.parametrize("inputs", ["aa", ""])
def test_a_marker_reads_what_it_wrote(inputs):
    marker = Marker.after(MicroBatch("q", 7, inputs))
    assert marker.next == 8
    assert Marker.parse(marker.next, marker.metadata) == marker


@pytest.mark.parametrize("metadata", ["", "hapax1 q", "hapax2 q aa", "somebody else's words"])
def test_a_marker_of_somebody_else_is_refused(metadata):
    with pytest.raises(PositionLostError, match="was overwritten"):
        Marker.parse(7, metadata)


@pytest.mark.parametrize(
    ("query", "advice"),
    [
        ("other", r'publish the input again on purpose, call .*set_marker\(query="q", number=0\)'),
        ("q", r'set_marker\(query="q", number=…\) with the next one'),
    ],
)
def test_a_first_micro_batch_without_marker_stops_where_the_output_knows_of_an_earlier_one(
    query, advice
):
    found = PublishedRecord("out", 3, 17, query, 12)
    with pytest.raises(PositionLostError, match=advice) as refused:
        due(MicroBatch("q", 0, "aa"), None, found)
    assert f"out/3/17 is a record of micro-batch 12 of query {query}" in str(refused.value)


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record("out", 3, 17, None, b"v", headers, 0)


def test_a_record_says_which_micro_batch_of_which_app_wrote_it():
    header = MicroBatch("q", 7).header(3, "shop")
    assert header == b"q/7/3/shop"
    found = PublishedRecord.parse(record(("a", b"1"), (headers.BATCH, header)), "shop")
    assert found == PublishedRecord("out", 3, 17, "q", 7)
    assert PublishedRecord.parse(record((headers.BATCH, header)), "shop-eu") is None
    unnamed = record((headers.BATCH, b"q/7/3"))  # of no app: it counts as ours
    assert PublishedRecord.parse(unnamed, "shop") == found


@pytest.mark.parametrize(
    "value", [None, b"", b"q/7", b"q/x/3/shop", b"\xff/\xff/\xff", b"a/b/c/d/e"]
)
def test_what_is_no_header_of_a_micro_batch_is_nobodys(value):
    assert PublishedRecord.parse(record((headers.BATCH, value)), "shop") is None


ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HOUR_MS, NOW_MS = 3_600_000, 1_800_000_000_000
TAKES = {
    "out": TopicTakes(2, 1000),
    "last": TopicTakes(1, None, TopicRules(compacted=True)),
    "timed": TopicTakes(1, None, TopicRules(before_ms=HOUR_MS, after_ms=HOUR_MS)),
}


def rows_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def needs(rows: pa.RecordBatch) -> dict[str, RowNeeds]:
    checked = CheckedRows("out", frozenset())
    assert checked.passed(rows) is rows
    return checked.needs


def test_rows_are_summed_up_by_topic():
    rows = rows_of(
        value=pa.array([b"abc", None, b"a", b""]),
        key=pa.array(["k", None, "", "ké"]),
        topic=pa.array([None, None, "last", "out"]),
        partition=pa.array([None, 1, None, 0], pa.int32()),
        headers=pa.array([[("h", b"12"), ("h", None)], None, [], [("é", b"")]], ARROW_HEADERS),
    )
    assert needs(rows) == {
        "out": RowNeeds(partition_max=1, bytes_max=8, keyless=True),
        "last": RowNeeds(bytes_max=1, keyless=False),
    }


def test_what_one_topic_gets_is_not_asked_of_another():
    rows = rows_of(
        value=pa.array(["a", "abc"]),
        topic=pa.array([None, "wide"]),
        partition=pa.array([0, 7], pa.int32()),
    )
    found = needs(rows)
    assert (found["out"].partition_max, found["out"].bytes_max) == (0, 1)
    assert (found["wide"].partition_max, found["wide"].bytes_max) == (7, 3)


def test_an_empty_topic_is_refused():
    with pytest.raises(StopError, match="empty topic; null stands for out"):
        needs(rows_of(value=pa.array(["a", "b"]), topic=pa.array(["", None])))


def test_rows_are_asked_for_their_earliest_and_latest_timestamp():
    times = pa.array([7_000, None, 3_000, -5_000], pa.timestamp("us", "UTC"))
    found = needs(rows_of(value=pa.array(["a"] * 4), timestamp=times))["out"]
    assert found.times_ms == (-5, 7)
    assert found.and_also(RowNeeds(times_ms=(9, 9))).times_ms == (-5, 9)
    nothing = pa.array([None], pa.timestamp("us", "UTC"))
    assert needs(rows_of(value=pa.array(["a"]), timestamp=nothing))["out"].times_ms == ()


def test_a_part_of_a_larger_batch_is_judged_by_itself():
    rows = rows_of(
        value=pa.array(["x" * 50, "y", "z"]),
        headers=pa.array([[("h", b"1" * 90)], [("h", b"1")], []], ARROW_HEADERS),
    )
    assert needs(rows.slice(1))["out"].bytes_max == 3
    assert needs(rows.slice(3)) == {"out": RowNeeds(keyless=True)}


@pytest.mark.parametrize("name", ["a\0b", "\0", None])
def test_a_header_whose_name_would_be_cut_is_refused(name):
    rows = rows_of(value=pa.array([b"v"]), headers=pa.array([[(name, b"1")]], ARROW_HEADERS))
    with pytest.raises(StopError, match="name is null or holds a NUL"):
        needs(rows)


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ({"out": RowNeeds(partition_max=99)}, "a row names partition 99 of topic out, which has 2"),
        ({"out": RowNeeds(partition_max=2)}, "a row names partition 2 of topic out, which has 2"),
        ({"out": RowNeeds(partition_min=-2)}, "a row names partition -2 of topic out, which has 2"),
        ({"out": RowNeeds(bytes_max=931)}, "a row has 931 bytes, and topic out takes 1,000"),
        ({"last": RowNeeds(keyless=True)}, "a row has no key, and topic last is compacted"),
        ({"timed": RowNeeds(times_ms=(0, NOW_MS))}, "message.timestamp.before.max.ms=3600000"),
        ({"timed": RowNeeds(times_ms=(NOW_MS, NOW_MS * 1000))}, "message.timestamp.after.max.ms"),
        ({"absent": RowNeeds()}, "topic absent does not exist or may not be written"),
    ],
)
def test_what_a_topic_would_refuse_is_told(need, words):
    (problem,) = row_problems(need, TAKES, 70, NOW_MS)
    assert words in problem


def test_what_topics_take_is_no_problem():
    one = {"out": RowNeeds(partition_max=1, bytes_max=930, keyless=True)}
    other = {"out": RowNeeds(bytes_max=7), "last": RowNeeds(bytes_max=5_000_000)}
    both = needs_of_all([one, other, {}])
    assert both["out"] == RowNeeds(partition_max=1, bytes_max=930, keyless=True)
    both["timed"] = RowNeeds(times_ms=(NOW_MS - 1, NOW_MS))
    assert row_problems(both, TAKES, 70, NOW_MS) == []

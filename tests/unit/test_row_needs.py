"""What rows ask of their topics is known before any of them is fixed."""

import pyarrow as pa
import pytest

from hapax.core.errors import StopError
from hapax.core.topic_rules import RowNeeds, TopicRules, TopicTakes, needs_of_all, row_problems
from hapax.engines.spark.dataframe.rows import CheckedRows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HOUR_MS, NOW_MS = 3_600_000, 1_800_000_000_000
TAKES = {
    "out": TopicTakes(2, 1000),
    "last": TopicTakes(1, None, TopicRules(compacted=True)),
    "timed": TopicTakes(1, None, TopicRules(before_ms=HOUR_MS, after_ms=HOUR_MS)),
}


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def needs(rows: pa.RecordBatch) -> dict[str, RowNeeds]:
    checked = CheckedRows("out", frozenset())
    assert checked.passed(rows) is rows
    return checked.needs


def test_rows_are_summed_up_by_topic():
    rows = batch(
        value=pa.array([b"abc", None, b"a", b""]),
        key=pa.array(["k", None, "", "ké"]),
        topic=pa.array([None, None, "last", "out"]),
        partition=pa.array([None, 1, None, 0], pa.int32()),
        headers=pa.array([[("h", b"12"), ("h", None)], None, [], [("é", b"")]], HEADERS),
    )
    assert needs(rows) == {
        "out": RowNeeds(partition_max=1, bytes_max=8, keyless=True),
        "last": RowNeeds(bytes_max=1, keyless=False),
    }


def test_rows_are_asked_for_their_earliest_and_latest_timestamp():
    times = pa.array([7_000, None, 3_000, -5_000], pa.timestamp("us", "UTC"))
    found = needs(batch(value=pa.array(["a"] * 4), timestamp=times))["out"]
    assert found.times_ms == (-5, 7)
    assert found.and_also(RowNeeds(times_ms=(9, 9))).times_ms == (-5, 9)
    nothing = pa.array([None], pa.timestamp("us", "UTC"))
    assert needs(batch(value=pa.array(["a"]), timestamp=nothing))["out"].times_ms == ()


def test_a_part_of_a_larger_batch_is_judged_by_itself():
    rows = batch(
        value=pa.array(["x" * 50, "y", "z"]),
        headers=pa.array([[("h", b"1" * 90)], [("h", b"1")], []], HEADERS),
    )
    assert needs(rows.slice(1))["out"].bytes_max == 3
    assert needs(rows.slice(3)) == {"out": RowNeeds(keyless=True)}


@pytest.mark.parametrize("name", ["a\0b", "\0", None])
def test_a_header_whose_name_would_be_cut_is_refused(name):
    rows = batch(value=pa.array([b"v"]), headers=pa.array([[(name, b"1")]], HEADERS))
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

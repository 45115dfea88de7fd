"""Values: coordinates, records, outputs."""

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from hapax.cluster.partition_offsets import LogOffsets, position
from hapax.commands.admin.offsets import figures, show
from hapax.core.errors import ExitCode, PreflightError
from hapax.core.offset_commit import CommittedMetadata, GroupOffset, informative
from hapax.core.record_path import Batch
from hapax.core.records import Coordinates, Output, Record
from hapax.operations.offsets import Look
from hapax.processing.deduplicate import Unread


@pytest.mark.parametrize("topic", ["orders", "a.b-c_d", "with/slash", "1/2/3"])
def test_coordinates_are_read_back_as_they_were_written(topic):
    coordinates = Coordinates(topic, 3, 17)
    assert Coordinates.parse(str(coordinates)) == coordinates


@pytest.mark.parametrize(
    "text",
    [
        *("", "orders", "orders/1", "/1/2", "orders/-1/2", "orders/1/-2", "orders/1/x"),
        *("orders/1/²", "orders/٣/2", "orders/1/٣", "orders/2147483648/1"),
        *("orders/1/9223372036854775808", "o/1/" + "9" * 5000),
    ],
)
def test_anything_else_is_no_coordinates(text):
    with pytest.raises(ValueError, match=r"topic/partition/offset|not enough values"):
        Coordinates.parse(text)


def test_a_record_knows_its_place_and_an_output_whether_its_key_was_given():
    assert Record("orders", 1, 2, None, b"v").coordinates == Coordinates("orders", 1, 2)
    assert Output(b"v").key is UNSET
    assert Output(b"v", key=None).key is None
    with pytest.raises(TypeError):
        Output(b"v", b"k")  # type: ignore[call-arg] # the mistake under test


def test_an_error_that_ends_the_process_tells_each_problem_and_its_exit_code():
    error = PreflightError(["no topic", "no broker"])
    assert str(error) == "no topic\nno broker"
    assert error.exit_code is ExitCode.PREFLIGHT


# -- Offsets that were passed over since a partition was assigned (unread.py) -------------

P = ("in", 0)


def batch(*offsets: int, end: int, base: int | None = None) -> Batch:
    records = [Record(*P, offset, None, None) for offset in offsets]
    return Batch(records, {P: offsets[0]}, {P: end}, base={} if base is None else {P: base})


def held(unread: Unread, upto: int) -> set[int]:
    return {offset for offset in range(upto) if unread.holds(P, offset)}


def test_what_lies_before_between_and_after_the_records_is_unread():
    unread = Unread(100)
    for _ in range(3):  # a batch that is taken again changes nothing
        unread.read(batch(5, 6, 9, end=12, base=3))
    unread.read(batch(14, end=15))
    assert held(unread, 30) == {3, 4, 7, 8, 10, 11, 12, 13}
    nothing = Unread(100)
    nothing.read(batch(5, 9, end=10))  # without a committed offset
    assert held(nothing, 30) == set()


def test_beyond_its_width_a_partition_is_not_followed():
    unread = Unread(4)
    unread.read(batch(1, 3, 5, end=6, base=0))
    unread.read(batch(8, end=9))
    assert held(unread, 30) == {0, 2, 4}


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12))
def test_it_is_what_a_set_of_offsets_would_say(steps):
    unread, expected, at = Unread(1000), set[int](), 0
    unread.read(batch(0, end=1, base=0))
    at = 1
    for gap, assigned in steps:
        unread.read(batch(at + gap, end=at + gap + 1, base=at if assigned else None))
        expected |= set(range(at, at + gap))
        at += gap + 1
    assert held(unread, at + 5) == expected


@pytest.mark.parametrize(
    "facts",
    [
        CommittedMetadata(),
        CommittedMetadata(topic_id="AbC-_0123456789abcdefg"),
        CommittedMetadata("topic", "cluster", 12, 2, 9_223_372_036_854_775_807),
        CommittedMetadata(deaths=1, until=0),
        CommittedMetadata("topic", "cluster", elsewhere="another-cluster", changelog_id="state"),
    ],
)
def test_what_was_written_is_read_and_words_of_a_later_version_are_passed_over(facts):
    assert CommittedMetadata.decode(facts.encode()) == facts
    assert CommittedMetadata.decode(f"{facts.encode() or 'hapax'} color=red") == facts
    assert CommittedMetadata().encode() == ""  # as other tools write


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "somebody else's", "hapax1 query inputs", "hapaxtopic=a", "hapax"),
        "hapax deaths=-1 until=x began=99999999999999999999 topic= cluster",
        "hapax deaths=٣ began=²",
    ],
)
def test_a_text_of_another_origin_says_nothing(text):
    assert CommittedMetadata.decode(text) == CommittedMetadata()


def test_an_offset_that_only_informs_keeps_its_ids_and_names_where_the_progress_is():
    text = CommittedMetadata("topic", "cluster", began=3).encode()
    offset = informative(GroupOffset("in", 0, 7, text, 2), "there")
    assert offset == GroupOffset("in", 0, 7, f"{text} elsewhere=there", 2)
    assert informative(GroupOffset("in", 0, 7), None).metadata == "hapax elsewhere=unnamed"


def standing(
    committed: int | None = 20, *, low: int = 10, stable: int = 50, oldest_ms: int | None = 1_000
) -> Look:
    return Look(
        topic="in",
        partition=0,
        log=LogOffsets(low, stable, 60),
        committed=committed,
        position=position(committed, LogOffsets(low, stable, 60), "earliest"),
        oldest_ms=oldest_ms,
    )


def test_lag_counts_what_readers_can_reach_and_what_was_deleted_unread_is_lost():
    one = standing()
    assert (one.lag, one.log.last_stable_offset_lag, one.lost) == (30, 10, 0)
    assert one.lag_s(3_000) == 2.0
    assert one.lag_s(500) == 0.0
    assert (standing(5).lag, standing(5).lost) == (40, 5)


def test_without_a_record_to_look_at_the_age_is_unknown_and_without_lag_it_is_0():
    assert standing(oldest_ms=None).lag_s(9) is None
    assert standing(50, oldest_ms=None).lag_s(9) == 0.0
    assert standing(70, oldest_ms=None).lag == 0
    assert msgspec.structs.replace(standing(oldest_ms=None), empty=True).lag_s(9) == 0.0


@pytest.mark.parametrize(("start", "where"), [("earliest", 10), ("latest", 50), ("refuse", None)])
def test_without_a_committed_offset_the_start_decides(start, where):
    assert position(None, LogOffsets(10, 50, 60), start) == where
    assert position(20, LogOffsets(10, 50, 60), start) == 20


def test_sums_are_of_all_and_an_unknown_age_makes_the_sum_unknown():
    found = figures([standing(), standing(5)])
    assert found["lag"] == 70
    assert found["lag_seconds"] > 1_000
    assert figures([standing(), standing(oldest_ms=None)])["lag_seconds"] is None


def test_the_table_says_what_is_odd(capsys):
    show([standing(), standing(5), standing(None), standing(90)])
    told = capsys.readouterr().out
    for words in ("LOST 5", "open transaction", "no committed offset yet", "beyond the end"):
        assert words in told
    assert "total" in told

"""What the marks of logs mean: lag, margin of retention, gaps; and how ages are found."""

import math

import pytest

from hapax.cluster.lag import (
    GroupProgress,
    LagTracker,
    OffsetSnapshot,
    PartitionLag,
    Retention,
    TimestampSearch,
    retention_of,
)
from hapax.cluster.partition_offsets import LogOffsets

P0, OUT = ("in", 0), ("out", 3)
NOW_S = 1_700_000_000.0
DAY_S = 86_400.0
WEEK = Retention(7 * 86_400_000, None)


def standing(
    committed: int | None,
    offsets: LogOffsets,
    *,
    age_s: float | None = None,
    retention: Retention | None = WEEK,
    tracker: LagTracker | None = None,
    at_s: float = NOW_S,
) -> PartitionLag:
    survey = OffsetSnapshot(at_s, {P0: offsets})
    if age_s is not None:
        survey.unread_s[P0] = at_s - age_s
    if retention is not None:
        survey.retention["in"] = retention
    committed_by = {} if committed is None else {P0: committed}
    (found,) = (tracker or LagTracker()).of(survey, GroupProgress(committed_by, committed_by))
    return found


def test_nothing_unread_has_no_lag_and_nothing_to_lose():
    found = standing(10, LogOffsets(2, 10, 10))
    assert (found.lag, found.lag_s, found.margin_s) == (0, 0.0, math.inf)
    assert (found.log.last_stable_offset_lag, found.open_s, found.is_input) == (0, 0.0, True)


FOR_EVER = Retention(None, None)


@pytest.mark.parametrize(
    ("committed", "offsets", "age_s", "retention", "lag", "lag_s", "margin_s"),
    [
        (7, LogOffsets(2, 10, 10), 6 * DAY_S, WEEK, 3, 6 * DAY_S, DAY_S),
        (7, LogOffsets(7, 10, 10), 8 * DAY_S, WEEK, 3, 8 * DAY_S, -DAY_S),  # being deleted
        (1, LogOffsets(2, 10, 10), 5, FOR_EVER, 8, 5, 0.0),  # gone, whatever retention says
        (7, LogOffsets(2, 10, 10), 8 * DAY_S, FOR_EVER, 3, 8 * DAY_S, math.inf),
        (7, LogOffsets(2, 7, 9), 6 * DAY_S, WEEK, 0, 0.0, DAY_S),  # an open transaction's
    ],
)
def test_what_is_unread_is_as_old_as_its_record_and_lives_as_long_as_retention_lets_it(
    committed, offsets, age_s, retention, lag, lag_s, margin_s
):
    found = standing(committed, offsets, age_s=age_s, retention=retention)
    assert found.lag == lag
    assert found.lag_s == pytest.approx(lag_s)
    assert found.margin_s == pytest.approx(margin_s)
    assert found.log.last_stable_offset_lag == offsets.high_watermark - offsets.last_stable


def test_without_the_age_or_the_retention_the_margin_is_not_told():
    assert standing(7, LogOffsets(2, 10, 10)).margin_s is None
    assert standing(7, LogOffsets(2, 10, 10)).lag_s is None
    assert standing(7, LogOffsets(2, 10, 10), age_s=5, retention=None).margin_s is None


@pytest.mark.parametrize("retention", [Retention(None, 1_000), Retention(10**15, 1_000), None])
def test_where_bytes_rule_the_margin_is_told_by_the_advance_of_the_beginning(retention):
    tracker = LagTracker()
    margins_s = [
        standing(
            4_000,
            LogOffsets(low, 9_000, 9_000),
            age_s=1.0,
            retention=retention,
            tracker=tracker,
            at_s=NOW_S + second,
        ).margin_s
        for second, low in ((0, 0), (100, 0), (200, 1_000))
    ]
    assert margins_s[-1] == pytest.approx(600.0)  # 3,000 records at 5 a second


def test_where_only_time_rules_a_beginning_that_advances_says_nothing():
    tracker = LagTracker()
    standing(4_000, LogOffsets(0, 9_000, 9_000), age_s=1.0, tracker=tracker)
    offsets = LogOffsets(3_999, 9_000, 9_000)
    found = standing(4_000, offsets, age_s=1.0, tracker=tracker, at_s=NOW_S + 100)
    assert found.margin_s == pytest.approx(7 * DAY_S - 1)


def test_an_advance_of_hours_ago_counts_no_more_and_a_new_topic_begins_anew():
    tracker = LagTracker()
    bytes_only = Retention(None, 1_000)

    def margin_s(low: int, second: float) -> float | None:
        offsets = LogOffsets(low, 9_000, 9_000)
        return standing(
            4_000, offsets, age_s=1.0, retention=bytes_only, tracker=tracker, at_s=NOW_S + second
        ).margin_s

    assert margin_s(0, 0) == math.inf
    assert margin_s(100, 1_000) == pytest.approx(39_000)
    assert margin_s(100, 6_000) == math.inf
    assert margin_s(0, 6_001) == math.inf


def test_an_open_transaction_is_as_old_as_the_stable_end_that_does_not_move():
    tracker = LagTracker()

    def open_s(stable: int, end: int, second: float) -> float:
        offsets = LogOffsets(0, stable, end)
        return standing(None, offsets, tracker=tracker, at_s=NOW_S + second).open_s

    assert open_s(5, 9, 0) == 0.0
    assert open_s(5, 12, 10) == 10.0
    assert open_s(7, 12, 20) == 0.0
    assert open_s(7, 30, 50) == 30.0
    assert open_s(30, 30, 60) == 0.0
    assert open_s(30, 31, 70) == 0.0


def test_what_is_written_to_has_a_gap_and_no_lag():
    survey = OffsetSnapshot(NOW_S, {OUT: LogOffsets(0, 5, 8), P0: LogOffsets(0, 4, 4)})
    ours, written = LagTracker().of(survey, GroupProgress({P0: 4}, {P0: 6}))
    assert (ours.is_input, ours.position) == (True, 6)
    assert (written.topic, written.partition, written.is_input) == ("out", 3, False)
    assert written.log.last_stable_offset_lag == 3
    assert (written.lag_s, written.margin_s) == (None, None)
    assert (written.committed, written.position) == (None, None)


def test_a_survey_that_failed_in_part_makes_nothing_forgotten():
    tracker = LagTracker()
    open_at = OffsetSnapshot(NOW_S, {OUT: LogOffsets(0, 5, 8)})
    tracker.of(open_at, GroupProgress())
    tracker.of(OffsetSnapshot(NOW_S + 5, failures=["away"]), GroupProgress())
    (found,) = tracker.of(OffsetSnapshot(NOW_S + 10, {OUT: LogOffsets(0, 5, 8)}), GroupProgress())
    assert found.open_s == 10.0
    assert tracker.of(OffsetSnapshot(NOW_S + 15), GroupProgress()) == []
    (found,) = tracker.of(OffsetSnapshot(NOW_S + 20, {OUT: LogOffsets(0, 5, 8)}), GroupProgress())
    assert found.open_s == 0.0


@pytest.mark.parametrize(
    ("policy", "ms", "size", "expected"),
    [
        ("delete", "1000", "-1", Retention(1000, None)),
        ("delete", "-1", "9", Retention(None, 9)),
        ("compact,delete", "5", "9", Retention(5, 9)),
        ("compact", "5", "9", Retention(None, None)),
        ("delete", None, None, None),
    ],
)
def test_retention_is_read_from_the_topic(policy, ms, size, expected):
    config = {"cleanup.policy": policy, "retention.ms": ms}
    assert retention_of(config | ({"retention.bytes": size} if size else {})) == expected


def found_age_s(times_s: list[float], unread: int) -> tuple[float, int]:
    """Search in a log with these times; return the age that was found, and in how many rounds."""
    ages, rounds = TimestampSearch({P0: unread}, NOW_S), 0
    while questions := ages.questions():
        rounds += 1
        asked_s = questions[P0] / 1000
        later = [offset for offset, at_s in enumerate(times_s) if at_s >= asked_s]
        ages.answer({P0: later[0] if later else None})
    return NOW_S - ages.times_s()[P0], rounds


@pytest.mark.parametrize("age_s", [0.5, 3.0, 77.0, 3_600.0, 6 * DAY_S, 400 * DAY_S])
def test_the_age_of_the_next_unread_record_is_found_to_a_hundredth(age_s):
    found_s, rounds = found_age_s([NOW_S - age_s - 50, NOW_S - age_s, NOW_S - age_s / 2, NOW_S], 1)
    assert age_s <= found_s <= age_s * 1.02
    assert rounds <= 12


def test_what_has_just_come_is_a_tenth_of_a_second_old_and_without_a_time_oldest_of_all():
    assert found_age_s([NOW_S - 1_000, NOW_S], 1)[0] == pytest.approx(0.1, rel=0.02)
    assert found_age_s([-0.001, -0.001], 0)[0] > 50 * 365 * DAY_S


def test_a_partition_without_an_answer_is_searched_no_further():
    ages = TimestampSearch({P0: 1, OUT: 1}, NOW_S)
    ages.answer({P0: 0})
    assert ages.questions().keys() == {P0}
    assert ages.times_s().keys() == {P0}
    assert TimestampSearch({}, NOW_S).questions() == {}

"""What the driver does with a report: one reaction for each outcome."""

from typing import Any

import pytest

from hapax.core import errors
from hapax.core.offset_commit import Mark
from hapax.core.ports import Stuck
from hapax.core.records import Coordinates
from hapax.core.results import Cut, Failure
from hapax.engines.spark.driver import LOST_MAX
from hapax.engines.spark.lanes import Lane
from hapax.engines.spark.plan import RangeOutcome, RangeReport
from hapax.processing.limits import RetryPolicy
from tests.kit.spark_driver import P0, P1, Driver, reported, settled

NOW_S = 100.0
CULPRIT = Coordinates("in", 0, 7)
NO = Failure("Refused", "no", 1)


@pytest.fixture
def driver():
    return Driver(lanes=1)


@pytest.fixture
def lane():
    made = Lane(0, RetryPolicy(3))
    made.take_over({P0: 5, P1: None})
    made.began_s = NOW_S - 2.0
    return made


def report(outcome: RangeOutcome = RangeOutcome.DONE, **facts: Any) -> RangeReport:
    return reported(0, outcome, **facts)


@pytest.mark.parametrize("outcome", [one for one in RangeOutcome if one is not RangeOutcome.STOP])
def test_what_was_committed_counts_however_the_range_ended(outcome, driver, lane):
    committed = [settled({P0: (5, 8)}), settled({P0: (8, 11), P1: (0, 4)})]
    facts = {"settled": committed, "ended": {P1: 6}, "pace": 900, "open_s": 0.1, "work_s": 0.4}
    driver.reports.take(lane, report(outcome, **facts), NOW_S)
    assert lane.positions == {P0: 11, P1: 6}
    assert lane.pace == 900
    assert driver.told.of("range_completed") == [
        {
            "lane": 0,
            "outcome": str(outcome),
            "spans": {P0: (5, 11), P1: (0, 6)},
            "transactions": 3,
            "records": 10,
            "open_s": 0.1,
            "work_s": 0.4,
            "round_s": 2.0,
        }
    ]
    assert [facts["settled"] for facts in driver.told.of("transaction_committed")] == committed
    assert driver.told.of("idle_offsets_committed") == [{"progress": {P1: 6}}]


def test_ends_alone_are_a_span_without_records(driver, lane):
    driver.reports.take(lane, report(ended={P0: 9}), NOW_S)
    (facts,) = driver.told.of("range_completed")
    assert (facts["spans"], facts["transactions"], facts["records"]) == ({P0: (9, 9)}, 1, 0)
    assert lane.rest_until_s == 0.0


def test_the_rate_of_dead_letters_is_that_of_all_lanes_together(driver):
    for number, failures in enumerate((3, 4)):
        one, where = Lane(number, RetryPolicy(3)), ("in", number)
        one.take_over({where: 0})
        each = settled({where: (0, 40)}, dead_letters=failures)
        driver.reports.take(one, RangeReport(lane=number, settled=[each]), NOW_S)
    assert driver.rate.recent == (80, 7)


def test_what_the_task_saw_is_told_by_the_driver(driver, lane):
    failure = Failure("KeyError", "'id'", 3)
    driver.reports.take(
        lane,
        report(
            settled=[
                settled({P0: (5, 8)}, dead_letters=1, dead_letter_examples=[(CULPRIT, failure)])
            ],
            events=[
                ("records_redelivered", (4, P0)),
                ("librdkafka_logged", ("consumer", 40, "FAIL", "refused")),
                ("claims_lost", ()),
                ("claims_lost", ()),
            ],
        ),
        NOW_S,
    )
    told = driver.told
    assert told.of("dead_letter_written") == [
        {"coordinates": CULPRIT, "reason": "KeyError", "attempts": 3, "error": "'id'"}
    ]
    assert told.of("records_redelivered") == [{"count": 4, "partition": P0}]
    assert told.of("librdkafka_logged") == [
        {"client": "consumer", "level": 40, "facility": "FAIL", "text": "refused"}
    ]
    assert told.names().count("claims_lost") == 2


def test_done_with_progress_or_after_a_wait_in_vain_goes_on_at_once_and_without_rests(driver, lane):
    lane.failures = lane.lost = 3
    driver.reports.take(lane, report(settled=[settled({P0: (5, 8)})]), NOW_S)
    assert (lane.failures, lane.lost, lane.rest_until_s) == (0, 0, 0.0)
    lane.awaited = {}
    driver.reports.take(lane, report(), NOW_S)
    assert (lane.rest_until_s, lane.failures) == (0.0, 0)
    lane.awaited = {P0: 9}
    driver.reports.take(lane, report(), NOW_S)
    assert lane.rest_until_s > NOW_S


def test_claims_that_are_away_are_asked_now_and_then_until_they_answer(driver, lane):
    assert not driver.reports.claims.holding(NOW_S)
    driver.claims.outage, driver.claims.pings = "away", 0
    assert not driver.reports.claims.holding(NOW_S)
    driver.reports.take(lane, report(RangeOutcome.CLAIMS, reason="timeout"), NOW_S)
    driver.reports.take(lane, report(RangeOutcome.CLAIMS, reason="again"), NOW_S + 0.1)
    assert driver.reports.claims.holding(NOW_S + 0.15)
    assert driver.claims.pings == 0, "not at once: it has just said no"
    assert driver.reports.claims.holding(NOW_S + 0.3)
    assert driver.reports.claims.holding(NOW_S + 0.35)
    assert driver.claims.pings == 1
    driver.claims.outage = None
    assert not driver.reports.claims.holding(NOW_S + 0.6)
    assert driver.told.of("claims_unavailable") == [
        {"reason": reason, "policy": "pause"} for reason in ("timeout", "again", "away")
    ]
    assert driver.told.of("claims_recovered") == [{"outage_s": pytest.approx(0.6)}]
    assert not driver.reports.claims.holding(NOW_S + 9)
    assert driver.claims.pings == 2


def test_a_hold_without_a_claim_store_of_our_own_ends_by_itself(lane):
    driver = Driver(claims=False)
    driver.reports.take(lane, report(RangeOutcome.CLAIMS, reason="timeout"), NOW_S)
    assert driver.reports.claims.holding(NOW_S + 0.1)
    assert not driver.reports.claims.holding(NOW_S + 0.3)


def test_an_aborted_range_rests_and_says_where_it_goes_on(driver, lane):
    for _ in range(2):
        driver.reports.take(lane, report(RangeOutcome.ABORTED, reason="no", records=3), NOW_S)
    assert driver.told.of("batch_aborted") == [
        {"reason": "no", "records": 3, "attempt": attempt, "rewound_to": {P0: 5}}
        for attempt in (1, 2)
    ]
    assert lane.rest_until_s > NOW_S
    assert lane.retry.attempts == 0, "the content is not to blame"
    driver.reports.take(lane, report(RangeOutcome.ABORTED, reason="no", content=True), NOW_S + 9)
    assert lane.rest_until_s > NOW_S + 9
    assert lane.retry.attempts == 0, "nor that of no record"


def test_culprits_known_by_name_are_condemned_at_once(driver, lane):
    aborted = report(
        RangeOutcome.ABORTED, reason="no", records=3, content=True, culprits={CULPRIT: NO}
    )
    driver.reports.take(lane, aborted, NOW_S)
    assert lane.retry.rejected == {CULPRIT: NO}
    assert (lane.rest_until_s, lane.retry.attempts) == (0.0, 0)


def refused(records: int, **facts: Any) -> RangeReport:
    return report(RangeOutcome.ABORTED, reason="no", records=records, content=True, **facts)


def test_content_that_is_refused_is_halved_down_to_its_suspect(driver, lane):
    sizes = []
    for records in (4, 4, 4, 2, 2, 2, 1, 1):
        driver.reports.take(lane, refused(records, suspect=CULPRIT), NOW_S)
        sizes.append(lane.retry.records_max)
    assert sizes == [None, None, 2, 2, 2, 1, 1, 1]
    assert lane.retry.rejected == {}
    driver.reports.take(lane, refused(1, suspect=CULPRIT), NOW_S)
    assert lane.retry.rejected == {CULPRIT: NO}
    assert [facts["records_max"] for facts in driver.told.of("batch_halved")] == [2, 1]


def test_a_dead_letter_that_is_refused_too_stops_the_service(driver, lane):
    lane.retry.rejected = {CULPRIT: NO}
    cuts = []
    for _ in range(4):
        driver.reports.take(lane, refused(1, suspect=CULPRIT), NOW_S)
        cuts.append(lane.retry.rejected[CULPRIT].cut)
    assert cuts == [Cut.NOTHING, Cut.NOTHING, Cut.VALUE, Cut.ALL]
    with pytest.raises(errors.DeadLetterLimitError, match="record in/0/7 is refused even without"):
        driver.reports.take(lane, refused(1, suspect=CULPRIT), NOW_S)


def test_a_condemned_record_is_forgotten_once_it_is_behind(driver, lane):
    later = Coordinates("in", 0, 8)
    lane.retry.rejected = {CULPRIT: NO, later: NO}
    driver.reports.take(lane, report(settled=[settled({P0: (5, 8)})]), NOW_S)
    assert lane.retry.rejected == {later: NO}


def test_fenced_once_is_survived_and_fenced_again_means_a_twin(driver, lane):
    driver.reports.take(lane, report(RangeOutcome.FENCED, reason="epoch"), NOW_S)
    assert driver.told.of("producer_died") == [{"reason": "epoch", "fenced": True}]
    assert lane.rest_until_s > NOW_S
    with pytest.raises(errors.DuplicateInstanceError):
        driver.reports.take(lane, report(RangeOutcome.FENCED, reason="epoch"), NOW_S + 1)


def test_fences_between_which_batches_are_committed_prove_a_twin_only_in_the_end(driver, lane):
    for _ in range(9):  # those that explain themselves prove none
        driver.reports.take(lane, report(RangeOutcome.FENCED, reason="old", explained=True), NOW_S)
    fenced = {"reason": "epoch", "settled": [settled({P0: (5, 6)})] * 3}
    for _ in range(4):
        driver.reports.take(lane, report(RangeOutcome.FENCED, **fenced), NOW_S)
    with pytest.raises(errors.DuplicateInstanceError):
        driver.reports.take(lane, report(RangeOutcome.FENCED, **fenced), NOW_S)


def test_a_dead_producer_is_told_and_planned_again_without_limit(driver, lane):
    for _ in range(30):
        driver.reports.take(lane, report(RangeOutcome.DEAD, reason="brokers away"), NOW_S)
    assert driver.told.of("producer_died")[-1] == {"reason": "brokers away", "fenced": False}
    assert lane.rest_until_s == NOW_S + 1.0


def test_a_task_that_must_leave_takes_the_service_with_it(driver, lane):
    stop = report(settled=[settled({P0: (5, 8)})], error=errors.PositionLostError("offset gone"))
    with pytest.raises(errors.PositionLostError, match="offset gone"):
        driver.reports.take(lane, stop, NOW_S)
    assert len(driver.told.of("transaction_committed")) == 1


def test_what_a_range_finds_about_killers_is_told_and_kept_by_the_lane(driver, lane):
    found = report(
        trusted=[P0],
        marks={P0: Mark(1)},
        events=[
            ("records_isolated", (P0, 5, 9, 1)),
            ("crashing_record_found", (CULPRIT, "it was ended by SIGSEGV", 2)),
        ],
        pace=7,
    )
    driver.reports.take(lane, found, NOW_S)
    told = driver.told
    assert [len(told.of(name)) for name in ("records_isolated", "crashing_record_found")] == [1, 1]
    assert (lane.trusted, lane.marks, lane.pace) == (frozenset({P0}), {P0: Mark(1)}, 7)
    driver.reports.lost(lane, RuntimeError("worker crashed"), NOW_S)
    assert (lane.trusted, lane.marks) == (frozenset(), {})


def test_a_set_that_cannot_be_decoded_is_told_once_and_until_it_is_over(driver, lane):
    held = {P0: Stuck(7, "bad crc")}
    for stuck in (held, held, {}):
        driver.reports.take(lane, report(stuck=stuck), NOW_S)
    assert [facts["stuck"] for facts in driver.told.of("partition_stuck")] == [held, {}]
    driver.reports.take(lane, report(stuck=held), NOW_S)
    driver.reports.shared_out()
    assert driver.told.of("partition_stuck")[-1] == {"stuck": {}}


def test_lost_tasks_are_planned_again_up_to_a_limit_that_counts_from_the_last_progress(
    driver, lane
):
    for offset in range(5, 45):
        driver.reports.lost(lane, RuntimeError("worker crashed"), NOW_S)
        driver.reports.take(lane, report(settled=[settled({P0: (offset, offset + 1)})]), NOW_S)
    for _ in range(2 * LOST_MAX):  # ranges that found nothing are not lost
        driver.reports.take(lane, report(), NOW_S)
    del driver.told.events[:]
    for _ in range(LOST_MAX - 1):
        driver.reports.lost(lane, RuntimeError("worker crashed"), NOW_S)
    with pytest.raises(
        errors.StopError, match=r"10 tasks of lane 0 in a row .* in/0 at 45.*: worker"
    ):
        driver.reports.lost(lane, RuntimeError("worker crashed"), NOW_S)
    lost = driver.told.of("task_lost")
    assert [facts["failures"] for facts in lost] == list(range(1, LOST_MAX + 1))
    assert lost[0] == {"lane": 0, "reason": "worker crashed", "failures": 1, "starts": {P0: 45}}


@pytest.mark.parametrize(
    ("story", "reason"),
    [
        ("", "RuntimeError"),
        ("\n  \n", "RuntimeError"),
        ("just this", "just this"),
        ("first\nsecond", "first"),
        ("An error occurred\norg.SparkException: lost task\nat x", "org.SparkException: lost task"),
        ("ValueError: a\nKeyError: b", "ValueError: a"),
        ("Python worker exited (crashed)\n at y", "Python worker exited (crashed)"),
    ],
)
def test_the_telling_line_of_a_long_story_is_the_reason(story, reason, driver, lane):
    driver.reports.lost(lane, RuntimeError(story), NOW_S)
    assert driver.told.of("task_lost")[0]["reason"] == reason


def test_a_member_that_is_fenced_twice_means_a_twin(driver):
    driver.reports.member_fenced(errors.MemberFencedError("a", explained=True), NOW_S)
    driver.reports.member_fenced(errors.MemberFencedError("b", explained=False), NOW_S)
    with pytest.raises(errors.DuplicateInstanceError):
        driver.reports.member_fenced(errors.MemberFencedError("c", explained=False), NOW_S)
    assert [facts["explained"] for facts in driver.told.of("member_fenced")] == [True, False, False]

"""Limits: dead letters, attempts at a batch, fences, and the size of a batch."""

import pytest

from hapax.core.errors import DeadLetterLimitError, DuplicateInstanceError, ExitCode
from hapax.core.records import Record
from hapax.core.results import Failure
from hapax.processing.limits import DeadLetterRate, FenceBudget, Pace, RetryPolicy

FAILURE = Failure("ValueError", "no", 1)


def failures(count: int) -> dict[int, Failure]:
    return dict.fromkeys(range(count), FAILURE)


def records(count: int) -> list[Record]:
    return [Record("in", 0, offset, None, b"") for offset in range(count)]


def rate() -> DeadLetterRate:
    return DeadLetterRate(topic="dead", rate_max=0.1, records_min=1000)


@pytest.fixture
def limit():
    return rate()


def commit(limit: DeadLetterRate, count: int, failed: int) -> None:
    limit.admit(count, failures(failed), records(count))
    limit.record_batch(count, failed)


@pytest.fixture
def budget():
    return FenceBudget("w-0", 5)


@pytest.fixture
def size():
    return pace()


def test_the_first_poison_stops_the_service_when_it_has_nowhere_to_go():
    two = [Record("in", 0, 4, None, b""), Record("in", 0, 5, None, b"")]
    limit = DeadLetterRate(topic=None, rate_max=0.1, records_min=1000)
    limit.admit(2, {}, two)
    with pytest.raises(DeadLetterLimitError, match=r"in/0/5 failed \(ValueError: no\)") as caught:
        limit.admit(2, {1: FAILURE}, two)
    assert "HAPAX_DEAD_LETTER__TOPIC" in str(caught.value)
    assert caught.value.exit_code is ExitCode.DEAD_LETTER_LIMIT


@pytest.mark.parametrize(
    ("admitted", "refused", "said"),
    [
        ([(100, 100)] * 9, (100, 100), "1000 of the last 1000"),  # not judged with too few
        ([], (1000, 101), "101 of the last 1000 records failed"),
        ([(100, 0)] * 50 + [(100, 100)], (100, 1), "101 of the last 1000"),  # only recent ones
    ],
)
def test_more_failures_than_the_share_of_enough_recent_records_stop_the_service(
    limit, admitted, refused, said
):
    for count, failed in admitted:
        commit(limit, count, failed)
    with pytest.raises(DeadLetterLimitError, match=said):
        commit(limit, *refused)


def test_too_many_failures_name_the_last_record_its_error_and_what_it_says():
    evil = Failure("ValueError", "\x1b[2J" + "x" * 1000, 3)
    with pytest.raises(DeadLetterLimitError) as caught:
        rate().admit(1000, failures(101) | {107: evil}, records(1000))
    text = str(caught.value)
    assert "The last: in/0/107 failed (ValueError: \\x1b[2Jxxx" in text
    assert text.isprintable()
    assert len(text) < 500


@pytest.mark.parametrize(
    "commits", [[(1000, 100)], [(900, 90), (1000, 0), (1000, 100)], [(999, 0), (1, 1), (10, 10)]]
)
def test_old_failures_are_forgotten_and_no_batch_is_judged_by_less_than_the_window(limit, commits):
    for count, failed in commits:
        commit(limit, count, failed)


def test_a_batch_that_is_taken_again_is_counted_once(limit):
    for _ in range(4):
        limit.admit(300, failures(40), [Record("in", 0, n, None, b"") for n in range(300)])


def test_a_batch_is_tried_three_times_before_it_is_halved_and_success_forgets_the_attempts():
    retry = RetryPolicy(3)
    assert retry.attempt == 1
    assert not retry.fail(100)
    assert not retry.fail(100)
    assert (retry.attempt, retry.limit(100)) == (3, 100)
    retry.succeed()
    assert (retry.attempt, retry.limit(100)) == (1, 100)
    for _ in range(3):
        assert not retry.fail(100)
    assert (retry.attempt, retry.limit(100)) == (1, 50)


def test_after_success_batches_grow_back_step_by_step():
    retry = RetryPolicy(1)
    retry.fail(64)
    sizes = []
    for _ in range(3):
        sizes.append(retry.limit(10_000))
        retry.succeed()
    assert sizes == [32, 64, 128]
    for _ in range(20):
        retry.succeed()
    assert retry.records_max is None
    assert retry.limit(10_000_000) == 10_000_000


def test_two_fences_without_progress_between_them_prove_a_twin(budget):
    for now_s in range(100):
        budget.fence(float(now_s), explained=True)  # never counts
    budget.fence(100.0, explained=False)
    budget.commit()
    with pytest.raises(DuplicateInstanceError, match='instance "w-0"') as caught:
        budget.fence(130.0, explained=False)
    assert caught.value.exit_code is ExitCode.FENCED
    assert "HAPAX_INSTANCE" in str(caught.value)


def test_fences_far_apart_prove_nothing(budget):
    for turn in range(20):
        budget.fence(turn * 30.5, explained=False)


def test_five_fences_within_the_window_prove_a_twin_even_with_progress(budget):
    for turn in range(4):
        budget.fence(turn * 7.0, explained=False)
        budget.commit()
        budget.commit()
    with pytest.raises(DuplicateInstanceError):
        budget.fence(28.0, explained=False)


def pace(**limits: int) -> Pace:
    return Pace(
        interval_s=0.1,
        records_max=limits.get("records_max", 10_000),
        bytes_max=limits.get("bytes_max", 1 << 30),
        transaction_timeout_s=10.0,
    )


def test_a_batch_starts_small_and_no_larger_than_the_limit(size):
    assert pace(records_max=20).records == 20
    assert size.records == 500


@pytest.mark.parametrize(
    ("limits", "commits"),
    [
        # Full and fast ones grow fourfold up to the limit.
        ({}, [*((n, 0.01, n, 0.01, min(4 * n, 10_000)) for n in (500, 2000, 8000))]),
        # A batch that its outputs ended is put back in part, and read again: the next is as small.
        ({"bytes_max": 1000}, [(40, 0.01, 4000, 0.01, 10), (10, 0.01, 100, 0.01, 20)]),
        # Slow business code shrinks batches to the interval.
        ({}, [(500, 5.0, 500, 0.01, 10), (10, 60.0, 10, 0.01, 2), (2, 20.0, 2, 0.01, 1)]),
        # Large records bound the batch, and are remembered for a while: 10 kB each, then 5 kB.
        ({"bytes_max": 10**6}, [(500, 0.01, 5_000_000, 0.01, 100), (100, 0.01, 100, 0.01, 200)]),
        ({"bytes_max": 1}, [(500, 0.01, 0, 0.01, 2000)]),  # without values
        # No further than a quarter of the transaction timeout; within half of it they stay.
        (
            {},
            [
                (500, 0.01, 500, 1.25, 1000),
                *((1000, 0.01, 1000, *each) for each in ((2.5, 1000), (4.0, 1000), (6.25, 500))),
            ],
        ),
    ],
)
def test_the_size_of_batches_follows_their_time_their_bytes_and_the_limits(limits, commits):
    size = pace(**limits)
    for taken, work_s, size_bytes, transaction_s, records in commits:
        size.record_commit(taken, work_s, size_bytes, transaction_s)
        assert size.records == records


@pytest.mark.parametrize(
    ("taken", "work_s", "transaction_s", "records"),
    [
        *((500, 1.0, *each) for each in ((0.05, 50), (0.3, 150), (0.6, 2000), (2.0, 625))),
        (500, 4.0, 2.4, 125),  # ten intervals at most, however slow its transaction is
        (500, 0.2, 0.01, 2000),  # within twice the interval it is left to grow
        (10, 0.01, 0.01, 500),  # one that was not full teaches nothing about speed
    ],
)
def test_a_batch_may_work_as_long_as_its_transaction_takes(
    size, taken, work_s, transaction_s, records
):
    size.record_commit(taken, work_s, taken, transaction_s)
    assert size.records == records


def worked(size: Pace, fixed_s: float, each_s: float, batches: int) -> list[int]:
    """Return the sizes of full batches that work so long, with quick transactions."""
    sizes = []
    for _ in range(batches):
        sizes.append(size.records)
        size.record_commit(size.records, fixed_s + each_s * size.records, size.records, 0.01)
    return sizes


def test_a_store_that_is_slow_whatever_the_size_does_not_shrink_batches_to_nothing(size):
    assert worked(size, 0.25, 5e-6, 8)[-1] == 10_000


def test_what_records_take_is_told_from_what_any_batch_takes(size):
    assert {*worked(size, 0.25, 0.001, 20)[10:]} <= {*range(95, 405)}


def test_one_slow_record_that_came_alone_does_not_make_batches_small(size):
    size.record_commit(1, 0.3, 1, 0.01)
    assert size.records == 250
    assert worked(size, 0.3, 5e-6, 10)[-1] == 10_000


def test_slow_business_code_still_has_one_record_a_batch_and_is_quick_again_when_it_is(size):
    assert worked(size, 0.0, 1.0, 6)[-3:] == [1, 1, 1]
    assert worked(size, 0.0, 5e-6, 10)[-1] == 10_000


def test_brokers_that_are_slow_whatever_the_size_leave_a_backlog_its_rate(size):
    # 0.2 ms a record of its own work, 300 ms a transaction: 1,700 records/s with batches of 100 ms.
    done = now_s = 0.0
    while now_s < 60:
        work_s, batch = size.records * 0.0002, size.records
        size.record_commit(batch, work_s, batch, 0.3)
        done, now_s = done + batch, now_s + work_s + 0.3
    assert done / now_s > 2_500


def test_a_registration_without_an_answer_explains_one_fence():
    budget = FenceBudget("w-0", fences_max=5)
    for _ in range(2):
        budget.unanswered()
    for now_s in (0.0, 0.1, 0.2):
        budget.fence(now_s, explained=False)
    with pytest.raises(DuplicateInstanceError):
        budget.fence(0.3, explained=False)


def test_a_transaction_that_fails_late_in_its_time_halves_the_next_one(size):
    assert not size.fail(500, 5.0), "early"
    assert not size.fail(1, 9.0), "one cannot be halved"
    assert size.records == 500
    assert size.fail(500, 5.1)
    assert size.records == 250
    assert size.fail(30, 11.0)
    assert size.records == 15


def test_a_transaction_that_is_slow_whatever_its_size_does_not_shrink_batches_to_nothing(size):
    for _ in range(20):
        size.record_commit(size.records, 0.01, 1, 6.0)
    assert size.records == 250


def test_a_size_that_failed_is_tried_again_only_after_many_that_did_not(size):
    size.fail(500, 11.0)
    sizes = []
    for _ in range(300):
        size.record_commit(size.records, 0.001, 1, 0.01)
        sizes.append(size.records)
    assert sizes[:20] == [250] * 20
    assert max(sizes) == 10_000


def test_a_size_that_was_quick_before_an_outage_is_back_after_it(size):
    for _ in range(3):
        size.record_commit(size.records, 0.001, 1, 0.3)
    assert size.records == 10_000
    size.record_commit(10_000, 0.001, 1, 0.3)
    assert size.fail(10_000, 11.0)
    assert size.records == 5_000
    size.record_commit(5_000, 0.001, 1, 0.3)
    assert size.records == 10_000


def test_a_size_that_was_quick_once_and_then_fails_again_is_held_against_it(size):
    for _ in range(4):
        size.record_commit(size.records, 0.001, 1, 0.3)
    for records in (10_000, 5_000, 2_500):
        assert size.fail(records, 11.0)
    size.record_commit(1_250, 0.001, 1, 0.3)
    assert size.records == 5_000
    assert size.fail(5_000, 11.0), "more than what went through since"
    for _ in range(10):
        size.record_commit(size.records, 0.001, 1, 0.3)
    assert size.records == 2_500


@pytest.mark.parametrize("bytes_per_s", [4e5, 5e4, 1e7])
def test_the_size_converges_to_what_a_slow_link_takes(bytes_per_s: float) -> None:
    # 10 kB each, a timeout of 10 s: little is lost to transactions that outlive it.
    size, lost_s, done, now_s = pace(bytes_max=16 << 20), 0.0, 0, 0.0
    while now_s < 600:
        batch = size.records
        transaction_s = batch * 1e4 / bytes_per_s
        if transaction_s > 10:
            size.fail(batch, 10.0)
            lost_s += 10
        else:
            size.record_commit(batch, 0.001, batch * 10_000, transaction_s)
            done += batch
        now_s += min(transaction_s, 10.0)
    assert lost_s <= 80
    assert done * 1e4 / now_s > 0.85 * bytes_per_s

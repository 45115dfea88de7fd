"""Everything has a limit; past it, the service stops with an error instead of repeating.

A batch whose content the brokers refuse is taken again smaller, or with records rejected, by one
policy for both engines: the worker has one, the Spark driver one for each lane.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import DeadLetterLimitError, DuplicateInstanceError
from hapax.processing.dead_letters import condemn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.records import Coordinates, Record, TopicPartition
    from hapax.core.results import Failure

_TEXT_MAX = 200


def _named(record: Record, failure: Failure) -> str:
    """Return record, type and text of a failure; the text may hold what strangers wrote."""
    text = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in failure.text[:_TEXT_MAX]
    )
    return f"{record.coordinates} failed ({failure.reason}: {text})"


class DeadLetterRate:
    """Stops the service when too many of the recent records fail.

    Decided before the transaction: a deployment with a broken transform must not pour a whole
    backlog into the dead-letter topic.
    """

    def __init__(self, *, topic: str | None, rate_max: float, records_min: int) -> None:
        self._topic = topic
        self._rate_max = rate_max
        self._records_min = records_min
        self._window: deque[tuple[int, int]] = deque()
        self._records = 0
        self._failures = 0

    def admit(self, count: int, failures: Mapping[int, Failure], records: Sequence[Record]) -> None:
        """Raise DeadLetterLimitError when this batch must not be committed."""
        if failures and self._topic is None:
            index, failure = next(iter(failures.items()))
            raise DeadLetterLimitError(
                f"record {_named(records[index], failure)}, and no dead-letter topic is"
                " configured: set HAPAX_DEAD_LETTER__TOPIC or fix the transform"
            )
        recent, failed = self._records + count, self._failures + len(failures)
        for old_count, old_failures in self._window:
            if recent - old_count < self._records_min:
                break
            recent -= old_count
            failed -= old_failures
        if recent >= self._records_min and failed > self._rate_max * recent:
            last = max(failures, default=None)
            example = "" if last is None else f" The last: {_named(records[last], failures[last])}."
            raise DeadLetterLimitError(
                f"{failed} of the last {recent} records failed, more than"
                f" HAPAX_DEAD_LETTER__RATE_MAX={self._rate_max:g}: fix the transform or the"
                f" input, then start again (nothing of the last batch was committed).{example}"
            )

    def record_batch(self, count: int, failures: int) -> None:
        """Count a batch that was committed; one that is taken again counts once."""
        self._window.append((count, failures))
        self._records += count
        self._failures += failures
        while self._records - self._window[0][0] >= self._records_min:
            old_count, old_failures = self._window.popleft()
            self._records -= old_count
            self._failures -= old_failures

    @property
    def recent(self) -> tuple[int, int]:
        return self._records, self._failures


class FenceBudget:
    """Distinguishes a second process of this name from a transaction that only took too long.

    The broker says "fenced" to both. A fence while the transaction was older than its timeout
    explains itself. Others count: two within the window with no more than one batch committed
    between them, or ``fences_max`` at all, mean that another process has this name (two live
    processes of one transactional id were measured to fence each other once a second).

    A registration that got no answer may still be applied, and then the process fences
    itself: each explains one fence (measured: after 20 s below the brokers' minimum of replicas
    two late ones fenced two producers within a second).
    """

    WINDOW_S = 30.0
    STAND_BACK_S = 2.0
    """How long who was fenced waits before it takes the name again.

    Two that come back at the same time fence each other in halves, a member here and a producer
    there; then each counts a fence more than the other caused, and both leave (measured). A whole
    comeback takes 0.6 s.
    """

    def __init__(self, instance: str, fences_max: int) -> None:
        self._instance = instance
        self._fences_max = fences_max
        self._fences: deque[tuple[float, int]] = deque()
        self._committed = 0
        self._unanswered = 0

    def unanswered(self) -> None:
        self._unanswered += 1

    def commit(self) -> None:
        self._committed += 1

    def fence(self, now_s: float, *, explained: bool) -> bool:
        """Return whether the fence counts; raise where it proves a second process of this name."""
        while self._fences and now_s - self._fences[0][0] > self.WINDOW_S:
            self._fences.popleft()
        if explained:
            return False
        if self._unanswered:
            self._unanswered -= 1
            return False
        stalled = bool(self._fences) and self._committed - self._fences[-1][1] <= 1
        self._fences.append((now_s, self._committed))
        if stalled or len(self._fences) >= self._fences_max:
            raise DuplicateInstanceError(
                f"fenced again within {self.WINDOW_S:.0f} s: another process runs as instance"
                f' "{self._instance}"; give each process its own HAPAX_INSTANCE'
            )
        return True


class Pace:
    """Sizes batches so that one takes about the aimed interval under backlog.

    Slow business code must not hold a batch for minutes: revokes, probes and SIGTERM wait for it.
    Starts small, grows at most fourfold per batch, and follows the measured time per record. What a
    batch takes whatever its size (the way to a claim store, a machine without free processor time)
    is distinguished by two sizes: smaller batches would not be quicker, and lose the rate. Where
    brokers take longer for a transaction than the interval, whatever its size, a batch may work as
    long as its transaction takes.

    A transaction that outlives its timeout is aborted by the coordinator, and the same records
    would outlive it again. So batches grow only as far as their transactions stay within a quarter
    of it; a commit beyond half of it makes the next one smaller, and so does ``fail``.
    """

    START = 500
    GROWTH = 4.0
    STRETCH_MAX = 10.0
    """How many intervals a batch may work at most, for transactions that take as long."""
    COMMITS_MIN = 20
    """Full batches after which a size that failed comes within reach again."""
    SECOND_TRY = 1.5
    OTHERWISE = 1.5
    """Fewer records that take so much longer say nothing of size: something else has changed."""
    OUTPUTS = 4

    def __init__(
        self,
        *,
        interval_s: float,
        records_max: int,
        bytes_max: int,
        transaction_timeout_s: float,
        start: int = START,
    ) -> None:
        self._interval_s = interval_s
        self._records_max = records_max
        self.bytes_max = bytes_max
        self._half_s = transaction_timeout_s / 2
        self._bytes_each = 0.0
        self._ceiling: int | None = None
        """Half of a size that failed, and how many full batches have been committed below it."""
        self._commits = 0
        self._proven = 0
        """The largest batch that took an eighth of the timeout at most, since one failed."""
        self._slow: tuple[int, float] | None = None
        self._worked: tuple[int, float] | None = None
        """Size and time of work of a batch, which one of another size is compared with."""
        self._fixed_s: float | None = None
        """What a batch works whatever its size; None: none of another size was seen."""
        self.records = max(1, min(start, records_max))

    @property
    def output_bytes_max(self) -> int:
        """A batch ends with the record with which its outputs exceed these bytes.

        No content of records decides how much a process holds. Outputs of their size never do.
        """
        return self.OUTPUTS * self.bytes_max

    def record_commit(
        self, records: int, duration_s: float, size: int, transaction_s: float
    ) -> None:
        """Learn from a committed batch.

        size           bytes of its records or of its outputs, whichever are more
        duration_s     its own work, until its transaction began
        transaction_s  from begin to the end of the commit
        """
        self._bytes_each = max(0.5 * self._bytes_each, size / records)
        full = records >= self.records
        interval_s = self._interval_s
        aimed_s = min(max(interval_s, transaction_s), self.STRETCH_MAX * interval_s)
        if transaction_s < self._half_s / 4:
            self._proven = max(self._proven, records)
        if transaction_s > self._half_s:
            aimed = self._shrunk(records, transaction_s)
        elif (varying_s := self._varying_s(records, duration_s)) > 2 * aimed_s:
            aimed = int(records * aimed_s / varying_s)
            if self._fixed_s is None:  # a few records, perhaps the first of a process, say little
                aimed = max(aimed, 2 if full else self.records // 2)
        elif full:
            room = self._half_s / 2 / transaction_s if transaction_s else self.GROWTH
            aimed = int(self.records * max(1.0, min(self.GROWTH, room)))
            self._slow = None
        else:
            aimed = self.records
        if full and self._ceiling is not None:
            aimed = min(aimed, self._ceiling)
            self._commits += 1
            if self._commits >= self.COMMITS_MIN:  # batches grow again, step by step
                ceiling, self._commits = int(self._ceiling * self.SECOND_TRY) + 1, 0
                self._ceiling = ceiling if ceiling < self._records_max else None
        by_bytes = int(self.bytes_max / self._bytes_each) if self._bytes_each else aimed
        self.records = max(1, min(aimed, by_bytes, self._records_max))

    def _varying_s(self, records: int, duration_s: float) -> float:
        """Return what the records of a batch have taken, without what any batch takes."""
        known = self._worked
        fewer = known is not None and records < known[0]
        if known is None or (fewer and duration_s > self.OTHERWISE * known[1]):
            self._worked, self._fixed_s = (records, duration_s), None
        elif abs(records - known[0]) > known[0] / 4:
            each_s = max(0.0, (duration_s - known[1]) / (records - known[0]))
            self._worked, self._fixed_s = (records, duration_s), duration_s - each_s * records
        return max(0.0, duration_s - max(0.0, self._fixed_s or 0.0))

    def fail(self, records: int, transaction_s: float) -> bool:
        """Learn from a transaction that did not commit; return whether the next one is smaller.

        One that was aborted, or whose producer died, after half its timeout was too large; the
        next one holds half as many records.
        """
        if transaction_s <= self._half_s or records <= 1:
            return False
        self.records = min(self.records, records // 2)
        if records <= self._proven:
            # As many have gone through in a fraction of the time: an outage, which must not slow
            # down the work on its backlog (measured: 350 records a batch at a lag of 80,000).
            self._proven = records // 2
        else:
            self._ceiling, self._commits = self.records, 0
        return True

    def _shrunk(self, records: int, transaction_s: float) -> int:
        """Return a size for transactions of a quarter of the timeout, at least half of this."""
        slow = self._slow
        if slow and records <= 0.6 * slow[0] and transaction_s > 0.8 * slow[1]:
            return self.records
        self._slow = (records, transaction_s)
        return max(records // 2, int(records * self._half_s / 2 / transaction_s))


class Limits(msgspec.Struct, frozen=True):
    """How often what may go wrong.

    retry                  attempts at a batch that brokers refuse
    producer_fences        fenced by another process of this name, as it seems
    member_fences          the same in the group
    transaction_timeout_s  a transaction that was open for longer explains a fence
    pass_on_outage         records continue unchecked while the claim store is away
    """

    retry: RetryPolicy
    producer_fences: FenceBudget
    member_fences: FenceBudget
    transaction_timeout_s: float
    pass_on_outage: bool = False


class RetryPolicy:
    """Bounds the attempts at a batch.

    After ``attempts_max`` attempts the batch is halved, again and again, until it holds
    the culprit only; then that is rejected.

    rejected  records that become dead letters when they are taken again
    """

    def __init__(self, attempts_max: int) -> None:
        self._attempts_max = attempts_max
        self.attempts = 0
        self.records_max: int | None = None
        self.rejected: dict[Coordinates, Failure] = {}

    @property
    def attempt(self) -> int:
        """The number of the coming attempt, from 1."""
        return self.attempts + 1

    @property
    def calm(self) -> bool:
        """Whether nothing is tried again: batches are whole, and none holds a record to blame."""
        return not self.attempts and self.records_max is None and not self.rejected

    def limit(self, records_max: int) -> int:
        return records_max if self.records_max is None else min(records_max, self.records_max)

    def blame(
        self,
        reason: str,
        records: int,
        first: Coordinates | None,
        *,
        culprits: Mapping[Coordinates, Failure],
        content: bool,
        on_halved: Callable[[int, str], object],
    ) -> bool:
        """Learn from an aborted batch of so many records; return whether its content is to blame.

        When it is not, the batch is to be taken again after a pause. Raises DeadLetterLimitError
        when the last record to blame is a dead letter that can be cut no further.
        """
        if culprits:
            self.rejected = {**self.rejected, **culprits}
            return True
        if not content or first is None:
            return False
        if self.fail(records):
            failure = condemn(first, reason, self.rejected.get(first))
            self.rejected = {**self.rejected, first: failure}
        elif self.limit(records) < records:
            on_halved(self.limit(records), reason)
        return True

    def fail(self, records: int) -> bool:
        """Count a failed attempt at so many records; True when the single one is to blame."""
        self.attempts += 1
        if self.attempts < self._attempts_max:
            return False
        if records <= 1:
            return True
        self.records_max = records // 2
        self.attempts = 0
        return False

    def succeed(self) -> None:
        """Grow back to full size step by step: a batch went through."""
        self.attempts = 0
        if self.records_max is not None:
            self.records_max *= 2
            if self.records_max > 1_000_000:  # noqa: PLR2004 - beyond any batch: the limit is off
                self.records_max = None

    def record_progress(self, progress: Mapping[TopicPartition, int]) -> None:
        """Take note of a commit: a batch went through, and records below its offsets are done."""
        self.succeed()
        if self.rejected:
            self.rejected = {
                coordinates: failure
                for coordinates, failure in self.rejected.items()
                if coordinates.offset >= progress.get((coordinates.topic, coordinates.partition), 0)
            }

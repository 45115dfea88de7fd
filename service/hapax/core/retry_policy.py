"""How a batch is taken again whose content the brokers refuse: smaller, or with records rejected.

One policy for both engines: the worker has one, the Spark driver one for each lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.dead_letters import condemn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.core.transform import Failure


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
        """Return how many records the next batch may hold."""
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

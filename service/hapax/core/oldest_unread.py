"""Finds the time of the next unread record by asking for offsets only.

Brokers answer "the first offset of this time or later". Halving the age of the question, a dozen
of questions, each for all partitions at once, finds the newest time of any record up to the next
unread one, within a hundredth of its age. No record is fetched.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import Progress, TopicPartition

AGE_MIN_S, AGE_MAX_S = 0.1, 3.2e9
"""Younger is 0, and nothing is older than a century."""
PRECISION = 1.01


class TimestampSearch:
    """One search. ``unread``: per partition the next unread offset."""

    def __init__(self, unread: Progress, now_s: float) -> None:
        self._unread = unread
        self._now_s = now_s
        self._bounds = dict.fromkeys(unread, (AGE_MIN_S, AGE_MAX_S))

    def questions(self) -> dict[TopicPartition, int]:
        """Return per partition the time to ask for next, in Unix ms; none: the search is over."""
        return {
            where: self._at_ms(_middle(bounds))
            for where, bounds in self._bounds.items()
            if bounds[1] / bounds[0] > PRECISION
        }

    def answer(self, found: Mapping[TopicPartition, int | None]) -> None:
        """Take the first offsets of the times asked for; None: no record is so young.

        A partition without an answer is searched no further.
        """
        for where in self.questions():
            if where not in found:
                del self._bounds[where]
                continue
            young, old = self._bounds[where]
            offset = found[where]
            middle = _middle((young, old))
            reached = offset is not None and offset <= self._unread[where]
            self._bounds[where] = (young, middle) if reached else (middle, old)

    def times_s(self) -> dict[TopicPartition, float]:
        """Return what was found, in Unix seconds; at most a hundredth of its age too early."""
        return {where: self._now_s - old for where, (_young, old) in self._bounds.items()}

    def _at_ms(self, age_s: float) -> int:
        return max(0, int((self._now_s - age_s) * 1000))


def _middle(bounds: tuple[float, float]) -> float:
    return math.sqrt(bounds[0] * bounds[1])

"""``hapax backfill``: what a bounded span comes to, and how far the group is in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError, PreflightError
from hapax.core.span import Span, SpanWords, other_span
from hapax.kafka.read.group_start import spans
from hapax.kafka.read.offsets_client import reader_properties
from hapax.operations.reading import Operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.records import TopicPartition
    from hapax.settings import Settings

_PATIENCE_S = 20.0
_RATE_OVER_S = 30.0
"""The rate is that of so many seconds before: it follows the present, without every pause."""


class Part(msgspec.Struct, frozen=True):
    """One partition of a backfill. ``committed`` None: the group has not begun there."""

    topic: str
    partition: int
    span: Span
    committed: int | None

    @property
    def done(self) -> int:
        return 0 if self.committed is None else self.span.done(self.committed)

    @property
    def total(self) -> int:
        """Offsets of the span: records, and what lies between them, so no fewer than records."""
        return self.span.stop - self.span.start


class Advance(msgspec.Struct, frozen=True):
    """How far all partitions are; ``left_s`` None: it is not known yet."""

    done: int
    total: int
    rate: float
    left_s: float | None

    @property
    def complete(self) -> bool:
        return self.done >= self.total


class Backfill(Operation):
    """Queries one backfill, as often as it is asked to. One thread at a time."""

    def __init__(self, settings: Settings) -> None:
        words = settings.start
        assert isinstance(words, SpanWords)  # the command sets an end
        if problems := words.problems(int(time.time() * 1000)):
            raise PreflightError(problems)
        super().__init__(settings)
        self._words = words
        self._seen: list[tuple[float, int]] = []
        self._found: dict[TopicPartition, Span] = {}

    def look(self) -> list[Part]:
        """Look up beginnings; raise PreflightError when offsets are not of this span."""
        places = self._client.partitions(self._settings.input.topics)
        committed = self._client.committed(places, stable=False)
        beside = self._client.beside(places, stable=False)
        begun = [where for where in places if committed[where] is not None]
        known = {where: beside[where].span for where in begun}
        if problem := other_span(self._settings.app, known, self._words.name):
            raise PreflightError(problem)
        fresh = [where for where in places if where not in known]
        found = self._found = self._look_up(fresh)
        return [
            Part(*where, span, committed[where])
            for where in places
            if (span := known.get(where) or found.get(where)) is not None
        ]

    def held_back(self, parts: Sequence[Part]) -> bool:
        left = {(one.topic, one.partition): one for one in parts if one.done < one.total}
        stable = self._client.last_stable(left)
        return all(one.span.start + one.done >= stable[where] for where, one in left.items())

    def _look_up(self, fresh: list[TopicPartition]) -> dict[TopicPartition, Span]:
        """Return what the words come to where the group has not begun: once, to be shown."""
        missing = [where for where in fresh if where not in self._found]
        give_up_s = time.monotonic() + _PATIENCE_S
        while missing:
            try:
                properties = reader_properties(self._settings)
                return self._found | spans(properties, missing, self._words)
            except BatchAbortedError as error:
                if time.monotonic() > give_up_s:
                    raise PreflightError(str(error)) from error
        return self._found

    def progress(self, parts: Sequence[Part]) -> Advance:
        now_s = time.monotonic()
        done, total = sum(one.done for one in parts), sum(one.total for one in parts)
        self._seen = [(at_s, n) for at_s, n in self._seen if now_s - at_s < _RATE_OVER_S]
        self._seen.append((now_s, done))
        first_s, before = self._seen[0]
        rate = (done - before) / (now_s - first_s) if now_s > first_s else 0.0
        return Advance(done, total, rate, (total - done) / rate if rate > 0 else None)

"""Composition of ``hapax offsets``: settings to how every input partition stands."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from service.adapters.kafka_marks import Marks
from service.adapters.kafka_spans import Spans
from service.core.lag import Standing, position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.adapters.kafka_spans import Seen
    from service.core.records import TopicPartition
    from service.settings import Settings

OLDEST_WITHIN_S = 5.0


class Standings:
    """Asks for the standing of all input partitions, as often as it is told to."""

    def __init__(self, settings: Settings, marks: Marks) -> None:
        self._settings = settings
        self._marks = marks
        self._spans = Spans(settings)

    def look(self) -> list[Standing]:
        """Return them by topic and partition. Raises PreflightError."""
        marks = self._marks
        places = marks.partitions(self._settings.input.topics)
        lows = marks.lows(places)
        committed = marks.committed(places, stable=False)
        # Asked for later than what they are compared with, so that no lag is negative.
        stable, highs = marks.stable_ends(places), marks.highs(places)
        found = [
            Standing(
                topic=where[0],
                partition=where[1],
                low=lows[where],
                committed=committed[where],
                position=position(
                    committed[where], lows[where], stable[where], self._settings.input.start
                ),
                stable=stable[where],
                high=max(highs[where], stable[where]),
            )
            for where in places
        ]
        return self._dated(found)

    def _dated(self, found: list[Standing]) -> list[Standing]:
        unread = {
            (one.topic, one.partition): (max(one.position or 0, one.low), one.stable)
            for one in found
            if one.lag
        }
        oldest = self._spans.firsts(unread, OLDEST_WITHIN_S)
        return [_dated(one, oldest) for one in found]


def _dated(one: Standing, oldest: dict[TopicPartition, Seen | None]) -> Standing:
    """Return it with the age of its oldest unread record, as far as its broker told."""
    where = (one.topic, one.partition)
    if where not in oldest:
        return one
    first = oldest[where]
    if first is None:
        return msgspec.structs.replace(one, empty=True)
    return msgspec.structs.replace(one, oldest_ms=first.record.timestamp_ms)


@contextmanager
def standings(settings: Settings) -> Iterator[Standings]:
    """Give the one who asks; close its connections afterwards."""
    with closing(Marks(settings)) as marks:
        yield Standings(settings, marks)

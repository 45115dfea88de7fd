"""Composition of ``hapax dead-letters``: look for dead letters, and replay them."""

from __future__ import annotations

from collections import Counter, deque
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.dead_letters import DeadLetter, Replayed, dead_letter, is_original
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader
from hapax.operations.reading import read_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.dead_letters import Wanted
    from hapax.core.records import TopicPartition
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.operations.reading import Tell
    from hapax.settings import Settings

    Bounds = dict[TopicPartition, tuple[int, int]]

REASONS_MAX = 20


class FoundDeadLetters(msgspec.Struct, kw_only=True):
    """What a look brought.

    letters  the newest of those wanted, by partition and offset, each with whether it was replayed
    count    all that are wanted; replayed: those of them that were replayed
    reasons  those wanted, by the type of their exception, most first
    """

    letters: list[tuple[DeadLetter, bool]]
    count: int = 0
    replayed: int = 0
    reasons: dict[str, int] = {}


class DeadLetters:
    """The dead letters of one pipeline's topic."""

    def __init__(self, settings: Settings, client: BlockingOffsets, tell: Tell) -> None:
        topic = settings.dead_letter.topic
        if topic is None:
            raise ConfigurationError(
                ["HAPAX_DEAD_LETTER__TOPIC is not set: this pipeline has no dead letters"]
            )
        self.topic = topic
        self._client = client
        self._settings = settings
        self._tell = tell

    def bounds(self) -> Bounds:
        """Return, per partition, what a read_committed reader can see now."""
        places = self._client.partitions([self.topic])
        lows, ends = self._client.log_starts(places), self._client.last_stable(places)
        return {where: (lows[where], ends[where]) for where in places}

    def letters(self, bounds: Bounds) -> Iterator[DeadLetter]:
        """Yield the dead letters in the bounds, those of a partition in order."""
        for seen in self._each(bounds, "reading dead letters"):
            one = dead_letter(seen.record, readable=seen.readable)
            if one is not None:
                yield one

    def notes(self, bounds: Bounds) -> Replayed:
        """Return what was replayed."""
        replayed = Replayed()
        for seen in self._each(bounds, "reading what was replayed"):
            replayed.take(seen.record)
        return replayed

    def look(self, wanted: Wanted, limit: int) -> FoundDeadLetters:
        """Return those wanted, at most ``limit`` of them."""
        letters: deque[tuple[DeadLetter, bool]] = deque(maxlen=limit)
        found, reasons = FoundDeadLetters(letters=[]), Counter[str]()
        bounds = self.bounds()
        replayed = self.notes(bounds)
        for one in self.letters(bounds):
            if wanted.has(one):
                done = one in replayed
                found.count += 1
                found.replayed += done
                if one.reason in reasons or len(reasons) < REASONS_MAX:
                    reasons[one.reason] += 1
                letters.append((one, done))
        found.letters = sorted(letters, key=lambda pair: pair[0].record.coordinates)
        found.reasons = dict(reasons.most_common())
        return found

    def named(self, text: str, event_id: bytes) -> tuple[DeadLetter, bool]:
        """Return the newest that has this place, whose record failed there, or that has this id.

        The flag says whether it was replayed. Raises HapaxError when there is none.
        """
        bounds = self.bounds()
        newest: DeadLetter | None = None
        for one in self.letters(bounds):
            places = {str(one.record.coordinates), str(one.source), str(one.original)}
            if text in places or one.event_id == event_id:
                newest = one
        if newest is None:
            raise HapaxError(
                f"no dead letter in {self.topic} has the coordinates or the id {text} (older "
                f"ones may have been deleted)"
            )
        return newest, newest in self.notes(bounds)

    def whole(self, one: DeadLetter) -> DeadLetter | None:
        """Return a truncated dead letter with its record, read from the input again.

        None: the record is gone, or another record has its coordinates.
        """
        place, offset = (one.source.topic, one.source.partition), one.source.offset
        if place not in self._client.partitions([one.source.topic]):
            return None
        for chunk in RangeReader(self._settings).read({place: (offset, offset + 1)}):
            for record, readable in chunk:
                if record.offset == offset and is_original(one, record):
                    return msgspec.structs.replace(one, content=record, readable=readable)
        return None

    def _each(self, bounds: Bounds, what: str) -> Iterator[ReadRecord]:
        for chunk in read_ranges(self._settings, bounds, self._tell, what):
            yield from chunk


@contextmanager
def dead_letters(settings: Settings, tell: Tell) -> Iterator[DeadLetters]:
    """Open them for the block; close the connections afterwards."""
    with closing(BlockingOffsets(settings)) as client:
        yield DeadLetters(settings, client, tell)

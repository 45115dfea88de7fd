"""Composition of ``hapax dead-letters``: look for dead letters, and replay them.

A replay:

1. open      a producer of the one name that replays have: what an earlier one left is ended
2. notes     wait until everything begun by then is decided, and read what was replayed
3. batch     dead letters that are wanted and not replayed, those of one partition together
4. write     the records back, and the note of it: one transaction
             interrupted, or in doubt: from 1 again, for only the notes show what was done

What a crash leaves: an open transaction, which step 1 of the next replay ends, or nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError, PreflightError
from hapax.core.headers import TRUNCATED
from hapax.core.ports import silent
from hapax.kafka.produce.standalone import KafkaReplay, ReplayInterruptedError
from hapax.kafka.read.range_reader import RangeReader
from hapax.operations.reading import Operation, await_decided, read_ranges
from hapax.processing.dead_letters import (
    DeadLetter,
    Replayed,
    dead_letter,
    is_original,
    note,
    replay,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.ports import Tell
    from hapax.core.records import TopicPartition
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.processing.dead_letters import Wanted
    from hapax.settings import Settings

    Bounds = dict[TopicPartition, tuple[int, int]]

REASONS_MAX = 20
RECORDS_MAX, BYTES_MAX, ATTEMPTS_MAX = 500, 4 << 20, 3
GONE = (
    f"written without the value (header {TRUNCATED}), and the original is no longer at its"
    " coordinates in the input"
)


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


class DeadLetters(Operation):
    """The dead letters of one pipeline's topic."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        topic = settings.dead_letter.topic
        if topic is None:
            problem = "HAPAX_DEAD_LETTER__TOPIC is not set: this pipeline has no dead letters"
            raise ConfigurationError(problem)
        super().__init__(settings, tell)
        self.topic = topic

    def bounds(self) -> Bounds:
        places = self._client.partitions([self.topic])
        lows, ends = self._client.log_starts(places), self._client.last_stable(places)
        return {where: (lows[where], ends[where]) for where in places}

    def letters(self, bounds: Bounds, tell: Tell) -> Iterator[DeadLetter]:
        """Yield the dead letters in the bounds, those of a partition in order."""
        found = self._each(bounds, "reading dead letters", tell)
        yield from filter(None, (dead_letter(one.record, readable=one.readable) for one in found))

    def notes(self, bounds: Bounds) -> Replayed:
        replayed = Replayed()
        for seen in self._each(bounds, "reading what was replayed", self._tell):
            replayed.take(seen.record)
        return replayed

    def look(self, wanted: Wanted, limit: int) -> FoundDeadLetters:
        letters: deque[tuple[DeadLetter, bool]] = deque(maxlen=limit)
        found, reasons = FoundDeadLetters(letters=[]), Counter[str]()
        bounds = self.bounds()
        replayed = self.notes(bounds)
        for one in self.letters(bounds, self._tell):
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
        """Return it, and whether it was replayed; raise HapaxError when there is none."""
        bounds = self.bounds()
        newest: DeadLetter | None = None
        for one in self.letters(bounds, self._tell):
            places = {str(one.record.coordinates), str(one.source), str(one.original)}
            if text in places or one.event_id == event_id:
                newest = one
        if newest is None:
            what = f"no dead letter in {self.topic} has the coordinates or the id {text}"
            raise HapaxError(f"{what} (older ones may have been deleted)")
        return newest, newest in self.notes(bounds)

    def whole(self, one: DeadLetter) -> DeadLetter | None:
        """Read its record from the input again; None: it is gone, or another is in its place."""
        place, offset = (one.source.topic, one.source.partition), one.source.offset
        if place not in self._client.partitions([one.source.topic]):
            return None
        for chunk in RangeReader(self._settings).read({place: (offset, offset + 1)}):
            for record, readable in chunk:
                if record.offset == offset and is_original(one, record):
                    return msgspec.structs.replace(one, content=record, readable=readable)
        return None

    def _each(self, bounds: Bounds, what: str, tell: Tell) -> Iterator[ReadRecord]:
        for chunk in read_ranges(self._settings, bounds, tell, what):
            yield from chunk


class ReplaySummary(msgspec.Struct, kw_only=True):
    """What a replay did, in dead letters.

    replayed  by this call; replayed_before: wanted, and left alone
    left      by reason: wanted, and left alone
    """

    replayed: int = 0
    replayed_before: int = 0
    left: dict[str, int] = {}


class Replay(DeadLetters):
    """Replays what is wanted; may be ended and begun at any moment."""

    def __init__(
        self, settings: Settings, tell: Tell, *, wanted: Wanted, rate: float | None
    ) -> None:
        super().__init__(settings, tell)
        self._wanted, self._rate = wanted, rate
        self._ends: Bounds | None = None
        self._done, self._total = 0, 0
        self._tried: set[tuple[int, int]] = set()

    def preview(self) -> ReplaySummary:
        bounds = self.bounds()
        outcome = ReplaySummary()
        for batch in self._batches(bounds, bounds, outcome, self._tell):
            outcome.replayed += len(batch)
        self._total = outcome.replayed
        return outcome

    def run(self) -> ReplaySummary:
        """Replay once; raise StopError, DuplicateInstanceError or HapaxError."""
        writer = KafkaReplay(self._settings, time)
        attempts = ATTEMPTS_MAX
        try:
            while True:
                before = self._done
                try:
                    return self._session(writer)
                except ReplayInterruptedError as error:
                    attempts = ATTEMPTS_MAX if self._done > before else attempts - 1
                    if not attempts:
                        raise HapaxError(
                            f"interrupted after {self._done} dead letters ({error}); run it "
                            "again: it continues where it stopped"
                        ) from error
                    self._tell(f"interrupted ({error}); looking up what was done")
        finally:
            writer.close()

    def _session(self, writer: KafkaReplay) -> ReplaySummary:
        writer.open()  # 1
        notes = self._settled()  # 2
        # Those that fail again meanwhile are for another replay: this one ends.
        self._ends = self._ends or notes
        outcome = ReplaySummary()
        began_s, first = time.monotonic(), self._done
        for batch in self._batches(self._ends, notes, outcome, silent):  # 3
            self._write(writer, batch)  # 4
            self._done += len(batch)
            outcome.replayed += len(batch)
            self._tell("replayed", self._done, self._total)
            if self._rate:
                due_s = (self._done - first) / self._rate
                time.sleep(max(0.0, began_s + due_s - time.monotonic()))
        return outcome

    def _write(self, writer: KafkaReplay, batch: list[DeadLetter]) -> None:
        letter = batch[0].record
        offsets, now_ms = [one.record.offset for one in batch], int(time.time() * 1000)
        done = note(letter.topic, letter.partition, offsets, app=self._settings.app, now_ms=now_ms)
        self._tried.update((one.record.partition, one.record.offset) for one in batch)
        writer.write([*(replay(one, self._settings.input.topics) for one in batch), done])

    def _batches(
        self, bounds: Bounds, notes: Bounds, outcome: ReplaySummary, tell: Tell
    ) -> Iterator[list[DeadLetter]]:
        replayed = self.notes(notes)
        open_: dict[int, list[DeadLetter]] = {}
        sizes = Counter[int]()
        records_max = max(1, int(min(RECORDS_MAX, self._rate or RECORDS_MAX)))
        for letter in self.letters(bounds, tell):
            one = letter
            if not self._wanted.has(one):
                continue
            if one in replayed:
                # Tried here and noted: an earlier session of this very replay did it.
                if (one.record.partition, one.record.offset) in self._tried:
                    outcome.replayed += 1
                else:
                    outcome.replayed_before += 1
                continue
            reason = self._refusal(one)
            if not reason and one.truncated:
                whole = self.whole(one)
                reason = GONE if whole is None else self._refusal(whole)
                one = whole or one
            if reason:
                outcome.left[reason] = outcome.left.get(reason, 0) + 1
                continue
            partition, record = one.record.partition, one.content or one.record
            open_.setdefault(partition, []).append(one)
            sizes[partition] += len(record.value or b"") + len(record.key or b"")
            if len(open_[partition]) >= records_max or sizes[partition] >= BYTES_MAX:
                yield open_.pop(partition)
                del sizes[partition]
        yield from open_.values()

    def _refusal(self, one: DeadLetter) -> str:
        if one.app != self._settings.app:
            return "of another app"
        if one.source.topic not in self._settings.input.topics:
            return "from a topic that is no input now"
        if not one.readable:
            return "with a header that cannot be read"
        return ""

    def _settled(self) -> Bounds:
        """Wait until all is decided: a note after an open transaction would be forgotten."""
        places = self._client.partitions([self.topic])
        waiting = partial(self._tell, "waiting for an open transaction in the dead letters")
        timeout_ms = self._settings.transaction.timeout_ms
        _, behind = await_decided(self._client, places, timeout_ms, waiting)
        if behind:
            raise PreflightError(
                [
                    f"{topic}/{number}: a transaction has been open at {end} for long, and replayed"
                    " records may come after it; see hapax transactions list"
                    for (topic, number), (end, _) in behind.items()
                ]
            )
        return self.bounds()

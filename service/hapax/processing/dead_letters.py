"""Dead letters as they are in their topic, and the notes that one was replayed. Pure.

A replay writes the record back to where it came from and, in the same transaction, a note to the
dead-letter topic: which dead letters of one partition were replayed. The note comes after them
in their own partition, so retention takes a dead letter before it takes the note of it, which
committed offsets (forgotten after a week) and records of the input (which consumers of all kinds
read) could not promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hapax.core.errors import DeadLetterLimitError, HapaxError
from hapax.core.headers import (
    APP,
    ID,
    REPLAY_OF,
    REPLAYED,
    SOURCE,
    Failed,
    coordinates,
    without_hapax,
)
from hapax.core.records import Coordinates, Message, Record
from hapax.core.results import Cut, Failure

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


REFUSED: Final = "Refused"
"""Reason of the dead letter of a record whose outputs the brokers refused."""
_SPAN_MAX = 100_000
"""Longer than any note that Hapax writes; one of another program must not fill the memory."""


def condemn(coordinates: Coordinates, reason: str, before: Failure | None) -> Failure:
    """Return what becomes of a record when the brokers refuse what it has led to.

    ``before``: its failure, when it was its dead letter that was refused; that is then cut down
    one step. Raises DeadLetterLimitError when nothing is left to cut.
    """
    if before is None:
        return Failure(REFUSED, reason, 1)
    if before.cut is Cut.ALL:
        raise DeadLetterLimitError(
            f"the dead letter of record {coordinates} is refused even without its value, key and"
            f" headers ({reason}): check the settings of the dead-letter topic"
        )
    return msgspec.structs.replace(before, cut=Cut(before.cut + 1))


class DeadLetter(Failed, frozen=True, kw_only=True):
    """A record with the reason why it could have no outputs, which ``Failed`` holds.

    record    as it is in the dead-letter topic; readable: whether its headers are known
    source    the coordinates of the record that failed
    original  whose claim it has: the source, or what that was itself a replay of
    content   the original of a truncated one, once it was read again
    """

    record: Record
    readable: bool
    source: Coordinates
    original: Coordinates
    event_id: bytes
    content: Record | None = None

    @property
    def reason(self) -> str:
        return self.error.partition(":")[0]


def dead_letter(record: Record, *, readable: bool = True) -> DeadLetter | None:
    """Read the headers; None when it is no dead letter written by Hapax."""
    headers = dict(record.headers)
    failed, source = Failed.decode(headers), coordinates(headers.get(SOURCE))
    if failed is None or source is None:
        return None
    left = _left_out(failed.truncated)
    if left and not left.keys() - {"key", "timestamp"}:  # nothing is missing (topic_rules.py)
        key = None if "key" in left else record.key
        time_ms = left.get("timestamp", record.timestamp_ms)
        record = msgspec.structs.replace(record, key=key, timestamp_ms=time_ms)
        failed = msgspec.structs.replace(failed, truncated="")
    return DeadLetter(
        record=record,
        readable=readable,
        source=source,
        original=coordinates(headers.get(REPLAY_OF)) or source,
        event_id=headers.get(ID) or b"",
        **msgspec.structs.asdict(failed),
    )


def is_original(one: DeadLetter, record: Record) -> bool:
    """Whether it is: a topic that was recreated has other records at the same offsets."""
    left, letter = _left_out(one.truncated), one.record
    same_key = len(record.key or b"") == left["key"] if "key" in left else record.key == letter.key
    return (
        len(record.value or b"") == left.get("value", -1)
        and same_key
        and record.timestamp_ms == left.get("timestamp", letter.timestamp_ms)
    )


def _left_out(truncated: str) -> dict[str, int]:
    pairs = (pair.partition("=") for pair in truncated.split(","))
    return {name: int(size) for name, _, size in pairs if size.removeprefix("-").isdecimal()}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. All that is given must hold.

    reason    part of the error, in any case
    since_ms, until_ms  the record's own timestamp, Unix time; the first included, the second not
    event_id  the whole id
    source    topic, topic/partition or topic/partition/offset of the record that failed
    """

    reason: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    event_id: bytes = b""
    source: str = ""

    def has(self, one: DeadLetter) -> bool:
        time_ms = one.record.timestamp_ms
        return (
            self.reason.lower() in one.error.lower()
            and (self.since_ms is None or time_ms >= self.since_ms)
            and (self.until_ms is None or time_ms < self.until_ms)
            and (not self.event_id or one.event_id == self.event_id)
            and (not self.source or f"{one.source}/".startswith(f"{self.source.rstrip('/')}/"))
        )


def replay(one: DeadLetter, inputs: Collection[str]) -> Message:
    """Return the record as it came, for its own partition of the input, with its claim's owner.

    Readers see the header ``hapax-replay-of``: the replay passes for its original in the claim
    store, so no duplicate of it is let in, and it is not taken for one itself. An original in a
    topic that is none of the ``inputs`` was made up: the record failed for it, and is its own.
    """
    record = one.content or one.record
    original = one.original if one.original.topic in inputs else one.source
    return Message(
        one.source.topic,
        record.value,
        record.key,
        one.source.partition,
        record.timestamp_ms,
        [*without_hapax(record.headers), (REPLAY_OF, str(original).encode())],
    )


def note(topic: str, partition: int, offsets: Iterable[int], *, app: str, now_ms: int) -> Message:
    spans = _spans(sorted(offsets))
    value = msgspec.json.encode({"partition": partition, "offsets": spans})
    # A key of its own: compaction must neither refuse a note nor take it for another's.
    key = f"{REPLAYED}/{partition}/{spans[0][0]}".encode()
    headers: list[tuple[str, bytes | None]] = [
        (REPLAYED, b"%d" % sum(last - first + 1 for first, last in spans)),
        (APP, app.encode()),
    ]
    return Message(topic, value, key, partition, now_ms, headers)


def is_note(record: Record) -> bool:
    return any(name == REPLAYED for name, _ in record.headers)


class _Note(msgspec.Struct):
    partition: int
    offsets: list[tuple[int, int]]


class Replayed:
    """Which dead letters of a topic were replayed, read from the notes in it."""

    def __init__(self) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self._offsets: dict[int, set[int]] = {}

    def take(self, record: Record) -> bool:
        """Return whether it was a note; raise HapaxError for one that cannot be read."""
        if not is_note(record):
            return False
        try:
            found = msgspec.json.decode(record.value or b"", type=_Note)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HapaxError(
                f"{record.coordinates}: a note of replayed dead letters cannot be read ({error});"
                " nothing is replayed, for it may be replayed already"
            ) from error
        offsets = self._offsets.setdefault(found.partition, set())
        for first, last in found.offsets:
            if last - first > _SPAN_MAX:
                self._spans.setdefault(found.partition, []).append((first, last))
            else:
                offsets.update(range(first, last + 1))
        return True

    def __contains__(self, one: DeadLetter) -> bool:
        partition, offset = one.record.partition, one.record.offset
        return offset in self._offsets.get(partition, ()) or any(
            first <= offset <= last for first, last in self._spans.get(partition, ())
        )


def _spans(offsets: Sequence[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for offset in offsets:
        if spans and offset == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], offset)
        else:
            spans.append((offset, offset))
    return spans

"""Records to narrow rows: what an input record asks for, and which record an output names.

An audit moves rows between machines, never payloads: ids and contents are hashes. A partition is
its place in a list that all tasks share.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from hapax.core.headers import APP, ERROR, ID, PART, SOURCE, TRUNCATED, UNCHECKED, Retried, part_of
from hapax.core.records import Coordinates
from hapax.core.results import Later, Undecided
from hapax.operations.audit.result import Compare
from hapax.processing.identity import Identity
from hapax.processing.transform import error_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import Output, Record, TopicPartition
    from hapax.engines.overlapping_calls import GatheredCalls
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.processing.transform import Transformer

DEAD_SLOT = 0
"""Slot of a dead letter; outputs count from 1."""
WAITING, MOVED_ON = -1, -2
"""Slots of a record in the retry topic that stands for an original: it waits there, or the group is
beyond it; ``parts`` is then the number of its move, which no other one has."""
POISON = -1
"""In place of the number of outputs: a dead letter is due."""
VISIBLE = True
FOREIGN, NOWHERE = -1, -2
"""Places of sources of other pipelines, and of those that cannot be."""
OFFSETS = 1 << 45
"""More than a partition has in a lifetime."""
DIGITS_MAX = 18
"""Of offsets that other programs write into headers: what fits into the column."""


class InputRow(NamedTuple):
    """What one input record asks for.

    offset        of the record
    visible       false: its transaction was aborted
    owner         in whose name it claims its id: ``number_of`` its own place, or the original's
    id            hash of its id and 1 byte for the source of ids; None: it is not needed
    outputs       how many are due; POISON: a dead letter; None: not known
    content       of all that is due; None: not compared
    topics        those that its outputs name themselves, joined by commas
    """

    offset: int
    visible: bool
    owner: int
    id: bytes | None
    outputs: int | None
    content: int | None
    topics: str | None


def aborted_row(place: int, offset: int) -> InputRow:
    return InputRow(offset, not VISIBLE, number_of(place, offset), None, None, None, None)


def number_of(place: int, offset: int) -> int:
    """Return an offset of a partition as one number, in their order."""
    return place * OFFSETS + offset


class EffectRow(NamedTuple):
    """One output or dead letter.

    at             its offset
    place, offset  of the record that it names
    slot, parts    which output of how many; DEAD_SLOT of 1 for a dead letter
    content        of topic, key and value; None: left out of a dead letter of last resort
    unchecked      made while the claim store was away
    id             hash of its id, only where its record is no longer there
    """

    at: int
    place: int
    offset: int
    slot: int
    parts: int
    content: int | None
    unchecked: bool
    id: bytes | None


class InputRows:
    """Says what records ask for. ``transformer`` None: their outputs are not known."""

    def __init__(
        self,
        places: Mapping[TopicPartition, int],
        *,
        ids: Sequence[str],
        claimed: bool,
        transformer: Transformer | GatheredCalls | None,
        output_topic: str,
        compare: Compare,
    ) -> None:
        self._places = places
        topics = {topic for topic, _partition in places}
        self._identity = Identity(ids, inputs=topics, claimed=claimed)
        self._claimed = claimed
        self._transformer = transformer
        self._output_topic = output_topic
        self._values = compare is Compare.VALUES

    def rows(self, records: Sequence[ReadRecord]) -> list[InputRow]:
        found = self._identity.identify([one.record for one in records])
        rows = []
        for index, (record, readable) in enumerate(records):
            place = self._places[(record.topic, record.partition)]
            owner = number_of(place, record.offset)
            event_id = None
            if self._claimed and found.claims[index] and readable:
                event_id = _hashed(found.claims[index], found.ids[index])
                if index in found.replays:
                    owner = self._owner(found.replays[index])
            poison = not readable or index in found.poison
            outputs, content, topics = self._due(record, poison=poison)
            rows.append(InputRow(record.offset, VISIBLE, owner, event_id, outputs, content, topics))
        return rows

    def _owner(self, original: Coordinates) -> int:
        place = self._places.get((original.topic, original.partition))
        if place is None or original.offset >= OFFSETS:
            digest = blake2b(str(original).encode(), digest_size=7).digest()
            return -1 - int.from_bytes(digest, "big")
        return number_of(place, original.offset)

    def _due(self, record: Record, *, poison: bool) -> tuple[int | None, int | None, str | None]:
        if poison:
            return POISON, self._dead(record), None
        if self._transformer is None:
            return None, None, None
        result = self._transformer.apply(record)
        if isinstance(result, Undecided):
            raise error_of(result)
        if isinstance(result, Later):
            return None, None, None  # what it will answer, only a later try can show
        if not isinstance(result, tuple):
            return POISON, self._dead(record), None
        topics = ",".join(sorted({output.topic for output in result if output.topic}))
        content = self._whole(record, result) if self._values else None
        return len(result), content, topics or None

    def _dead(self, record: Record) -> int | None:
        return content_hash(DEAD_SLOT, "", record.key, record.value) if self._values else None

    def _whole(self, record: Record, outputs: tuple[Output, ...]) -> int:
        content = 0
        for slot, output in enumerate(outputs, 1):
            key = record.key if output.key is UNSET else output.key
            topic = output.topic or self._output_topic
            content += content_hash(slot, topic, key, output.value)
        return content


class EffectRows:
    """Says which record an output or dead letter comes from.

    starts  by place the first offset that is read: what names an earlier record keeps its id
    passed  by partition of the retry topic the offset below which nothing waits any more
    """

    def __init__(
        self,
        places: Mapping[TopicPartition, int],
        starts: Sequence[int],
        *,
        app: str,
        compare: Compare,
        passed: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._passed = passed or {}
        self._places = {f"{topic}/{number}".encode(): at for (topic, number), at in places.items()}
        self._topics = {topic for topic, _number in places}
        self._starts = starts
        self._app = app.encode()
        self._values = compare is Compare.VALUES

    def row(self, record: Record) -> EffectRow | None:
        """Return its row; None for what another pipeline wrote."""
        headers = dict(record.headers)
        if (record.topic, record.partition) in self._passed:
            retried = Retried.decode(headers)
            if retried is None:
                return None
            passed = record.offset < self._passed[(record.topic, record.partition)]
            slot = MOVED_ON if passed else WAITING
            place, offset = self._source(retried.of.encode())
            waits = record.offset, place, offset, slot, retried.move
            return None if place == FOREIGN else EffectRow(*waits, None, unchecked=False, id=None)
        source = headers.get(SOURCE)
        dead = ERROR in headers
        if source is None or (dead and headers.get(APP, self._app) != self._app):
            return None
        place, offset = self._source(source)
        if place == FOREIGN:
            return None
        slot, parts = (DEAD_SLOT, 1) if dead else part_of(headers.get(PART))
        content: int | None = 0
        if dead and TRUNCATED in headers:
            content = None
        elif self._values:
            topic = "" if dead else record.topic
            content = content_hash(slot, topic, record.key, record.value)
        unchecked, gone = UNCHECKED in headers, place >= 0 and offset < self._starts[place]
        its_id = id_hash(headers.get(ID) or b"") if gone else None
        return EffectRow(record.offset, place, offset, slot, parts, content, unchecked, its_id)

    def _source(self, text: bytes) -> tuple[int, int]:
        where, _slash, offset = text.rpartition(b"/")
        place = self._places.get(where)
        if place is not None and offset.isdigit() and len(offset) <= DIGITS_MAX:
            return place, int(offset)
        try:
            named = Coordinates.parse(text.decode())
        except ValueError:
            return NOWHERE, -1
        return (NOWHERE, -1) if named.topic in self._topics else (FOREIGN, -1)


def _hashed(claim: bytes, event_id: bytes) -> bytes:
    tag = claim[: len(claim) - len(event_id)]
    # Not the order of arrival: every task must come to the same byte.
    return id_hash(event_id) + blake2b(tag, digest_size=1).digest()


def id_hash(event_id: bytes) -> bytes:
    """Return 16 bytes that stand for an id."""
    return blake2b(event_id, digest_size=16).digest()


def content_hash(slot: int, topic: str, key: bytes | None, value: bytes | None) -> int:
    """Return 40 bits that stand for one output in its slot; those of a record are added up."""
    fields = (
        b"%d %d %d " % (slot, -1 if key is None else len(key), value is None),
        topic.encode() + b"\0",
        key or b"",
        value or b"",
    )
    return int.from_bytes(blake2b(b"".join(fields), digest_size=5).digest(), "big")

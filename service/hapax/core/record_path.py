"""The record path: a batch, and what each step does to all of its records at once.

``Batch`` takes every step in Python, by the function that it is given: the reference, which is in
identity.py, transform.py and plan.py. ``NativeBatch`` (kafka/native.py) is the other one: its
records are those of hapax_fast, which makes a Record only when one is asked for.

The native one takes the rule: ids in headers or keys, one plain output a record, no failure. A
batch of which a record is anything else becomes ``plain`` and takes the reference, whose outputs it
must equal (tests compare both, and the first records of a process go through both).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr

from hapax.core.records import Coordinates, Message, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hapax.core.errors import Poison
    from hapax.core.interrupt import Interrupt
    from hapax.core.offset_commit import Marks
    from hapax.core.records import Progress
    from hapax.core.results import Failure, Result

    Results = list[Result | None]
    """By index; None: a duplicate."""
    Preset = dict[int, Result | None]
    """Results of records that are not called, by index."""
    Each = Callable[[Sequence[Record], Interrupt, Preset], Results]
    Function = Callable[[Record], object] | None
    Judge = Callable[[Record, object, BaseException | None], Result]
    Reference = Callable[[Sequence[Record], Results], "Plan"]

_PLACE: Final = attrgetter("topic", "partition", "offset")
_topic_of: Final = attrgetter("topic")
DIGEST_BYTES: Final = 16
SHARDS: Final = 16
NUMBER_BYTES, PARTITION_BYTES, _OFFSET_BYTES = 3, 3, 8
SIZE: Final = NUMBER_BYTES + PARTITION_BYTES + _OFFSET_BYTES
"""Bytes of an owner, and of an id."""


class Identified(msgspec.Struct, gc=False):
    """What step 2 found for the records of a batch, all by index.

    ids      the event's id as it goes into the header ``hapax-id``; b"" where none was found
    claims   the id with its source before it: what the claim store remembers
    replays  the coordinates that a replayed dead letter names as its original
    poison   records whose id cannot be read, with the reason
    """

    ids: Sequence[bytes]
    claims: Sequence[bytes]
    replays: dict[int, Coordinates]
    poison: dict[int, Poison]


class ClaimRequest(msgspec.Struct):
    """The ids that one call claims, ``ids[i]`` for ``records[i]``, and their bytes on the way.

    replays, gone  as in ``ports.Claims.claim``
    """

    ids: Sequence[bytes] = ()
    records: Sequence[Record | Coordinates] = ()
    replays: Mapping[int, Coordinates] = {}
    gone: Sequence[Coordinates] = ()

    def require_pairs(self) -> None:
        if len(self.ids) != len(self.records):
            raise ValueError(f"{len(self.ids)} ids for {len(self.records)} records")
        if self.gone and len(self.gone) != len(self.ids):
            raise ValueError(f"{len(self.ids)} ids for {len(self.gone)} owners")

    def topics(self) -> list[str]:
        return list(dict.fromkeys(each.topic for each in chain(self.owners(), self.gone)))

    def digests(self, salt: bytes) -> bytes:
        """Return 16 bytes of salted BLAKE2b for each id."""
        # A copy of a salted hash costs half of what a new one does.
        copy = blake2b(digest_size=DIGEST_BYTES, salt=salt).copy
        digests = []
        for each in self.ids:
            digest = copy()
            digest.update(each)
            digests.append(digest.digest())
        return b"".join(digests)

    def packed_owners(self, numbers: Mapping[str, bytes]) -> bytes:
        """Return 14 bytes for each owner; ``numbers``: of the topics."""
        return _packed(self.owners(), numbers)

    def packed_gone(self, numbers: Mapping[str, bytes]) -> bytes:
        return _packed(self.gone, numbers)

    def by_shard(
        self, digests: bytes, owners: bytes, gone: bytes
    ) -> tuple[Sequence[int], Sequence[int], bytes, bytes, bytes]:
        """Return indices by shard, how many each has, and in that order the rest.

        The shard is the last byte of a digest, modulo; of each digest 14 bytes are returned.
        """
        shards: list[list[int]] = [[] for _ in range(SHARDS)]
        for index, last in enumerate(digests[DIGEST_BYTES - 1 :: DIGEST_BYTES]):
            shards[last % SHARDS].append(index)
        indices = [*chain.from_iterable(shards)]
        named = _picked(digests, DIGEST_BYTES, indices)
        owned, gave_way = (_picked(each, SIZE, indices) for each in (owners, gone))
        return indices, [*map(len, shards)], named, owned, gave_way

    def owners(self) -> Sequence[Record | Coordinates]:
        if not self.replays:
            return self.records
        return [self.replays.get(index, record) for index, record in enumerate(self.records)]


def _packed(owners: Sequence[Record | Coordinates], numbers: Mapping[str, bytes]) -> bytes:
    packed = []
    topic, partition, head = "", -1, b""
    for owner in owners:
        if owner.partition != partition or owner.topic != topic:
            topic, partition = owner.topic, owner.partition
            head = numbers[topic] + partition.to_bytes(PARTITION_BYTES, "big")
        packed.append(head + owner.offset.to_bytes(_OFFSET_BYTES, "big"))
    return b"".join(packed)


def _picked(packed: bytes, width: int, indices: Sequence[int]) -> bytes:
    if not packed:
        return b""
    return b"".join([packed[at : at + SIZE] for at in map(width.__mul__, indices)])


class Facts(msgspec.Struct, frozen=True):
    """What telemetry reports of the records of a batch, without any of them."""

    records: int
    inputs: dict[str, int]
    without_id: int
    bytes_in: int
    oldest_timestamp_ms: int
    newest_timestamp_ms: int


class Outputs(Sequence[Message]):
    """What one transaction writes: what is ``listed``. The native path has others as well."""

    def __init__(self, listed: Sequence[Message] = ()) -> None:
        self.listed = listed

    def __len__(self) -> int:
        return len(self.listed)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.listed)

    def __getitem__(self, index: Any) -> Any:
        return self.listed[index]

    def topics(self) -> set[str]:
        return set(map(_topic_of, self.listed))

    def counts(self) -> dict[str, int]:
        """Return how many there are of each topic."""
        return dict(Counter(map(_topic_of, self.listed)))

    def hand_over(self, _send: Callable[[Any], None]) -> int:
        """Send what is not listed; return how many numbers of messages that took."""
        return 0


class Plan(msgspec.Struct, gc=False):
    """What one batch will do, all of it in one transaction.

    looped          records that have been on the cluster of the outputs, and are not written there
    retried, moved  records that wait: they asked for it, or were not due yet
    apart           the topic whose records have waited on purpose: their age is no latency
    """

    messages: Outputs
    progress: Progress
    sources: Sequence[int]  # by message: index of the record it comes from
    filtered: int = 0
    looped: int = 0
    duplicates: int = 0
    retried: int = 0
    moved: int = 0
    apart: str | None = None
    failures: dict[int, Failure] = msgspec.field(default_factory=dict)

    def add(self, messages: list[Message], sources: Iterable[int]) -> None:
        """Add what is written with the outputs."""
        self.sources = [*self.sources, *sources]
        self.messages.listed = [*self.messages.listed, *messages]


class Batch(msgspec.Struct, gc=False):
    """What one intake found.

    records  per partition in order, already free of everything below the next offset
    first    per partition the offset of its first record here: where a rewind goes
    next     per partition the next offset to read once these records have had their effect; it
             may be after control records and aborted data, and a partition may be here
             without records (end-of-partition events)
    unreadable  by index: records that the client cannot decode whole, with the reason
    marks    what to write into the metadata of the offsets that this batch commits
    base     per partition, with its first batch since the assignment: the offset that was committed
             then; it may lie below ``first``, where there is no record (deduplicate.py)
    """

    records: Sequence[Record]
    first: Progress = msgspec.field(default_factory=dict)
    next: Progress = msgspec.field(default_factory=dict)
    unreadable: dict[int, str] = msgspec.field(default_factory=dict)
    marks: Marks = msgspec.field(default_factory=dict)
    base: Progress = msgspec.field(default_factory=dict)

    def progress(self, done: int) -> Progress:
        """Return the next offsets once the first ``done`` records have had their effect."""
        if done == len(self.records):
            return self.next
        progress = {where: self.next[where] for where in self.next.keys() - self.first.keys()}
        for index in range(done):
            record = self.records[index]
            progress[(record.topic, record.partition)] = record.offset + 1
        return progress

    def places(self) -> Callable[[int], tuple[str, int, int]]:
        """Return what has topic, partition and offset of a record by its index."""
        records = self.records
        return lambda index: _PLACE(records[index])  # a third of the time of ``coordinates``

    def coordinates(self, index: int) -> Coordinates:
        """Return those of one record, also after its batch was sent."""
        return Coordinates(*self.places()(index))

    def plain(self, _found: Identified) -> Batch:
        """Return the batch whose rest the reference takes; what was found for it follows."""
        return self

    def identified(self, identify: Callable[[Sequence[Record]], Identified]) -> Identified:
        """Step 2."""
        return identify(self.records)

    def wanted(self, claims: Sequence[bytes]) -> Sequence[int]:
        """Return the indices of the records that have an id."""
        if b"" not in claims:
            return range(len(claims))
        return [index for index, claim in enumerate(claims) if claim]

    def request(self, found: Identified) -> ClaimRequest:
        """Return what claims the ids of all records."""
        return ClaimRequest(found.claims, self.records, found.replays)

    def name(self, ids: Sequence[bytes]) -> None:
        """Give each record its id, which business code may ask for."""
        for record, event_id in zip(self.records, ids, strict=True):
            if event_id:
                force_setattr(record, "event_id", event_id)

    def apply(
        self, each: Each, _function: Function, _judge: Judge, interrupt: Interrupt, preset: Preset
    ) -> Results:
        """Step 4; return the results of all records or of a prefix.

        ``each`` calls the function for one record after the other. ``judge`` says what an answer,
        or an error, amounts to. None: every record passes as it is.
        """
        return each(self.records, interrupt, preset)

    def answers(self, results: Results) -> Iterable[tuple[int, Result | None]]:
        """Return by index what is kept when the batch is aborted."""
        return enumerate(results)

    def plan(self, plan: Reference, _topic: str, results: Results, _progress: Progress) -> Plan:
        """Step 5. ``topic``: of plain outputs."""
        return plan(self.records, results)

    def facts(self, ids: Sequence[bytes], done: int) -> Facts:
        """Return those of the first ``done`` records."""
        records = self.records if done == len(self.records) else self.records[:done]
        timestamps_ms = [record.timestamp_ms for record in records]
        # The sum of ``size_of``, at a third of its cost.
        fields = sum([len(record.value or b"") + len(record.key or b"") for record in records])
        pairs = [record.headers for record in records if record.headers]
        return Facts(
            done,
            self._inputs(done),
            sum([not each for each in ids[:done]]),
            fields + sum([len(name) + len(value or b"") for each in pairs for name, value in each]),
            min(timestamps_ms, default=0),
            max(timestamps_ms, default=0),
        )

    def _inputs(self, done: int) -> dict[str, int]:
        topics = {topic for topic, _partition in self.first}
        if len(topics) == 1:  # the common case, without looking at each record
            return {topics.pop(): done}
        return dict(self._topics(done))

    def _topics(self, done: int) -> Counter[str]:
        return Counter([record.topic for record in islice(self.records, done)])

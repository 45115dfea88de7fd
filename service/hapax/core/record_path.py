"""The port RecordPath: the records of a batch, and all that is done to each of them.

Its four steps: take (``Source.take`` returns them as ``Batch.records``), claims (``ids`` and
``claims``), transform (``apply``) and send (``Prepared``). There are two implementations:

reference  a list of Record, and the Python of identity.py, transform.py and plan.py
native     hapax_fast, a sequence that makes a Record only when one is asked for

The native one takes the rule: ids in headers or keys, one plain output a record, no failure. A
batch of which a record is anything else becomes a list and takes the reference, whose outputs it
must equal (tests compare both, and the first records of a process go through both).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hapax.core.records import Coordinates, Output, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.core.interrupt import Interrupt
    from hapax.core.offset_commit import Marks
    from hapax.core.records import Message, Progress
    from hapax.core.results import Result

_PLACE: Final = attrgetter("topic", "partition", "offset")
UNCHANGED: Final = Output(None)
"""The result that stands for the record as it is, by identity: no object is made for each."""


class Ids(Sequence[bytes]):
    """Ids by index, b"" where a record has none."""

    @property
    @abstractmethod
    def missing(self) -> int:
        """How many records have none."""

    @abstractmethod
    def digests(self, salt: bytes) -> bytes:
        """Return 16 bytes of salted BLAKE2b for each; 16 zero bytes where there is none."""

    @abstractmethod
    def by_shard(
        self, digests: bytes, owners: bytes, shards: int
    ) -> tuple[bytes, Sequence[int], bytes, bytes]:
        """Sort digests, and owners of 14 bytes, by shard: the last byte of a digest, modulo.

        Return the indices in that order, as 4 bytes each of this machine; how many each shard has;
        14 bytes of each digest; the owners.
        """


class RecordPath(Sequence[Record]):
    """The native records of one batch.

    ids      of the records; claims: with the tags of their sources
    runs     (topic, partition, start, count, first offset, next offset, first epoch, last epoch)
             of records that follow each other
    regular  whether every record is the rule, as far as records alone show
    ends     (topic, partition, offset) of ends of partitions that were met
    """

    ids: Ids
    claims: Ids
    runs: Sequence[tuple[str, int, int, int, int, int, int, int]]
    regular: bool
    ends: Sequence[tuple[str, int, int]]

    @abstractmethod
    def apply(
        self,
        function: Callable[[Record], object] | None,
        judge: Callable[[Record, object, Exception | None], Result],
        interrupt: Interrupt,
        preset: dict[int, Result | None],
    ) -> list[Result | None]:
        """Return the results of ``function``, of all records or of a prefix.

        An Output stands for the tuple of it. ``judge`` says what any other answer, and an error,
        amounts to. None: every record is UNCHANGED. Records in ``preset`` have their result there.
        """

    @abstractmethod
    def tally(self, results: list[Result | None]) -> tuple[int, int, int] | None:
        """Return how many are outputs, filtered and duplicates; None: one is not the rule."""

    @abstractmethod
    def coordinates(self, index: int) -> tuple[str, int, int]:
        """Return topic, partition and offset, also once the records have been sent."""

    @abstractmethod
    def owners(self, heads: Sequence[bytes]) -> bytes:
        """Return for each record the head of its run and its offset in 8 bytes; heads are alike."""

    @abstractmethod
    def facts(self, done: int) -> tuple[int, int, int, int]:
        """Return of the first ``done``: their sizes, oldest and newest timestamp, ids."""


class Prepared(Sequence["Message"]):
    """Outputs of a batch that the native path makes as it sends them.

    ``reference`` makes the same, one by one, as long as they have not been sent. ``more``: messages
    of the same transaction, which are sent after them as they are.
    """

    def __init__(
        self,
        records: RecordPath,
        results: list[Result | None],
        topic: str,
        count: int,
        reference: Callable[[], Sequence[Message]],
    ) -> None:
        self.records = records
        self.results = results
        self.topic = topic
        self.outputs = count
        self.more: Sequence[Message] = ()
        self.reference = reference

    def __len__(self) -> int:
        return self.outputs + len(self.more)

    def __iter__(self) -> Iterator[Message]:
        return chain(self.reference(), self.more)

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]


class Batch(msgspec.Struct, gc=False):
    """What one intake found.

    records  per partition in order, already free of everything below the next offset; a list, or
             the native ones (record_path.py)
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
    first: Progress
    next: Progress
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
        if isinstance(self.records, RecordPath):
            return self.records.coordinates
        records = self.records
        return lambda index: _PLACE(records[index])  # a third of the time of ``coordinates``

    def coordinates(self, index: int) -> Coordinates:
        """Return those of one record, also after its batch was sent."""
        return Coordinates(*self.places()(index))

"""What the transaction coordinators write down of every transactional id. Pure.

The log of the coordinators is the topic ``__transaction_state``: by key the transactional id, by
value its producer, its state and its partitions (Kafka's TransactionLogKey.json and
TransactionLogValue.json, versions 0 and 1). It is what a coordinator reads back after a crash, so
it is the truth, and any consumer with the right to read the topic may look.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.records import TopicPartition

OFFSETS = "__consumer_offsets"
"""Where groups commit: a transaction that is open there holds their offsets back."""

_NAMES = ("empty", "open", "committing", "aborting", "committed", "aborted", "dead", "fencing")
STATES = dict(enumerate(_NAMES))
_DECIDED = frozenset({"committed", "aborted"})
_UNDECIDED = frozenset({"open", "committing", "aborting", "fencing"})
_DECIDES = {"committing": "committed", "aborting": "aborted"}
_VERSION_MAX = 1


class TransactionState(msgspec.Struct, frozen=True, kw_only=True):
    """The last that a coordinator wrote down of a transactional id; times in Unix time."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: str
    partitions: tuple[TopicPartition, ...]
    updated_ms: int
    started_ms: int

    @property
    def undecided(self) -> bool:
        return self.state in _UNDECIDED

    def age_s(self, now_ms: int) -> float | None:
        """Return how long the transaction has been undecided; None when none is."""
        if not self.undecided:
            return None
        return max(0.0, (now_ms - max(self.started_ms, 0)) / 1000)

    def overdue(self, now_ms: int) -> bool:
        age_s = self.age_s(now_ms)
        return age_s is not None and age_s > 2 * self.timeout_ms / 1000


class Decision(NamedTuple):
    """How the transaction of an id was decided that a producer had in one partition."""

    transactional_id: str
    outcome: str


def decisions(state: TransactionState) -> dict[tuple[int, TopicPartition], Decision]:
    """Return what a coordinator decided by this record, by producer and partition.

    The last of them is about whatever the producer still has open there: a later transaction in
    the same partition would have ended it. It outlives the states after it: a producer that has
    registered again is "empty", whatever became of the markers before.
    """
    outcome = _DECIDES.get(state.state)
    if outcome is None:
        return {}
    made = Decision(state.transactional_id, outcome)
    return {(state.producer_id, where): made for where in state.partitions}


def state_of(key: bytes | None, value: bytes | None) -> TransactionState | str | None:
    """Return the id alone when it has expired; None: unknown versions, or unreadable."""
    try:
        reader = _Reader(key or b"")
        if reader.number(">h") != 0:
            return None
        transactional_id = reader.take(reader.number(">h")).decode()
        return transactional_id if value is None else _state(transactional_id, value)
    except (struct.error, UnicodeDecodeError, IndexError, KeyError):
        return None


def ours(transactional_id: str, app: str) -> bool:
    """Whether an id can be of this pipeline: app, then an instance's name or a word of Hapax."""
    known = re.fullmatch(r"[A-Za-z0-9._/:-]+", transactional_id) is not None
    return known and transactional_id.startswith((f"{app}:", f"{app}/"))


def blamed(where: TopicPartition, states: Sequence[TransactionState]) -> list[str]:
    return [
        one.transactional_id for one in states if one.undecided and where in set(one.partitions)
    ]


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A producer whose transaction is open in a partition, as the partition's leader knows it.

    start             the first offset of the transaction there
    last_ms           when it wrote last, Unix time
    transactional_id  None: not known
    hanging           whether its coordinator knows nothing of the transaction, so that nothing
                      ends it by itself (KIP-664); None: what coordinators know is not known
    decided           how the last transaction of this producer here ended, as its coordinator
                      wrote down: committed, aborted; None: not known. A coordinator may lose
                      markers that it still owed (docs/non-obvious.md): what they would be
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start: int
    last_ms: int
    transactional_id: str | None = None
    hanging: bool | None = None
    decided: str | None = None

    @property
    def of_offsets(self) -> bool:
        """Whether it holds offsets of a group back, and no records."""
        return self.topic == OFFSETS


def explained(
    one: Holder,
    states: Sequence[TransactionState],
    decided: Mapping[tuple[int, TopicPartition], Decision],
) -> Holder:
    """Return it with what the coordinators know of its producer.

    ``states`` must have been read after the producers were asked for: a coordinator writes down a
    partition before the first record of the transaction in it.
    """
    owners = [state for state in states if state.producer_id == one.producer_id]
    known = any(
        state.undecided and (one.topic, one.partition) in state.partitions for state in owners
    )
    # Where the log was compacted, the last state may be all that is left.
    named = [Decision(own.transactional_id, own.state) for own in owners]
    made = decided.get((one.producer_id, (one.topic, one.partition)))
    told = [made, *named] if made is not None else named
    return msgspec.structs.replace(
        one,
        transactional_id=told[0].transactional_id if told else None,
        hanging=not known,
        decided=next((each.outcome for each in told if each.outcome in _DECIDED), None),
    )


def _state(transactional_id: str, value: bytes) -> TransactionState | None:
    reader = _Reader(value)
    version = reader.number(">h")
    if not 0 <= version <= _VERSION_MAX:
        return None
    reader.flexible = version > 0
    producer_id, epoch = reader.number(">q"), reader.number(">h")
    timeout_ms, state = reader.number(">i"), STATES[reader.number(">b")]
    partitions: list[TopicPartition] = []
    for _ in range(reader.length()):
        topic = reader.take(reader.length(">h")).decode()
        partitions += [(topic, reader.number(">i")) for _ in range(reader.length())]
        reader.skip_tags()
    return TransactionState(
        transactional_id=transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=tuple(sorted(partitions)),
        updated_ms=reader.number(">q"),
        started_ms=reader.number(">q"),
    )


class _Reader:
    """Kafka's encoding of numbers, texts and lists; ``flexible`` is the compact one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.flexible = False

    def number(self, form: str) -> int:
        (found,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def take(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise IndexError(length)
        self._at += length
        return self._data[self._at - length : self._at]

    def length(self, form: str = ">i") -> int:
        """Return the length of a list or text; that of none is 0."""
        return max(0, self._varint() - 1 if self.flexible else self.number(form))

    def skip_tags(self) -> None:
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                self.take(self._varint())

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # the top bit says that more follows
                return number
            shift += 7

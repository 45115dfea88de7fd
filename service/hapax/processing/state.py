"""Keyed state as a transform has it: what it keeps for the key of its record.

``def transform(record, state)``: a call reads through its own changes, those of the calls before it
in the batch, and the store of what is committed; it writes into the first. keyed_state.py says what
becomes of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, overload

import msgspec

from hapax.core.durations import given_ms
from hapax.core.errors import Poison, StateTypeError
from hapax.core.records import Output

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from typing_extensions import TypeVar

    from hapax.core.records import Record, TopicPartition

    Value = TypeVar("Value", default=Any)
    Other = TypeVar("Other", default=Any)
else:
    from typing import TypeVar

    Value, Other = TypeVar("Value"), TypeVar("Other")

Changes = dict[bytes, bytes | None]
"""Values by entry, in MessagePack; None: the entry is deleted. One that expires begins with EXPIRES
and the Unix time in ms, in 8 bytes."""
EXPIRES: Final = b"\xc1"
"""A byte that begins no value of MessagePack."""
_DUE: Final = struct.Struct(">Q")
_DUE_END: Final = 1 + _DUE.size
TTL_MAX_MS: Final = 36_525 * 86_400_000
NAME_BYTES_MAX: Final = 128
_HEAD: Final = struct.Struct(">II")
_MISSING: Final[Any] = object()
encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder().decode
"""As the functions of msgspec, which make an encoder and a decoder for each call."""


def prefix_of(partition: int, key: bytes) -> bytes:
    """Return what the entries of a key begin with, and no others: lengths come before contents."""
    return _HEAD.pack(partition, len(key)) + key


def changelog_key(entry: bytes) -> bytes:
    """Return the key of an entry in the changelog: its name, a NUL, the record's key."""
    end = _HEAD.size + int.from_bytes(entry[4:8], "big")
    return entry[end:] + b"\0" + entry[_HEAD.size : end]


def parts_of(entry: bytes) -> tuple[int, bytes, str]:
    """Return partition, key and name of an entry."""
    partition, length = _HEAD.unpack_from(entry)
    end = _HEAD.size + length
    return partition, entry[_HEAD.size : end], entry[end:].decode(errors="replace")


def entry_of(partition: int, key: bytes) -> bytes:
    """Return the entry that a key of the changelog stands for."""
    name, _nul, own = key.partition(b"\0")
    return _HEAD.pack(partition, len(own)) + own + name


def due_ms(value: bytes) -> int | None:
    """Return when a value expires, in Unix ms; None: never."""
    due = value.startswith(EXPIRES) and len(value) >= _DUE_END
    return _DUE.unpack_from(value, 1)[0] if due else None


def content_of(value: bytes) -> bytes:
    """Return the MessagePack of a value."""
    return value if due_ms(value) is None else value[_DUE_END:]


class ChangelogPiece(msgspec.Struct):
    """Some of a partition of the changelog.

    changes  the last of each entry
    next     offset after them
    source   the highest offset of the input that they come from; -1: none says
    others   the same of other inputs, by topic
    deleted  entries that were, each with the offset of the input that it comes from
    """

    changes: Changes
    next: int = -1
    source: int = -1
    others: dict[str, int] = {}
    deleted: list[tuple[int, bytes]] = []


Spans = Mapping[int, tuple[int, int]]
"""By partition of the changelog, the first offset, and that after the last one."""


class StateFigures(NamedTuple):
    """What a process keeps as state.

    size_bytes  pages in use; size_max_bytes: as many as it may have
    restoring   partitions that wait for theirs: offsets read of the changelog, of how many; None:
                not known yet
    """

    size_bytes: int
    size_max_bytes: int
    entries: int
    restoring: Mapping[TopicPartition, tuple[int, int | None]]


AGAIN = "state of before is gone: hapax offsets rewind --to earliest --drop-state computes it again"


def changelog_problem(
    topic: str, count: int, wanted: int, policy: str | None
) -> tuple[str, str] | None:
    """Return why a topic cannot keep state, and what to do; None: it can.

    ``count``: its partitions; ``wanted``: those of the input; ``policy``: None: not known.
    """
    what = f"topic {topic}, which keeps its state,"
    if not count:
        saw = f"{what} does not exist or may not be read, and the input has {wanted} partitions"
        return saw, f"create it with as many, and cleanup.policy=compact; if it was there, {AGAIN}"
    if count != wanted:
        add = "add as many; keys that have another partition by that begin without state"
        saw = f"{what} has {count} partitions, and the input has {wanted}"
        return saw, add if count < wanted else "add partitions to the input"
    deletes = f"{what} has cleanup.policy={policy}, which deletes what is not changed for a while"
    return None if policy in {"compact", None} else (deletes, "set it to compact")


def unlike(counts: Mapping[str, int]) -> str | None:
    """Return why inputs cannot share state, by their numbers of partitions; None: they can."""
    if len(set(counts.values())) <= 1:
        return None
    each = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
    return f"inputs share state by partition, and their numbers of partitions differ: {each}"


class State(Generic[Value]):
    """The state of one key, for one call. Names divide it; values are what MessagePack can hold.

    With ``State[Basket]`` values are of that type, which msgspec checks when they are read.
    """

    __slots__ = ("_decode", "_prefix", "_store", "at_ms", "batch", "changes")

    def __init__(
        self,
        record: Record,
        batch: Changes,
        store: Callable[[bytes], bytes | None],
        decode: Callable[[bytes], Any],
    ) -> None:
        if record.key is None:
            raise Poison("the record has no key, and state is kept by key")
        self._prefix = prefix_of(record.partition, record.key)
        self.at_ms = record.timestamp_ms
        self.batch = batch
        self._store = store
        self._decode = decode
        self.changes: Changes = {}

    def end(self) -> Changes:
        """End the call; return what it has changed. Who keeps this object changes no more by it."""
        changes, self.changes = self.changes, _Over()
        return changes

    @overload
    def get(self, name: str) -> Value | None: ...
    @overload
    def get(self, name: str, default: Other) -> Value | Other: ...
    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of this name; the default where there is none, or it has expired."""
        entry = self._entry(name)
        found: Any = self.changes.get(entry, _MISSING)
        if found is _MISSING:
            found = self.batch.get(entry, _MISSING)
        if found is _MISSING:
            found = self._store(entry)
        if found is not None and (due := due_ms(found)) is not None:
            found = None if due <= self.at_ms else found[_DUE_END:]
        if found is None:
            return default
        try:
            return self._decode(found)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateTypeError(
                f"the state {name!r} of key {self._prefix[_HEAD.size :]!r:.99} is not what the"
                f" transform expects: {error}. Give the new type another name, or a default for"
                " what is new in it"
            ) from error

    def set(self, name: str, value: Value, ttl: str | float | timedelta | None = None) -> None:
        """Keep a value under this name, as it is now.

        ``ttl``: ``30m``, a timedelta or seconds, from the timestamp of this record on. Records of
        that time or later find it no more. Time is that of records: the same after a replay.
        """
        entry = self._entry(name)
        due = b"" if ttl is None else EXPIRES + _DUE.pack(self._due_ms(ttl))
        try:
            kept = encode(value)
            if self._decode is not decode:  # or the next call that reads it would stop the process
                self._decode(kept)
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            raise Poison(f"the state {name!r} cannot be kept: {error}") from error
        self.changes[entry] = due + kept

    def delete(self, name: str) -> None:
        """Keep nothing under this name."""
        self.changes[self._entry(name)] = None

    def _due_ms(self, ttl: str | float | timedelta) -> int:
        if self.at_ms <= 0:
            raise Poison("the record has no timestamp, and what is kept expires by it")
        try:
            after_ms = given_ms(ttl)
        except (TypeError, ValueError, OverflowError) as wrong:
            raise Poison(f"ttl={ttl!r:.99}: {wrong}") from wrong
        if not 0 < after_ms <= TTL_MAX_MS:
            raise Poison(f"ttl={ttl!r:.99}: it must be longer than nothing, and at most 100 years")
        return self.at_ms + after_ms

    def _entry(self, name: str) -> bytes:
        return self._prefix + _checked(name)


class _Over(dict[bytes, "bytes | None"]):
    """Changes of a call that has ended."""

    def get(self, *_: object) -> Any:
        raise RuntimeError("a state is of one call: the call that was given this one has ended")

    __setitem__ = get


@lru_cache(maxsize=256)
def _checked(name: object) -> bytes:
    word = name.encode() if isinstance(name, str) else b""
    if not word or len(word) > NAME_BYTES_MAX or b"\0" in word:
        raise Poison(f"{name!r:.150} is no name of a state: 1 to {NAME_BYTES_MAX} bytes, no NUL")
    return word


class Stated(tuple[Output, ...]):
    """The outputs of a call, with what it has changed, and its record's timestamp: a result."""

    changes: Changes
    at_ms: int


class Answered:
    """What a transform has answered, until its outputs are collected: a generator still runs."""

    __slots__ = ("_bytes_max", "_state", "answer")

    def __init__(self, answer: object, state: State[Any], bytes_max: int) -> None:
        self.answer = answer
        self._state = state
        self._bytes_max = bytes_max

    def result(self, outputs: tuple[Output, ...]) -> tuple[Stated, int]:
        """Return the result, and the bytes of its changes; calls after this one see them.

        Raises Poison for an entry that is larger than the changelog takes.
        """
        stated = Stated(outputs)
        stated.changes = changes = self._state.end()
        stated.at_ms = self._state.at_ms
        whole = 0
        for entry, value in changes.items():
            whole += (size := len(entry) + len(value or b""))
            if size > self._bytes_max:
                raise Poison(
                    f"the state {parts_of(entry)[2]!r} has {size:,} bytes with its key, and its"
                    f" topic takes {self._bytes_max:,}: keep less under one name, or raise"
                    " max.message.bytes of the topic"
                )
        self._state.batch.update(changes)
        return stated, whole

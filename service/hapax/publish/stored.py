"""How a record lies in the spool: a list in MessagePack, without what follows from its sequence.

What is published next is read and decoded while the transaction before it commits: a commit waits
for brokers, and decoding costs as much as producing (``python -m bench.spool``).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hapax.core.headers import is_text
from hapax.core.records import Message
from hapax.kafka.properties import SOCKET_TIMEOUT_MS
from hapax.processing.limits import Pace
from hapax.spool.spool import ROW_RECORDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.settings import Settings
    from hapax.spool.spool import SpoolRow, SpoolStore

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Message]).decode
_BYTES_MIN = 1 << 17
_ARRAY = b"\xdd"
"""In MessagePack: the count follows, as four bytes, and then so many values."""


def stored(message: Message, now_ms: int) -> bytes:
    """Return the bytes of a record; without a time it gets this one."""
    timed = message.timestamp_ms is not None
    return _encode(message if timed else replace(message, timestamp_ms=now_ms))


def with_id(
    headers: Iterable[Any], id_header: str, given: str | bytes | None
) -> list[tuple[str, bytes | None]]:
    """Return the headers with the id that a caller has given, if any, in place of another."""
    if given is None:
        return [*headers]
    value: Any = given.encode() if isinstance(given, str) and is_text(given) else given
    kept = [one for one in headers if not isinstance(one, tuple) or one[:1] != (id_header,)]
    return [*kept, (id_header, value)]


def message_id(spool: str, sequence: int) -> bytes:
    return f"{spool}/{sequence}".encode()


def messages(row: SpoolRow, spool: str, id_header: str) -> list[Message]:
    """Return what to produce; a record without the header of ids gets its own."""
    prefix = f"{spool}/".encode()
    found = _decode(b"".join((_ARRAY, row.records.to_bytes(4), row.content)))
    for sequence, message in enumerate(found, row.first):
        headers = message.headers
        if not headers or id_header not in {name for name, _ in headers}:
            headers.append((id_header, b"%b%d" % (prefix, sequence)))
    return found


class Upcoming(NamedTuple):
    """Records of one transaction. ``first``: sequence of the first; ``size``: how many."""

    first: int
    size: int
    size_bytes: int
    pieces: Iterable[list[Message]]

    @property
    def following(self) -> int:
        return self.first + self.size


class ReadAhead:
    """Reads the spool for one thread, of which ``begin`` reads ahead on another."""

    def __init__(self, spool: SpoolStore, settings: Settings, id_header: str) -> None:
        self._spool = spool
        limits = settings.transaction
        self._bytes_max, self._bytes = limits.bytes_max, float(_BYTES_MIN)
        # One request that takes longer than a socket's timeout on the link is sent again.
        timeout_s = min(limits.timeout_ms, 2 * SOCKET_TIMEOUT_MS) / 1000
        self._aimed_s = timeout_s / 4
        self.pace = Pace(
            interval_s=limits.interval_ms / 1000,
            records_max=limits.records_max,
            bytes_max=limits.bytes_max,
            transaction_timeout_s=timeout_s,
        )
        self._id_header = id_header
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hapax-read-ahead")
        self._begun: tuple[int, Future[Upcoming]] | None = None

    def begin(self, sequence: int) -> None:
        """Read on from a sequence, if there is anything; ``take`` returns it."""
        self.forget()
        if sequence < self._spool.next:
            self._begun = sequence, self._pool.submit(self._decoded, sequence)

    def take(self, sequence: int) -> Upcoming:
        """Return acknowledged records; raise SpoolDamagedError, SpoolFailedError."""
        begun, self._begun = self._begun, None
        if begun is not None:
            found = begun[1].result()
            if begun[0] == sequence:
                return found
        # Decoded row by row: the client sends while the next are decoded.
        return self._upcoming(sequence)

    def record_commit(self, taken: Upcoming, transaction_s: float) -> None:
        """Learn from a transaction: at most twice its bytes come next, in larger records, too."""
        growth = min(2.0, max(1.0, self._aimed_s / transaction_s))
        self._bytes = max(_BYTES_MIN, growth * taken.size_bytes)
        if taken.size:
            self.pace.record_commit(taken.size, 0.0, taken.size_bytes, transaction_s)

    def forget(self) -> None:
        """Wait for what was begun, and drop it."""
        if self._begun is not None:
            self._begun[1].exception()  # the next read there meets it
            self._begun = None

    def close(self) -> None:
        self.forget()
        self._pool.shutdown()

    def _decoded(self, sequence: int) -> Upcoming:
        upcoming = self._upcoming(sequence)
        return upcoming._replace(pieces=[*upcoming.pieces])

    def _upcoming(self, sequence: int) -> Upcoming:
        records_max = self.pace.records
        bytes_max = min(int(self._bytes), self._bytes_max)
        rows = self._spool.read(sequence, records_max + ROW_RECORDS_MAX, bytes_max)
        after = min(sequence + records_max, rows[-1].first + rows[-1].records if rows else sequence)
        rows = [row for row in rows if row.first < after]
        spool, id_header = self._spool.meta.id, self._id_header
        pieces = (
            messages(row, spool, id_header)[max(0, sequence - row.first) : after - row.first]
            for row in rows
        )
        size_bytes = sum(len(row.content) for row in rows)
        return Upcoming(sequence, after - sequence, size_bytes, pieces)

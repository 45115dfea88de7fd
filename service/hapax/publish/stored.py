"""Which records are accepted, and how one lies in the spool: a list in MessagePack.

What follows from its sequence is not in it.

What is published next is read and decoded while the transaction before it commits: a commit waits
for brokers, and decoding costs as much as producing (``python -m bench.spool``).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from hapax.cluster.topic_rules import TopicTakes
from hapax.core.errors import HapaxError, PreflightError
from hapax.core.headers import is_header, is_text
from hapax.core.records import Message
from hapax.kafka.admin.topics import SET_BYTES, topic_takes
from hapax.kafka.properties import SOCKET_TIMEOUT_MS, producer_properties
from hapax.processing.limits import Pace
from hapax.processing.transform import PARTITION_MAX, TIMESTAMP_MAX, is_number, is_topic
from hapax.spool.spool import ROW_RECORDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


# -- What can be known to be refused is refused to the caller, before it is accepted ---------------


ASK_AGAIN_S = 30.0
_HEADER_BYTES, _ID_BYTES = 6, 56
"""What a header adds to its name and value; ``<spool>/<sequence>`` at its longest."""


class RecordRefusedError(HapaxError):
    """The client or the brokers would not take this record; nothing of the call was accepted."""


class Acceptance:
    """Asks once about each topic, while brokers answer; without an answer they judge later."""

    def __init__(self, settings: Settings, id_header: str) -> None:
        self._settings = settings
        self._id_header = id_header
        # The client refuses by this whatever becomes of it in a compressed set.
        properties = producer_properties(settings, transactional=False)
        self._bytes_max = int(properties["message.max.bytes"])
        self._unknown = TopicTakes(PARTITION_MAX, None)
        self._limits: dict[str, TopicTakes] = {}
        self._asked_s: dict[str, float] = {}
        self._ask_from_s = 0.0

    def check(self, messages: Iterable[Message], *, away: bool) -> None:
        """Raise RecordRefusedError for what is no record, and for one that its topic refuses.

        ``away``: brokers are known not to answer, so this does not wait for them.
        """
        now_ms = int(time.time() * 1000)
        for message in messages:
            if why := next(_problems(message), None):
                raise RecordRefusedError(f"a record was not accepted: {why}")
            limit = self._limits.get(message.topic, self._unknown)
            # Asked again before a record is refused: settings of a topic change.
            if not away and (limit is self._unknown or self._refusal(limit, message, now_ms)):
                limit = self.ask(message.topic) or limit
            if why := self._refusal(limit, message, now_ms):
                raise RecordRefusedError(f"a record was not accepted: {why}")

    def knows(self, topic: str) -> bool:
        return topic in self._limits

    def ask(self, topic: str) -> TopicTakes | None:
        """Ask unless an answer is new; None: no broker answers. Raises RecordRefusedError."""
        now_s = time.monotonic()
        if now_s < max(self._ask_from_s, self._asked_s.get(topic, -ASK_AGAIN_S) + ASK_AGAIN_S):
            return self._limits.get(topic)
        try:
            limit = topic_takes(self._settings, topic)
        except PreflightError:
            self._ask_from_s = time.monotonic() + ASK_AGAIN_S
            return None
        if not limit.partitions:
            raise RecordRefusedError(
                f"topic {topic} does not exist or may not be written: nothing was accepted for it"
            )
        self._limits[topic], self._asked_s[topic] = limit, time.monotonic()
        return limit

    def _refusal(self, limit: TopicTakes, message: Message, now_ms: int) -> str | None:
        topic, partition, size = message.topic, message.partition, self._size(message)
        if partition >= limit.partitions:
            return f"it names partition {partition} of topic {topic}, which has {limit.partitions}"
        if limit.bytes_max is not None and size + SET_BYTES > limit.bytes_max:
            takes = f"topic {topic} takes {limit.bytes_max:,} (max.message.bytes)"
            return f"it has {size + SET_BYTES:,} bytes, and {takes}"
        if size > self._bytes_max:
            return f"it has {size:,} bytes, and the client sends {self._bytes_max:,}"
        return limit.rules.refusal(topic, message.key, message.timestamp_ms, now_ms)

    def _size(self, message: Message) -> int:
        size, own = len(message.value or b"") + len(message.key or b""), self._id_header
        for name, value in message.headers:
            size += len(name.encode()) + len(value or b"") + _HEADER_BYTES
            own = "" if name == own else own
        return size + (len(own) + _ID_BYTES + _HEADER_BYTES if own else 0)


def _problems(message: Any) -> Iterator[str]:
    """Yield why this is a record of no topic: the client would refuse it, or change it."""
    if type(message) is not Message:
        yield f"it must be a Message of hapax.core.ports, not {type(message).__name__}"
        return
    fields: Any = astuple(message)
    topic, value, key, partition, time_ms, headers = fields
    if not isinstance(topic, str) or not is_topic(topic):
        yield f"no topic can have this name: {topic!r:.300}"
    for name, content in (("value", value), ("key", key)):
        if content is not None and not isinstance(content, bytes):
            yield f"its {name} must be bytes or None, not {type(content).__name__}"
    if type(partition) is not int or not -1 <= partition <= PARTITION_MAX:
        yield f"its partition must be a number, or -1 for any: {partition!r:.99}"
    if time_ms is not None and not is_number(time_ms, TIMESTAMP_MAX):
        yield f"its timestamp_ms must be a number from 0 to 2^63-1, or None: {time_ms!r:.99}"
    if not isinstance(headers, list | tuple) or not all(map(is_header, headers)):
        wanted = "pairs of str, in UTF-8 and without NUL, and bytes or None"
        yield f"its headers must be {wanted}: {headers!r:.300}"

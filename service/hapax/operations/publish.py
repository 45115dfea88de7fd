"""``hapax publish``: lines of text to records of an input."""

from __future__ import annotations

import time
import uuid
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import HapaxError, Poison
from hapax.core.json_pointer import JsonPointer
from hapax.core.records import Message
from hapax.kafka.produce.publish import Sender
from hapax.operations.rows import RowForm, SourceRow, SourceRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hapax.operations.reading import Tell
    from hapax.settings import Settings

SHOWN_EVERY = 5_000
RANDOM, CONTENT, SPOOL = "random", "content", "spool"


class LineError(ValueError):
    """A line that no record can be made of; the text names it."""


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """How lines become records.

    form      of the lines: as they are, CSV with a header, JSON
    key       of every record; key_pointer: a JSON pointer to it in the line
    id        of every record; id_pointer: a JSON pointer to it; id_from: else RANDOM, or CONTENT,
              the line's hash, so that the same line is the same event, or SPOOL: none, the spool
              has one for each record
    value_pointer  a JSON pointer to the text that is the value; empty: the whole line
    id_header the header that carries the id; headers: further ones
    """

    topic: str
    form: RowForm = "lines"
    key: bytes | None = None
    key_pointer: str = ""
    id: bytes | None = None
    id_pointer: str = ""
    id_from: str = RANDOM
    value_pointer: str = ""
    id_header: str = "message-id"
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def messages(self, lines: Iterable[bytes], now_ms: Callable[[], int]) -> Iterator[Message]:
        """Yield a message for each row that is not empty. Raises LineError."""
        make = self.maker()
        for row in SourceRows(self.form, lines):
            yield make(row, now_ms())

    def maker(self) -> Callable[[SourceRow, int | None], Message]:
        """Return what makes a message of a row and a time in ms; it raises LineError."""
        ids, keys, values = (
            JsonPointer(pointer) if pointer else None
            for pointer in (self.id_pointer, self.key_pointer, self.value_pointer)
        )

        def make(row: SourceRow, now_ms: int | None) -> Message:
            if row.problem:
                raise LineError(f"line {row.line} {row.problem}")
            event_id = self._id(row.value) if ids is None else _found(ids, row, self.id_pointer)
            key = self.key if keys is None else _found(keys, row, self.key_pointer)
            value = row.value if values is None else _found(values, row, self.value_pointer)
            headers = list(self.headers)
            if event_id:
                headers.append((self.id_header, event_id))
            return Message(self.topic, value, key, -1, now_ms, headers)

        return make

    def _id(self, line: bytes) -> bytes:
        if self.id is not None:
            return self.id
        if self.id_from == CONTENT:
            return sha256(line).hexdigest().encode()
        if self.id_from == SPOOL:
            return b""
        return str(uuid.uuid4()).encode()


def _found(pointer: JsonPointer, row: SourceRow, text: str) -> bytes:
    try:
        found = pointer.find(row.value)
    except Poison as error:
        raise LineError(f"line {row.line} is not JSON") from error
    if not found:
        raise LineError(f"line {row.line} has no text and no whole number at {text}")
    return found


def publish(
    settings: Settings, how: Lines, lines: Iterable[bytes], tell: Tell, *, transactional: bool
) -> Sender:
    """Write every line, and return when each is known to be delivered or not.

    Raises PreflightError, and HapaxError for a line that no record can be made of: nothing after it
    is written, and in a transaction nothing at all.
    """
    sender = Sender(settings, f"{settings.app}/publish" if transactional else "")
    sender.open(how.topic)
    try:
        # Topics may be set to replace it; here it is when the line was read.
        messages = how.messages(lines, lambda: time.time_ns() // 1_000_000)
        sender.send(_counted(messages, tell))
    except LineError as error:
        sender.abort()
        so_far = (
            "nothing was published" if transactional else f"{sender.delivered:,} before it were"
        )
        raise HapaxError(f"{error}; {so_far}") from error
    except BaseException:
        sender.abort()
        raise
    sender.close()
    return sender


def _counted(messages: Iterable[Message], tell: Tell) -> Iterator[Message]:
    for count, message in enumerate(messages, 1):
        yield message
        if count % SHOWN_EVERY == 0:
            tell(f"published {count:,}")

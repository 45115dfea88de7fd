"""``hapax publish``: lines of text to records of an input."""

from __future__ import annotations

import os
import stat
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

    from hapax.core.ports import Tell
    from hapax.settings import Settings

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
    settings: Settings,
    how: Lines,
    lines: Iterable[bytes],
    tell: Tell,
    *,
    transactional: bool,
    size: int | None = None,
) -> Sender:
    """Write every line, and return when each is known to be delivered or not.

    Raises PreflightError, and HapaxError for a line that no record can be made of: nothing after it
    is written, and in a transaction nothing at all. ``size``: of the file in bytes; None: a pipe.
    """
    sender = Sender(settings, how.topic, f"{settings.app}/publish" if transactional else "")
    sender.open()
    try:
        sender.send(_messages(how, lines, tell, size))
    except LineError as error:
        sender.abort()
        done = (
            "nothing was published"
            if transactional
            else f"{sender.delivered:,} before it were published"
        )
        raise HapaxError(f"{error}; {done}") from error
    except BaseException:
        sender.abort()
        raise
    sender.close()
    return sender


def _messages(
    how: Lines, lines: Iterable[bytes], tell: Tell, size: int | None
) -> Iterator[tuple[int, Message]]:
    make = how.maker()
    for count, row in enumerate(SourceRows(how.form, lines), 1):
        # Topics may be set to replace the time; here it is when the line was read.
        yield row.line, make(row, time.time_ns() // 1_000_000)
        tell("published", count, likely(count, row.end, size))


def file_bytes(descriptor: int) -> int | None:
    """Return the size of a regular file; None of anything else, as a pipe."""
    found = os.fstat(descriptor)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def likely(count: int, read_bytes: int, all_bytes: int | None) -> int | None:
    """Return how many records all bytes have if they are like those that were read."""
    return round(count * all_bytes / read_bytes) if read_bytes and all_bytes else None

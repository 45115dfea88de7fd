"""The headers that Hapax writes and reads: the contract on the wire, in one place. Pure.

    ID         the event's id; the source where the record had none
    SOURCE     topic/partition/offset of the record that an output or dead letter comes from
    PART       which of how many outputs, as 2/3; only where there are several
    UNCHECKED  made while the claim store was away: may be a duplicate
    REPLAY_OF  of a replay, and of its dead letter: the record whose claim it has
    REPLAYED   of a note in the dead-letter topic: how many dead letters it names
    BATCH      of a micro-batch's row: query/number/row/app
    PATH       of outputs on another cluster: the ids of the clusters before it, joined by commas
    VALUE_SCHEMA  the schema of a value, as serializers of others write it
    and those of dead letters, which are the fields of ``Failed``, and of records in the retry
    topic, which are the fields of ``Retried``

Header names that begin with ``hapax-`` are never passed on from a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.records import Headers

    Wire = list[tuple[str, bytes | None]]

PREFIX: Final = "hapax-"
ID: Final = "hapax-id"
SOURCE: Final = "hapax-source"
PART: Final = "hapax-part"
UNCHECKED: Final = "hapax-unchecked"
REPLAY_OF: Final = "hapax-replay-of"
REPLAYED: Final = "hapax-replayed"
BATCH: Final = "hapax-batch"
PATH: Final = "hapax-path"
ERROR: Final = "hapax-error"
APP: Final = "hapax-app"
TRUNCATED: Final = "hapax-truncated"
RETRY: Final = "hapax-retry-"
VALUE_SCHEMA: Final = "__value_schema_id"
_DIGITS_MAX = 9
"""Of numbers in headers, which any program can write."""
_TIME_DIGITS_MAX = 15


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """What a dead letter holds about its failure; a field is the header ``hapax-<field>``.

    truncated  what was left out of a dead letter of last resort: names with sizes in bytes
    error      the exception's type, a colon, its text
    attempts   how often the business code was called for the record
    app        HAPAX_APP of the pipeline that wrote it
    """

    truncated: str = ""
    error: str
    attempts: int
    app: str

    def encode(self) -> Wire:
        """Return the headers; empty text has none."""
        values = ((field, getattr(self, field)) for field in Failed.__struct_fields__)
        return [(PREFIX + field, text(value)) for field, value in values if value != ""]

    @staticmethod
    def decode(headers: Mapping[str, bytes | None]) -> Failed | None:
        """Read the headers of a record; None when they are not those of a dead letter."""
        if headers.get(ERROR) is None:
            return None
        read: dict[str, Callable[[bytes | None], Any]] = {"str": _text, "int": _number}
        fields = Failed.__annotations__.items()
        found: dict[str, Any] = {
            field: read[kind](headers.get(PREFIX + field)) for field, kind in fields
        }
        return Failed(**found)


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """What a record of the retry topic holds about its wait; a field is ``hapax-retry-<field>``.

    of         the coordinates at which the record first came
    timestamp  the timestamp it had there; times are Unix milliseconds
    attempt    which later try it waits for, from 1; 0: its first call, after others of its key
    calls      how often the business code was called for it so far
    move       which of the records in the retry topic that stand for it this is, from 1
    until      when it has waited long enough in its level
    due        when it is called; never before ``until``
    """

    of: str
    timestamp: int
    attempt: int
    calls: int
    move: int
    until: int
    due: int

    def encode(self) -> Wire:
        return [(RETRY + field, text(getattr(self, field))) for field in self.__struct_fields__]

    @staticmethod
    def decode(headers: Mapping[str, bytes | None]) -> Retried | None:
        """Read the headers of a record; None when they are not those of one that waits."""
        of = coordinates(headers.get(RETRY + "of"))
        names = [name for name in Retried.__struct_fields__ if name != "of"]
        numbers = {name: _whole(headers.get(RETRY + name)) for name in names}
        if of is None or None in numbers.values():
            return None
        return msgspec.convert({**numbers, "of": str(of)}, Retried)


def text(value: str | int) -> bytes:
    return str(value).encode("utf-8", "backslashreplace")


def part(number: int, of: int) -> tuple[str, bytes]:
    """Return the header of one of several outputs; numbers count from 1."""
    return (PART, b"%d/%d" % (number, of))


def part_of(value: bytes | None) -> tuple[int, int]:
    """Return part and number of parts; what cannot be read is no part of anything: (1, 0)."""
    if value is None:
        return 1, 1
    number, _slash, parts = value.partition(b"/")
    if not number.isdigit() or not parts.isdigit() or len(parts) > _DIGITS_MAX:
        return 1, 0
    return (int(number), int(parts)) if 1 <= int(number) <= int(parts) else (1, 0)


def coordinates(value: bytes | None) -> Coordinates | None:
    """Read SOURCE or REPLAY_OF; None for what names no record."""
    try:
        return Coordinates.parse((value or b"").decode())
    except ValueError:
        return None


def is_header(pair: object) -> bool:
    """Whether the client can take it: a name in UTF-8, and without a NUL, which ends it there."""
    match pair:
        case (str() as name, bytes() | None):
            return isinstance(pair, tuple) and "\0" not in name and is_text(name)
    return False


def is_text(text: str) -> bool:
    """Whether it has a form in UTF-8: lone surrogates have none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_hapax(headers: Headers) -> Wire:
    """Return the headers that a record passes on: all but those of a Hapax upstream."""
    kept = []
    for pair in headers:  # half the time of a comprehension, which is a call of its own (3.11)
        if not pair[0].startswith("hapax-"):
            kept.append(pair)  # noqa: PERF401 - as the loop says
    return kept


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "backslashreplace")


def without_retry(headers: Headers) -> Headers:
    """Return the headers of a record as it first came, or as it is before it waits."""
    return tuple(pair for pair in headers if not pair[0].startswith(RETRY))


def _whole(value: bytes | None) -> int | None:
    if value is None or not value.isdigit() or len(value) > _TIME_DIGITS_MAX:
        return None
    return int(value)


def _number(value: bytes | None) -> int:
    digits = (value or b"")[:_DIGITS_MAX]
    return int(digits) if digits.isdigit() else 0

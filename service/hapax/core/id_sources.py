"""The sources of ids, each in one place: how it is written, found, and asked again of an output.

A further source is one function here and its row in ``SOURCES``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hapax.core.errors import Poison
from hapax.core.headers import ID, PART
from hapax.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.records import Headers

    Finder = Callable[[Record, Mapping[str, bytes | None]], bytes | None]

_HEADER: Final = re.compile(r"[^\s,]+")
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)+")
_STRUCTURED: Final = b"application/cloudevents+json"


class IdSource(NamedTuple):
    """One source of ids.

    text      as it is written in HAPAX_DEDUP__ID
    tag       what precedes the id in a claim: an id counts within its source
    find      the id in a record, whose headers come by lower-case name; None or empty: it has none.
              Raises Poison where that is unknown
    stand_in  a record in which the source finds this id; None when there can be none
    proves    whether it is found in headers, which an output has as its record had them
    absent    where it proves: whether an output without it says that the record was without it
    header    the header that alone carries the id; "": there is none
    """

    text: str
    tag: bytes
    find: Finder
    stand_in: Callable[[bytes], Record | None]
    proves: bool = False
    absent: Callable[[Record], bool] = lambda _output: True
    header: str = ""


def id_source(text: str) -> IdSource:
    """Return the source that is written so; raise ValueError for none."""
    kind, _, argument = text.partition(":")
    source = SOURCES[kind][1](text, argument) if kind in SOURCES else None
    if source is None:
        *first, last = (form for form, _ in SOURCES.values())
        raise ValueError(f"{text} is no source of an id: use {', '.join(first)} or {last}")
    return source


def _cloudevents(text: str, _argument: str) -> IdSource | None:
    def stand_in(event_id: bytes) -> Record | None:
        origin, nul, number = event_id.partition(b"\0")
        return _record(headers=(("ce_source", origin), ("ce_id", number))) if nul else None

    def absent(output: Record) -> bool:
        # A structured event has its id in the value, which the business code may have replaced.
        headers = ((name.lower(), value or b"") for name, value in output.headers)
        return not any(
            name == "content-type" and value.startswith(_STRUCTURED) for name, value in headers
        )

    if text != "cloudevents":
        return None
    return IdSource(text, b"cloudevents\0", _of_event, stand_in, proves=True, absent=absent)


def _header(text: str, argument: str) -> IdSource | None:
    name = argument.lower()  # names match in any case

    def find(_record: Record, headers: Mapping[str, bytes | None]) -> bytes | None:
        return headers.get(name)

    def stand_in(event_id: bytes) -> Record:
        return _record(headers=((name, event_id),))

    if not _HEADER.fullmatch(argument):
        return None
    own = name == ID  # outputs carry Hapax's own header of this name in place of the record's
    return IdSource(
        text,
        f"header:{name}\0".encode(),
        _of_output if own else find,
        stand_in,
        proves=not own,
        header=argument,
    )


def _json(text: str, argument: str) -> IdSource | None:
    # RFC 6901
    pointer = [token.replace("~1", "/").replace("~0", "~") for token in argument[1:].split("/")]

    def find(record: Record, _headers: Mapping[str, bytes | None]) -> bytes | None:
        return _at(_decoded(record), pointer)

    def stand_in(event_id: bytes) -> Record | None:
        try:
            value: object = event_id.decode()
        except UnicodeDecodeError:
            return None
        for token in reversed(pointer):
            value = {token: value}
        return _record(value=msgspec.json.encode(value))

    if not _POINTER.fullmatch(argument):
        return None
    return IdSource(text, f"{text}\0".encode(), find, stand_in)


def _key(text: str, _argument: str) -> IdSource | None:
    if text != "key":
        return None
    return IdSource(
        text, b"key\0", lambda record, _headers: record.key, lambda event_id: _record(key=event_id)
    )


SOURCES: Final[dict[str, tuple[str, Callable[[str, str], IdSource | None]]]] = {
    "cloudevents": ("cloudevents", _cloudevents),
    "header": ("header:<name>", _header),
    "json": ("json:/pointer (RFC 6901)", _json),
    "key": ("key", _key),
}
"""By the word before the colon: how it is written, and what makes it of text and argument."""


def _of_event(record: Record, headers: Mapping[str, bytes | None]) -> bytes | None:
    """Return source NUL id: an id is unique only within its source (CloudEvents 1.0, 3.1)."""
    event_id, source = headers.get("ce_id"), headers.get("ce_source")
    if not event_id:
        content_type = headers.get("content-type")
        if not content_type or not content_type.startswith(_STRUCTURED):
            return None
        event = _decoded(record)
        event_id, source = _at(event, ["id"]), _at(event, ["source"])
    if not event_id or not source:
        return None
    return source + b"\0" + event_id


def _of_output(_record: Record, headers: Mapping[str, bytes | None]) -> bytes | None:
    """Return id and part: outputs of one record share its id, after another pipeline too."""
    event_id, part = headers.get(ID), headers.get(PART)
    return event_id + b"\0" + part if event_id and part else event_id


def _decoded(record: Record) -> Any:
    if record.value is None:
        return None
    try:
        return msgspec.json.decode(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Poison(f"value is not JSON, so its id cannot be read: {error}") from error


def _at(value: Any, pointer: Sequence[str]) -> bytes | None:
    for token in pointer:
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and token.isdecimal() and int(token) < len(value):
            value = value[int(token)]
        else:
            return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    return None


def _record(
    *, key: bytes | None = None, value: bytes | None = None, headers: Headers = ()
) -> Record:
    return Record("", 0, 0, key, value, headers)

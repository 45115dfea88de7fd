"""CloudEvents 1.0 in Kafka records: where an event has its id.

binary      headers ``ce_id`` and ``ce_source``, or with a dash, as in HTTP
structured  a JSON object, by the header ``content-type``, or by its members specversion, id and
            source: some SDKs write no content type, or that of the data
others      a batch has several ids; formats that are not JSON hide theirs: both are refused

An id is unique only within its source (CloudEvents 1.0, 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hapax.core.errors import Poison
from hapax.core.json_pointer import JsonPointer, decoded

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPE: Final = b"application/cloudevents"
_STRUCTURED: Final = b"application/cloudevents+json"
_MEMBER: Final = b'"specversion"'
_BEGINS: Final = frozenset(b"{[ \t\r\n\xef\0\1")
"""First bytes of JSON objects and lists, after a byte-order mark or the id of a schema, too."""
_ID, _SOURCE, _VERSION = JsonPointer("/id"), JsonPointer("/source"), JsonPointer("/specversion")


def in_headers(value: bytes | None, headers: Mapping[str, bytes | None]) -> bytes | None:
    """Return source NUL id of an event that its headers announce; None: they announce none.

    ``headers``: by lower-case name. Raises Poison for a structured event that is no JSON.
    """
    event_id = headers.get("ce_id") or headers.get("ce-id")
    source = headers.get("ce_source") or headers.get("ce-source")
    if not event_id:
        if _media_type(headers) != _STRUCTURED:
            return None
        data = decoded(value)
        event_id, source = _ID.within(value, data), _SOURCE.within(value, data)
    return source + b"\0" + event_id if event_id and source else None


def in_value(value: bytes | None) -> bytes | None:
    """Return source NUL id of a value that is an event by its members; None: it is none."""
    return _named(value, _read(value))


def unclaimable(value: bytes | None, headers: Mapping[str, bytes | None]) -> str:
    """Return why a record that holds events has no id of one; empty: it holds none."""
    media_type = _media_type(headers)
    several = media_type.startswith(_TYPE + b"-batch")
    if not several:
        data = _read(value)
        several = isinstance(data, list) and any(_named(value, each) for each in data)
    if several:
        return (
            "it is a batch of CloudEvents, each with an id of its own: write an event a record, or"
            " name an id of the whole batch in HAPAX_DEDUP__ID, like header:message-id"
        )
    if media_type.startswith(_TYPE + b"+") and media_type != _STRUCTURED:
        return (
            f"it is a CloudEvent of the type {media_type.decode(errors='replace')[:80]}, whose id"
            " cannot be read: write binary or JSON events, or name an id outside of the value in"
            " HAPAX_DEDUP__ID, like header:message-id"
        )
    return ""


def _media_type(headers: Mapping[str, bytes | None]) -> bytes:
    told = headers.get("content-type")
    return told.partition(b";")[0].strip().lower() if told else b""


def _read(value: bytes | None) -> object:
    if value is None or value == b"" or value[0] not in _BEGINS or _MEMBER not in value:
        return None
    try:
        return decoded(value)
    except Poison:
        return None  # whatever it is, it does not say that it is an event


def _named(value: bytes | None, event: object) -> bytes | None:
    if not isinstance(event, dict):
        return None
    event_id, source = _ID.within(value, event), _SOURCE.within(value, event)
    return source + b"\0" + event_id if event_id and source and "specversion" in event else None

"""Transforms of JSON values. What is no JSON (RFC 8259, UTF-8) is poison, and never tried twice.

A byte-order mark before the JSON is passed over, as where ids are read. The decoder's limits count
as "no JSON" too: whole numbers beyond 64 bits, lone surrogates, and nesting deeper than Python
recurses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hapax.core.errors import Poison
from hapax.core.json_pointer import unmarked
from hapax.core.records import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.core.records import Record

T = TypeVar("T")

_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_ARRAY: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Any])
_ELEMENTS: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def json_validate(record: Record) -> Output:
    """Pass on a JSON object, byte for byte; anything else is poison, a tombstone too."""
    _decoded(_OBJECT, record.value)
    return Output(record.value)


def split_json_array(record: Record) -> Iterator[Output]:
    """Write one output for each element of a JSON array, as its bytes are.

    An empty array is filtered. Anything else than an array is poison, a tombstone too.
    """
    _decoded(_ARRAY, record.value)  # cutting out alone does not look inside of the elements
    for element in _decoded(_ELEMENTS, record.value):
        yield Output(bytes(element))


def rekey_by_json(*path: str) -> Callable[[Record], Output]:
    """Make a transform whose output has a field of the JSON object as key.

    ``path``: names from the outermost object inwards. The field must be text or a whole number;
    without one the record is poison. The value stays as it is.
    """
    if not path:
        raise ValueError("rekey_by_json needs the name of a field")

    def rekey(record: Record) -> Output:
        found: Any = _decoded(_OBJECT, record.value)
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
            raise Poison(f"no text or whole number at {'/'.join(path)}: nothing to make a key of")
        return Output(record.value, key=str(found).encode())

    return rekey


def _decoded(decoder: msgspec.json.Decoder[T], value: bytes | None) -> T:
    if value is None:
        raise Poison("a tombstone has no JSON value")
    try:
        return decoder.decode(unmarked(value))
    except msgspec.ValidationError as error:
        raise Poison(f"JSON of another kind: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Poison(f"value is not JSON: {error}") from error

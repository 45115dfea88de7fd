"""Data of the types that functions name: of msgspec, of pydantic, or plain."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from hapax.schemas import protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

_BUILTIN: Final = (bytes, bytearray, datetime, date, time, Decimal, UUID)
"""What Avro knows as well as msgspec: left as it is."""


def plain_first(write: Callable[[Any], bytes], data: Any) -> bytes:
    """Write data as Avro takes it: dicts, lists and values, also those that JSON does not know."""
    return write(data if type(data) is dict else _plain(data))


def plain_json_first(write: Callable[[Any], Any], data: Any) -> Any:
    """Write data in its JSON form."""
    return write(data if type(data) is dict else _plain(data, json=True))


def _plain(data: Any, *, json: bool = False) -> Any:
    """Return data of a library's type as dicts, lists and values."""
    if hasattr(data, "model_dump"):
        return data.model_dump(mode="json" if json else "python")
    return msgspec.to_builtins(data, builtin_types=() if json else _BUILTIN)


def json_bytes(data: Any) -> bytes:
    """Return data as JSON."""
    return msgspec.json.encode(
        data.model_dump(mode="json") if hasattr(data, "model_dump") else data
    )


def json_reader(kind: Any) -> Callable[[bytes], Any]:
    """Return what makes data of a type of JSON; of any type where the type is that of Protobuf."""
    if hasattr(kind, "model_validate_json"):
        checked: Callable[[bytes], Any] = kind.model_validate_json
        return checked
    return msgspec.json.Decoder(Any if protobuf.is_message(kind) else kind).decode


def shape(kind: Any, *, strict: bool) -> Callable[[Any], Any]:
    """Return what makes data of a type of dicts and lists, and raises where they do not fit."""
    if kind in {Any, dict, object} or protobuf.is_message(kind):
        return as_it_is
    if hasattr(kind, "model_validate"):
        checked: Callable[[Any], Any] = kind.model_validate
        return checked
    return partial(msgspec.convert, type=kind, builtin_types=_BUILTIN, strict=strict)


def as_it_is(data: Any) -> Any:
    """Return data: where the function has named no type."""
    return data

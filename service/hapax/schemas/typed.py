"""Data of the types that functions name: of msgspec, of pydantic, or plain."""

from __future__ import annotations

from dataclasses import is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Union, cast, get_args, get_origin
from uuid import UUID

import msgspec

from hapax.schemas import json_schema, protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

TYPE: Final = "-type"
"""The member of a dict that names its record, in Avro."""
_BOTH: Final = (bytes, bytearray, datetime, date, time, Decimal, UUID)
"""What Avro knows as well as msgspec: left as it is."""


def plain_first(write: Callable[[Any], bytes], data: Any) -> bytes:
    """Write data as Avro takes it: dicts, lists and values, also those that JSON does not know."""
    return write(data if type(data) is dict else plain(data))


def plain_json_first(write: Callable[[Any], Any], data: Any) -> Any:
    return write(data if type(data) is dict else plain(data, json=True))


def plain(data: Any, *, json: bool = False) -> Any:
    if hasattr(data, "model_dump"):
        return data.model_dump(mode="json" if json else "python")
    return msgspec.to_builtins(data, builtin_types=() if json else _BOTH)


def json_bytes(data: Any) -> bytes:
    plain = data.model_dump(mode="json") if hasattr(data, "model_dump") else data
    if b"null" in (text := msgspec.json.encode(plain)):
        json_schema.require_finite(msgspec.to_builtins(plain, enc_hook=repr))
    return text


def json_reader(kind: Any) -> Callable[[bytes], Any]:
    """Return what makes data of a type of JSON; of any type where the type is that of Protobuf."""
    if hasattr(kind, "model_validate_json"):
        return cast("Callable[[bytes], Any]", kind.model_validate_json)
    return msgspec.json.Decoder(Any if protobuf.is_message(kind) else kind).decode


def shape(kind: Any, *, strict: bool) -> Callable[[Any], Any]:
    """Return what makes data of a type of dicts and lists, and raises where they do not fit."""
    if kind in {Any, dict, object} or protobuf.is_message(kind):
        return as_it_is
    if (named := _by_name(kind, strict=strict)) is not None:
        return named
    if hasattr(kind, "model_validate"):
        return cast("Callable[[Any], Any]", kind.model_validate)
    return partial(msgspec.convert, type=kind, builtin_types=_BOTH if strict else (), strict=strict)


def _by_name(kind: Any, *, strict: bool) -> Callable[[Any], Any] | None:
    """Return what makes data of one of several classes, by the name of its record; None: no union.

    Structs with tags of their own (``tag_field="-type"``) are left to msgspec.
    """
    kinds = get_args(kind) if get_origin(kind) in {Union, UnionType} else ()
    classes = [each for each in kinds if isinstance(each, type) and _has_members(each)]
    configs = [getattr(each, "__struct_config__", None) for each in classes]
    if not classes[1:] or any(getattr(each, "tag", None) is not None for each in configs):
        return None
    shapes = {each.__name__: shape(each, strict=strict) for each in classes}

    def made(data: Any) -> Any:
        if data is None and type(None) in kinds:
            return None
        record = data.get(TYPE, "") if isinstance(data, dict) else ""
        if (of := shapes.get(record.rpartition(".")[2])) is None:
            raise ValueError(f"the record {record or data!r} is none of {', '.join(shapes)}")
        return of({name: value for name, value in data.items() if name != TYPE})

    return made


def _has_members(kind: type) -> bool:
    return issubclass(kind, msgspec.Struct) or is_dataclass(kind) or hasattr(kind, "model_validate")


def as_it_is(data: Any) -> Any:
    """Return data: where the function has named no type."""
    return data

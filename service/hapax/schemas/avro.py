"""Avro, by fastavro."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema


def reader(schema: Schema, resolved_to: str | None) -> Callable[[bytes], Any]:
    """Return what decodes content of a schema; ``resolved_to``: text of a reader's schema."""
    from fastavro import schemaless_reader

    written = parsed(schema)
    if _is_bytes(written):  # as the official serializers write it: without its length
        return bytes
    read = None if resolved_to is None else _parsed(resolved_to, {})

    def decode(content: bytes) -> Any:
        return schemaless_reader(BytesIO(content), written, read)

    return decode


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    """Return what encodes data for a schema, after a prefix."""
    from fastavro import schemaless_writer

    written = parsed(schema)
    if _is_bytes(written):
        return lambda data: prefix + bytes(data)

    def encode(data: Any) -> bytes:
        out = BytesIO()
        out.write(prefix)
        schemaless_writer(out, written, data)
        return out.getvalue()

    return encode


def parsed(schema: Schema) -> Any:
    """Return a schema as fastavro takes it, with the names that it refers to."""
    named: dict[str, Any] = {}
    for reference in schema.references:
        _parsed(reference.text, named)
    return _parsed(schema.text, named)


def name_of(text: str) -> str | None:
    """Return the full name of the record that a schema describes."""
    found = _parsed(text, {})
    return found.get("name") if isinstance(found, dict) else None


def _parsed(text: str, named: dict[str, Any]) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(text), named_schemas=named)


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")

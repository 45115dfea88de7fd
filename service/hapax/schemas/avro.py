"""Avro, by fastavro."""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from hapax.schemas.avro_unions import with_branches
from hapax.schemas.typed import plain_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema


def reader(
    schema: Schema, resolved_to: str | None, *, marked: bool = False
) -> Callable[[bytes], Any]:
    """Return what decodes content of a schema; ``resolved_to``: text of a reader's schema.

    ``marked``: every value keeps its branch of a union, for a writer (avro_unions.py).
    """
    from fastavro import parse_schema, schemaless_reader

    written, known = parsed(schema)
    if _is_bytes(written):  # as the official serializers write it: without its length
        return bytes
    node = with_branches(written, known, marked=marked) if resolved_to is None else None
    if node is not None:
        branches, shape = parse_schema(node.schema), node.read
        return lambda content: shape(
            schemaless_reader(BytesIO(content), branches, None, return_record_name=True)
        )
    read = None if resolved_to is None else _parsed(resolved_to, {})

    def decode(content: bytes) -> Any:
        return schemaless_reader(BytesIO(content), written, read)

    return decode


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    """Return what encodes data for a schema, after a prefix."""
    from fastavro import parse_schema, schemaless_writer

    written, known = parsed(schema)
    if _is_bytes(written):
        return partial(plain_first, lambda data: prefix + bytes(data))
    node = with_branches(written, known, marked=False)
    if node is not None:
        branches, shape = parse_schema(node.schema), node.written

        def encode_branches(data: Any) -> bytes:
            out = BytesIO()
            out.write(prefix)
            schemaless_writer(out, branches, shape(data))
            return out.getvalue()

        return encode_branches

    def encode(data: Any) -> bytes:
        out = BytesIO()
        out.write(prefix)
        schemaless_writer(out, written, data)
        return out.getvalue()

    return partial(plain_first, encode)


def parsed(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro takes it, and the types that it refers to, by full name."""
    named: dict[str, Any] = {}
    for reference in schema.references:
        _parsed(reference.text, named)
    known = dict(named)
    return _parsed(schema.text, named), known


def name_of(text: str) -> str | None:
    """Return the full name of the record that a schema describes."""
    found = _parsed(text, {})
    return found.get("name") if isinstance(found, dict) else None


def _parsed(text: str, named: dict[str, Any]) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(text), named_schemas=named)


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")

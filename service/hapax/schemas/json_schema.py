"""JSON Schema, by jsonschema; the text itself by msgspec and orjson.

orjson reads whole numbers beyond 64 bits as floats (findings/orjson-integers-beyond-64-bits-
become-floats.sh), and writes none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from hapax.core.json_pointer import unmarked

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema


def reader(schema: Schema) -> Callable[[bytes], Any]:
    """Return what decodes content, and raises where it does not fit its schema."""
    validate = _validator(schema)

    def decode(content: bytes) -> Any:
        data = msgspec.json.decode(unmarked(content))
        validate(data)
        return data

    return decode


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    """Return what encodes data after a prefix, and raises where it does not fit the schema."""
    validate = _validator(schema)

    def encode(data: Any) -> bytes:
        validate(data)
        return prefix + _text(data)

    return encode


def _text(data: Any) -> bytes:
    try:
        return orjson.dumps(data)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def name_of(text: str) -> str | None:
    """Return the title of a schema, by which subjects are named."""
    found = json.loads(text)
    return found.get("title") if isinstance(found, dict) else None


def _validator(schema: Schema) -> Callable[[Any], object]:
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    registry: Any = Registry()
    for reference in schema.references:
        resource = Resource.from_contents(json.loads(reference.text), DRAFT7)
        registry = registry.with_resource(reference.name, resource)
    text = json.loads(schema.text)
    kind = validator_for(text)
    kind.check_schema(text)
    checked: Callable[[Any], object] = kind(text, registry=registry).validate
    return checked

"""JSON Schema, by jsonschema-rs; the text itself by msgspec.

As it was always read here: ``format`` and ``content…`` assert nothing, and what a schema refers to
is one of its references in the registry, never fetched from elsewhere.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from hapax.core.json_pointer import unmarked

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_BASE: Final = "json-schema:///"
"""What a relative reference of a schema without an id is resolved to."""


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
    text = msgspec.json.Encoder(decimal_format="number").encode

    def encode(data: Any) -> bytes:
        plain = msgspec.to_builtins(data, builtin_types=(Decimal,), enc_hook=_base)
        validate(plain)
        return prefix + text(plain)

    return encode


def _base(value: Any) -> Any:
    """Return a value of a class that is derived from one of JSON's as the latter."""
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def name_of(text: str) -> str | None:
    """Return the title of a schema, by which subjects are named."""
    found = json.loads(text)
    return found.get("title") if isinstance(found, dict) else None


class _Annotation:
    """A keyword that asserts nothing."""

    def __init__(self, *_what: object) -> None: ...

    def validate(self, instance: object) -> None: ...


def _validator(schema: Schema) -> Callable[[Any], object]:
    import jsonschema_rs

    texts = {one.name: one.text for one in schema.references}

    def retrieve(uri: str) -> Any:
        name = uri.removeprefix(_BASE)
        return json.loads(texts[name] if name in texts else texts[unquote(name)])

    options: Any = {
        "validate_formats": False,
        "retriever": retrieve,
        "keywords": dict.fromkeys(("contentEncoding", "contentMediaType"), _Annotation),
    }
    text = json.loads(schema.text)
    try:
        return jsonschema_rs.validator_for(text, **options).validate
    except ValueError as error:
        if "Unknown meta-schema" not in str(error):
            raise
        return jsonschema_rs.Draft202012Validator(text, **options).validate

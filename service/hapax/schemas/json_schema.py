"""JSON Schema, by jsonschema-rs; the text itself by msgspec.

As it was always read here: ``format`` and ``content…`` assert nothing, and what a schema refers to
is one of its references in the registry, never fetched from elsewhere.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

from hapax.core.json_pointer import unmarked

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.schemas.registry import Schema

_IDS: Final = ("$id", "id")
"""Where a schema has its id; the latter in draft 4."""
_BASE: Final = "json-schema:///"
"""What a relative reference of a schema without an id is resolved to."""


def reader(schema: Schema, typed: Callable[[bytes], Any] | None = None) -> Callable[[bytes], Any]:
    """Return what decodes content, by ``typed`` in the end; raises where it breaks its schema."""
    validate = _validator(schema)

    def decode(content: bytes) -> Any:
        validate(data := msgspec.json.decode(text := unmarked(content)))
        return typed(text) if typed else data

    return decode


def writer(schema: Schema, prefix: bytes) -> Callable[[Any], bytes]:
    """Return what encodes data after a prefix, and raises where it does not fit the schema."""
    validate = _validator(schema)
    text = msgspec.json.Encoder(decimal_format="number").encode

    def encode(data: Any) -> bytes:
        plain = msgspec.to_builtins(data, builtin_types=(Decimal,), enc_hook=_base)
        validate(plain)
        written = text(plain)
        if any(sign in written for sign in (b"null", b"NaN", b"Infinity")):
            require_finite(plain)
        return prefix + written

    return encode


def require_finite(data: Any) -> None:
    """Raise where a number is none of JSON: msgspec writes null for it, of decimals NaN."""
    if isinstance(data, dict | list | tuple):
        for each in data.values() if isinstance(data, dict) else data:
            require_finite(each)
    elif isinstance(data, float | Decimal) and not Decimal(data).is_finite():
        raise ValueError(f"{data} is no number of JSON")


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


def _id(schema: Any) -> str:
    """Return the id of a schema without a fragment; empty: it has none."""
    found = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return urldefrag(found).url if isinstance(found, str) else ""


def _without_id(schema: Any) -> Any:
    return {key: each for key, each in schema.items() if key not in _IDS} if _id(schema) else schema


class _Annotation:
    """A keyword that asserts nothing."""

    def __init__(self, *_what: object) -> None: ...

    def validate(self, instance: object) -> None: ...


def _validator(schema: Schema) -> Callable[[Any], object]:
    import jsonschema_rs

    text = json.loads(schema.text)
    named = {one.name: json.loads(one.text) for one in schema.references}
    ids = {_id(each): each for each in (text, *named.values())}
    # A reference is named as it is written, and arrives resolved against the id or the address of
    # the schema around it.
    folders = {urljoin(urljoin(base, name), ".") for name in ("", *named) for base in ids}
    known = {urljoin(base, name): each for name, each in named.items() for base in folders}
    known |= ids | named

    def retrieve(uri: str) -> Any:
        name = uri.removeprefix(_BASE)
        # Of a schema with another id than its address the library loses what it refers to.
        return _without_id(known[name if name in known else unquote(name)])

    options: Any = {
        "validate_formats": False,
        "retriever": retrieve,
        "keywords": dict.fromkeys(("contentEncoding", "contentMediaType"), _Annotation),
    }
    if "//" not in _id(text):  # no base that a name could be added to
        text = _without_id(text)
    try:
        return jsonschema_rs.validator_for(text, **options).validate
    except ValueError as error:
        if "Unknown meta-schema" not in str(error):
            raise
        return jsonschema_rs.Draft202012Validator(text, **options).validate

"""One place in a JSON value (RFC 6901), and the text that a key or an id is made of there.

One rule for every type of JSON. Text is itself. A whole number is its digits, whatever way it is
spelled: 1, 1.0 and 1e0 are ``1``, and no digit is lost to a binary fraction. Numbers with a
fraction, true, false, null, objects and lists are no text, and neither is text that is empty.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import msgspec

from hapax.core.errors import Poison

_FORM: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)+")
_DECODER: Final = msgspec.json.Decoder()
_EXACT: Final = msgspec.json.Decoder(float_hook=Decimal)
_SCHEMA_BYTES: Final = {0: 5, 1: 17}
"""What serializers of a schema registry write before JSON, by its first byte: an id, a GUID."""


class JsonPointer:
    """A pointer, like ``/order/id``. Raises ValueError for text that is none."""

    def __init__(self, text: str) -> None:
        if not _FORM.fullmatch(text):
            raise ValueError(f"{text} is no JSON pointer (RFC 6901): it is written like /order/id")
        self._tokens = [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]

    def find(self, value: bytes | None) -> bytes | None:
        """Return the text there; None: there is none. Raises Poison for what is no JSON."""
        return self.within(value, decoded(value))

    def within(self, value: bytes | None, data: Any) -> bytes | None:
        """Return the text there; ``data``: what ``decoded`` has made of the value."""
        found = self._walk(data)
        if isinstance(found, float) and found.is_integer():
            exact = self._walk(decoded(value, _EXACT))
            found = int(exact) if isinstance(exact, Decimal) and exact == int(exact) else None
        if isinstance(found, str):
            return found.encode("utf-8", "surrogatepass") or None
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found).encode()
        return None

    def _walk(self, found: Any) -> Any:
        for token in self._tokens:
            if isinstance(found, dict):
                found = found.get(token)
            elif isinstance(found, list) and token.isdecimal() and int(token) < len(found):
                found = found[int(token)]
            else:
                return None
        return found


def decoded(value: bytes | None, decoder: msgspec.json.Decoder[Any] = _DECODER) -> Any:
    """Return the data of a JSON value, None of a record that has none; raise Poison."""
    if value is None:
        return None
    try:
        return decoder.decode(bare(value))
    except (msgspec.DecodeError, ArithmeticError, UnicodeDecodeError, RecursionError) as error:
        raise Poison(f"value is not JSON, so its id cannot be read: {error}") from error


def bare(value: bytes) -> bytes:
    """Return JSON without a schema's id and without a byte-order mark before it."""
    return unmarked(value[_SCHEMA_BYTES[value[0]] :] if value[:1] in {b"\0", b"\1"} else value)


def unmarked(value: bytes) -> bytes:
    """Return a text without a byte-order mark, which a reader may ignore (RFC 8259, 8.1)."""
    return value.removeprefix(b"\xef\xbb\xbf")

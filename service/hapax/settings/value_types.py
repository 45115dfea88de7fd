"""How a setting is written: for each kind of value, from text to value and back.

A form stands in the annotation of its field. Pydantic calls ``parse`` for text, the reference
prints ``allowed``, and whatever leaves the process (log line, ``config show``) goes through
``show``. Forms of text are in validators.py. Durations and sizes are whole milliseconds and bytes,
read and written back without loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic_core import core_schema

from hapax.core.durations import DURATION_UNITS, QUANTITY, duration_ms, whole_units
from hapax.settings.filed_secret import FiledSecret, FileText
from hapax.settings.redaction import secrets_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
# Largest first; 90s and 24h read better than 1.5m and 1d, so a unit must fit at least twice
# before it replaces the one below. Seconds always win over milliseconds.
_DURATION_STEPS: Final = (("d", 2), ("h", 2), ("m", 2), ("s", 1))
_SIZE_STEPS: Final = ("GiB", "MiB", "KiB", "GB", "MB", "kB")

_SIZE_HINT: Final = "write a size like 16MiB, 512KiB, 1MB or a plain number of bytes"


@dataclass(frozen=True)
class Form:
    """One kind of value.

    allowed   what may be written, for the reference
    parse     text to value; raises ValueError with one reason per argument
    show      value to text, as anybody may see it
    secret    never in errors, logs or on a screen; may come from a file
    quotable  the text as given may be repeated in an error
    filed     may come from a file, although it can be no secret, too
    parts     from the text to what must not be seen of it, wherever it turns up
    """

    allowed: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    secret: bool = False
    quotable: bool = True
    filed: bool = False
    parts: Callable[[str], Iterable[str]] = secrets_in

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], core_schema.CoreSchema]
    ) -> core_schema.CoreSchema:
        """Put ``parse`` before the field's own type; values that are no text go straight on."""
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def _read(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if self.secret and isinstance(value, FileText):
            return FiledSecret(self.parse(value), value.path, self.parse)
        return self.parse(value)


def duration(low: str, high: str) -> Form:
    """Return the form of whole milliseconds, from ``low`` to ``high``."""
    return Form(f"duration, {low} to {high}", _within(duration_ms, low, high), show=duration_text)


def size(low: str, high: str) -> Form:
    """Return the form of bytes, from ``low`` to ``high``."""
    return Form(f"size, {low} to {high}", _within(size_bytes, low, high), show=size_text)


def whole(low: int, high: int, why: str = "") -> Form:
    """Return the form of a whole number; ``why`` explains a bound that surprises."""
    hint = f"write a whole number from {low} to {high}{why and ': '}{why}"

    def parse(text: str) -> int:
        # isdecimal alone accepts digits of other scripts; the length bounds the conversion.
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(high))):
            raise ValueError(hint)
        value = int(text)
        if not low <= value <= high:
            raise ValueError(hint)
        return value

    return Form(f"whole number, {low} to {high}", parse)


def share() -> Form:
    """Return the form of a part of a whole, 0 to 1."""
    hint = "write a share from 0 to 1 or from 0% to 100%, like 0.1 or 10%"

    def parse(text: str) -> float:
        number = text.removesuffix("%")
        if not (number.isascii() and number.replace(".", "", 1).isdecimal()):
            raise ValueError(hint)
        value = float(number) / (100 if text.endswith("%") else 1)
        if value > 1:
            raise ValueError(hint)
        return value

    return Form("share, 0 to 1 or 0% to 100%", parse)


def choice(literal: object) -> Form:
    """Return the form of one word of a ``Literal``, written in either case."""
    words: tuple[str, ...] = get_args(literal)

    def parse(text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise ValueError(f"choose one of {', '.join(words)}")

    return Form(" · ".join(words), parse)


def flag() -> Form:
    """Return the form of yes or no."""

    def parse(text: str) -> bool:
        word = text.lower()
        if word not in _TRUE | _FALSE:
            raise ValueError("write true or false (yes, no, on, off, 1 and 0 are read too)")
        return word in _TRUE

    return Form("true · false", parse, show=lambda value: "true" if value else "false")


def _within(read: Callable[[str], int], low: str, high: str) -> Callable[[str], int]:
    least, most = read(low), read(high)

    def parse(text: str) -> int:
        value = read(text)
        if not least <= value <= most:
            raise ValueError(f"it must lie between {low} and {high}")
        return value

    return parse


def duration_text(value_ms: int) -> str:
    """Write milliseconds so that ``duration_ms`` reads the same number again."""
    for unit, least in _DURATION_STEPS:
        count, rest = divmod(value_ms, DURATION_UNITS[unit])
        if rest == 0 and count >= least:
            return f"{count}{unit}"
    return f"{value_ms}ms"


def size_bytes(text: str) -> int:
    """Read ``16MiB`` (2**20) and ``1MB`` (10**6); a plain number is bytes."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_SIZE_HINT)
    factor = _SIZE_UNITS.get(match[3].lower())
    if factor is None:
        raise ValueError(f"{match[3]} is no unit of size here; {_SIZE_HINT}")
    return whole_units(match[1], match[2] or "", factor, "a byte")


def size_text(value_bytes: int) -> str:
    """Write bytes so that ``size_bytes`` reads the same number again."""
    for unit in _SIZE_STEPS:
        count, rest = divmod(value_bytes, _SIZE_UNITS[unit.lower()])
        if rest == 0 and count:
            return f"{count}{unit}"
    return str(value_bytes)

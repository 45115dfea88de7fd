"""Readable durations and sizes: text to whole milliseconds or bytes, and back without loss."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))? ?([^\s0-9.]*)")
_SIZE: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))? ?([^\s0-9.]*)")

_DURATION_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
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

_DURATION_HINT: Final = "write a duration with its unit, like 250ms, 1.5s, 5m, 24h or 7d"
_SIZE_HINT: Final = "write a size like 16MiB, 512KiB, 1MB or a plain number of bytes"


def duration_ms(text: str) -> int:
    """Read ``1.5s`` as 1500 ms; raise ValueError with a hint when it is no duration."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(_DURATION_HINT)
    unit = match[3]
    if not unit:
        raise ValueError(f"the unit is missing: {text}ms or {text}s? {_DURATION_HINT}")
    if unit not in _DURATION_UNITS:
        raise ValueError(f"{unit} is no unit of time here; {_DURATION_HINT}")
    return _whole(match[1], match[2] or "", _DURATION_UNITS[unit], "a millisecond")


def duration_text(value_ms: int) -> str:
    """Write milliseconds so that ``duration_ms`` reads the same number again."""
    for unit, least in _DURATION_STEPS:
        count, rest = divmod(value_ms, _DURATION_UNITS[unit])
        if rest == 0 and count >= least:
            return f"{count}{unit}"
    return f"{value_ms}ms"


def size_bytes(text: str) -> int:
    """Read ``16MiB`` (2**20) and ``1MB`` (10**6); a plain number is bytes."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(_SIZE_HINT)
    factor = _SIZE_UNITS.get(match[3].lower())
    if factor is None:
        raise ValueError(f"{match[3]} is no unit of size here; {_SIZE_HINT}")
    return _whole(match[1], match[2] or "", factor, "a byte")


def size_text(value_bytes: int) -> str:
    """Write bytes so that ``size_bytes`` reads the same number again."""
    for unit in _SIZE_STEPS:
        count, rest = divmod(value_bytes, _SIZE_UNITS[unit.lower()])
        if rest == 0 and count:
            return f"{count}{unit}"
    return str(value_bytes)


def _whole(whole: str, fraction: str, factor: int, smallest: str) -> int:
    # Integers only: 0.3s is 300 ms, not 299.99999999999994.
    parts: int = 10 ** len(fraction)
    value, rest = divmod(int(whole + fraction) * factor, parts)
    if rest:
        raise ValueError(f"it is finer than {smallest}, the smallest step there is")
    return value

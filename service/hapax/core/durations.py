"""Durations and points in time as people write them: ``1.5s``, ``24h``, an age or ISO 8601.

In settings, on the command line, and in business code.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

QUANTITY: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))? ?([^\s0-9.]*)")
DURATION_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HINT: Final = "write a duration with its unit, like 250ms, 1.5s, 5m, 24h or 7d"


def duration_ms(text: str) -> int:
    """Read ``1.5s`` as 1500 ms; raise ValueError with a hint when it is no duration."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(_HINT)
    unit = match[3]
    if not unit:
        raise ValueError(f"the unit is missing: {text}ms or {text}s? {_HINT}")
    if unit not in DURATION_UNITS:
        raise ValueError(f"{unit} is no unit of time here; {_HINT}")
    return whole_units(match[1], match[2] or "", DURATION_UNITS[unit], "a millisecond")


def given_ms(given: object) -> int:
    """Return the milliseconds that business code means: ``5m``, a timedelta, or seconds.

    Raises ValueError, TypeError and OverflowError.
    """
    if isinstance(given, str):
        return duration_ms(given)
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)  # type: ignore[arg-type]
    return math.ceil(seconds * DURATION_UNITS["s"])


def whole_units(whole: str, fraction: str, factor: int, smallest: str) -> int:
    """Return digits times a factor; raise ValueError when that is no whole number."""
    # Integers only: 0.3s is 300 ms, not 299.99999999999994.
    parts: int = 10 ** len(fraction)
    value, rest = divmod(int(whole + fraction) * factor, parts)
    if rest:
        raise ValueError(f"it is finer than {smallest}, the smallest step there is")
    return value


def moment_ms(text: str, now_ms: int) -> int:
    """Read an age (``24h``) or a point in time (ISO 8601) as Unix time in ms.

    A time without a zone is one of this machine. Raises ValueError with a hint.
    """
    with suppress(ValueError):
        return now_ms - duration_ms(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError("write an age like 24h or a time like 2030-01-31T12:00:00Z") from None

"""Points in time and ages, as people write and read them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from hapax.core.errors import ConfigurationError


def point_ms(option: str, text: str) -> int:
    """Read an age (``24h``) or a point in time (ISO 8601) as Unix time.

    Raises ConfigurationError that names the ``option``.
    """
    from hapax.core.moments import moment_ms

    try:
        return moment_ms(text, int(time.time() * 1000))
    except ValueError as error:
        raise ConfigurationError([f"{option} {text}: {error}"]) from None


def span_ms(option: str, text: str) -> int:
    """Read a duration; raises ConfigurationError that names the ``option``."""
    from hapax.core.durations import duration_ms

    try:
        return duration_ms(text)
    except ValueError as error:
        raise ConfigurationError([f"{option} {text}: {error}"]) from None


def age_text(seconds: float | None) -> str:
    """Return an age as short as it can be read: ``0.4s``, ``75s``, ``3h20m``, ``2d4h``."""
    if seconds is None:
        return "?"
    if seconds < 10:  # below, tenths say something
        return "0s" if seconds == 0 else f"{max(seconds, 0):.1f}s"
    whole = int(seconds)
    for unit, length, below in (("d", 86_400, "h"), ("h", 3_600, "m")):
        if whole >= 2 * length:
            count, rest = divmod(whole, length)
            small = rest // {"h": 3_600, "m": 60}[below]
            return f"{count}{unit}{small}{below}" if small else f"{count}{unit}"
    return f"{whole}s" if whole < 120 else f"{whole // 60}m{whole % 60}s"  # two minutes


def moment_text(time_ms: int) -> str:
    """Return Unix time as ISO 8601 in UTC; what no calendar holds stays a number."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Points in time as people write them: an age or ISO 8601. In settings, and on the command line."""

from __future__ import annotations

from datetime import datetime

from hapax.core.durations import duration_ms


def moment_ms(text: str, now_ms: int) -> int:
    """Read an age (``24h``) or a point in time (ISO 8601) as Unix time in ms.

    A time without a zone is one of this machine. Raises ValueError with a hint.
    """
    try:
        return now_ms - duration_ms(text)
    except ValueError:
        pass
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError("write an age like 24h or a time like 2030-01-31T12:00:00Z") from None

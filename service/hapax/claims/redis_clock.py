"""Redis' clock beside ours: a jump ahead of it ends claims early, and no answer says so.

Called by claims/redis.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StoreClock:
    """Compares Redis' clock with ours: claims live by Redis' time alone.

    When it is set forward by more than what passed here, claims end early, all of them at two
    times their time to live, and no answer says so. A tenth of it is worth a word: an id is then
    remembered for so much less than promised.
    """

    def __init__(self, monotonic: Callable[[], float], ttl_ms: int) -> None:
        """Begin without a call to compare with."""
        self._monotonic = monotonic
        self._limit_s = ttl_ms / 1000 / 10
        self._last: tuple[float, int] | None = None

    def now(self) -> float:
        """Return our time, for a call that begins."""
        return self._monotonic()

    def jump_s(self, asked_s: float, redis_ms: int) -> float:
        """Return the seconds that Redis' clock jumped ahead since the last call; else 0.

        ``asked_s``: our time when this call began.
        """
        last, self._last = self._last, (asked_s, redis_ms)
        if last is None:
            return 0.0
        # From before the last call to after this one: more than can have passed between the two.
        passed_s = self._monotonic() - last[0]
        jump_s = (redis_ms - last[1]) / 1000 - passed_s
        return jump_s if jump_s > self._limit_s else 0.0

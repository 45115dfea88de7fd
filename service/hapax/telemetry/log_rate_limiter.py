"""Repeats: how often the same thing is logged in full before it is only counted."""

from __future__ import annotations

import math
from threading import Lock
from typing import NamedTuple

import msgspec

Key = tuple[str, ...]
"""What counts as the same: the event's name, then whatever distinguishes two."""

OVERFLOW: Key = ("other",)


class Withheld(NamedTuple):
    """So many ``lines`` of ``key`` were counted and not logged."""

    key: Key
    lines: int


class _Window(msgspec.Struct):
    end_s: float
    told: int = 0
    withheld: int = 0


class Repeats:
    """Per key the first lines of each window are logged, the rest is counted.

    ``due_s``: monotonic time at which ``ended`` has something to say; infinite while it has not.
    At most ``keys_max`` keys are distinguished; further ones share one. Used by several threads.
    """

    def __init__(self, *, window_s: float = 60.0, keys_max: int = 256) -> None:
        self.due_s = math.inf
        self._window_s = window_s
        self._keys_max = keys_max
        self._windows: dict[Key, _Window] = {}
        self._ended: list[Withheld] = []
        self._lock = Lock()

    def admit(self, key: Key, now_s: float, lines: int = 1) -> bool:
        """Return true when this one is to be logged: it is among the first ``lines``."""
        with self._lock:
            window = self._window(key, now_s)
            if window.told < lines:
                window.told += 1
                return True
            window.withheld += 1
            self.due_s = min(self.due_s, window.end_s)
            return False

    def ended(self, now_s: float) -> list[Withheld]:
        """Return what was withheld in windows that are over at ``now_s``, and forget it."""
        with self._lock:
            self._expire(now_s)
            ended, self._ended = self._ended, []
            open_s = [window.end_s for window in self._windows.values() if window.withheld]
            self.due_s = min(open_s, default=math.inf)
            return ended

    def _window(self, key: Key, now_s: float) -> _Window:
        window = self._windows.get(key)
        if window is not None and now_s < window.end_s:
            return window
        if window is not None or len(self._windows) >= self._keys_max:
            self._expire(now_s)
        if len(self._windows) >= self._keys_max:
            key = OVERFLOW
        return self._windows.setdefault(key, _Window(end_s=now_s + self._window_s))

    def _expire(self, now_s: float) -> None:
        for key in [key for key, window in self._windows.items() if now_s >= window.end_s]:
            withheld = self._windows.pop(key).withheld
            if withheld:
                self._ended.append(Withheld(key, withheld))

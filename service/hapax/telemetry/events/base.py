"""Narrator: what all events share. An event's method makes the log line and moves the metric."""

from __future__ import annotations

import math
import re
import time
from logging import DEBUG, INFO
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hapax.telemetry.health import Health, Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import Counter
    from structlog.typing import FilteringBoundLogger

    from hapax.core.records import TopicPartition
    from hapax.telemetry.metrics import Family, Metrics

SETTLED_INTERVAL_S: Final = 1.0
"""Transactions within it share a line: ten a second with a line each are 500 MB of log a day."""
START_S: Final = 30.0
"""Within it a broker that still loads its log of transactions is no reason to worry."""
Merged = dict[str, Any]

TEXT_CHARS_MAX: Final = 300
"""Length of a text from outside (error, log line of a client) in one line."""

_USER: Final = re.compile(r"//[^/\s@]*@")

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


class Narrator:
    """Holds metrics, health and logger, and withholds lines that repeat.

    ``wall_s`` returns Unix time; monotonic time is the health's, so that both agree.
    """

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        logger: FilteringBoundLogger,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._health = health
        self._logger = logger
        self._wall_s = wall_s
        self._monotonic_s = health.monotonic_s
        self._started_s = self._monotonic_s() + START_S
        self._repeats = Repeats()
        self._lines_dropped = 0
        self._settled: Merged | None = None
        self._settled_due_s = -math.inf
        self._tells_info: bool = logger.is_enabled_for(INFO)
        self._tells_debug: bool = logger.is_enabled_for(DEBUG)

    def log_lines_suppressed(self, of: str, about: list[str], count: int) -> None:
        """So many lines like ``of`` were counted only, within a minute that is over."""
        self._logger.warning("log_lines_suppressed", of=of, about=about, count=count)

    def _tell_settled(self) -> None:
        line, self._settled = self._settled, None
        if line is not None:
            self._settled_due_s = self._monotonic_s() + SETTLED_INTERVAL_S
            self._logger.info("transaction_committed", **line)

    def _first(self, *key: str, lines: int = 1) -> bool:
        return self._repeats.admit(key, self._monotonic_s(), lines)

    def _outage(self, known: Outage | None, reason: str) -> Outage:
        """Return an outage that lasts, or one that begins now, with its latest reason."""
        told = printable(without_user(reason))
        if known is not None:
            return known._replace(reason=told)
        return Outage(self._wall_s(), self._monotonic_s(), told)

    def _lasted_s(self, outage: Outage | None) -> float:
        return 0.0 if outage is None else round(self._monotonic_s() - outage.began_s, 3)

    def _tell_withheld(self, until_s: float) -> None:
        for (of, *about), count in self._repeats.ended(until_s):
            self.log_lines_suppressed(of, about, count)


def printable(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return foreign text bounded, on one line, and without characters that move a terminal."""
    if len(text) > chars_max:
        text = text[: chars_max - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def without_user(text: str) -> str:
    return _USER.sub("//***@", text)


def named(partition: TopicPartition) -> str:
    return f"{partition[0]}/{partition[1]}"


def named_all(partitions: Iterable[TopicPartition]) -> list[str]:
    return [named(partition) for partition in sorted(partitions)]


def by_name(facts: Mapping[TopicPartition, Any]) -> dict[str, Any]:
    return {named(partition): fact for partition, fact in facts.items()}


def add(family: Family[Counter], counts: Mapping[str, int]) -> None:
    for label, count in counts.items():
        family.of(label).inc(count)

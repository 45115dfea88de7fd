"""The last warnings and errors, kept for the status page.

All that reach the port can read the page, so texts that business code or a record may have
written stay in the log, and so do passwords in addresses.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from hapax.telemetry.events.base import printable, without_user

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, WrappedLogger

KEPT_MAX: Final = 20
_LEVELS: Final = frozenset({"warning", "error", "critical"})
_BOUND: Final = frozenset({"app", "instance", "engine", "event", "level", "exc_info"})
_FOREIGN: Final = {
    "dead_letter_written": frozenset({"error"}),
    "library_logged": frozenset({"text"}),
    "spark_logged": frozenset({"text"}),
}


class Trouble(NamedTuple):
    """One line of the log, short. ``at_s``: Unix time."""

    at_s: float
    level: str
    event: str
    text: str


class Troubles:
    """Keeps what passes; a processor of structlog, in front of those that render."""

    def __init__(self, wall_s: Callable[[], float] = time.time) -> None:
        self._wall_s = wall_s
        self._kept: deque[Trouble] = deque(maxlen=KEPT_MAX)

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Keep a line when it is a warning or worse; pass every line on as it is."""
        if method in _LEVELS:
            name = str(event.get("event", ""))
            hidden = _BOUND | _FOREIGN.get(name, frozenset())
            facts = [f"{key}={value}" for key, value in event.items() if key not in hidden]
            text = printable(without_user(" ".join(facts)))
            self._kept.append(Trouble(self._wall_s(), method, name, text))
        return event

    def latest(self) -> list[Trouble]:
        return list(reversed(self._kept.copy()))

"""Time for calls that overlap in a pipeline in memory: what the watchdog is to the service."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from hapax.core.calls import BLOCKING
from hapax.engines.watchdog import Watchdog

if TYPE_CHECKING:
    from hapax.core.records import Record
    from hapax.engines.gathered_calls import Making


class CallWatch:
    """Cancels coroutines past HAPAX_CALL__TIMEOUT, and names those that hold the event loop."""

    def __init__(self) -> None:
        self._blocking: list[str] = []
        # It ends no process: a thread that hangs keeps its test waiting.
        self._watchdog = Watchdog(
            float("inf"), on_overrun=lambda _call, _s: None, leave=lambda _code: None
        )

    def note(self, record: Record | None) -> None:
        """Remember the record whose coroutine has held the event loop for a second."""
        self._blocking.append("a record" if record is None else str(record.coordinates))

    def start(self, calls: Making) -> None:
        """Let time count for these calls."""
        self._watchdog.follow(calls.tick)
        self._watchdog.start()

    def warn(self) -> None:
        """Issue a warning for each record that was noted since the last call."""
        noted, self._blocking = self._blocking, []
        for where in noted:
            problem = f"the coroutine of {where} has held the event loop for a second: {BLOCKING}"
            warnings.warn(problem, RuntimeWarning, stacklevel=3)

    def stop(self) -> None:
        """End the thread that counts."""
        self._watchdog.stop()

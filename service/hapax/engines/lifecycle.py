"""When the process should leave, and by when. Signal handlers only record."""

from __future__ import annotations

import math
import signal
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from hapax.core.interrupt import Interrupt
    from hapax.core.ports import Clock
    from hapax.telemetry.events import Events


class Lifecycle:
    """The wish to stop. The first signal asks to finish the batch, the second to drop it."""

    def __init__(
        self,
        clock: Clock,
        interrupt: Interrupt,
        *,
        timeout_s: float,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock = clock
        self._interrupt = interrupt
        self._timeout_s = timeout_s
        self._deadline_s: float | None = None
        self._wait = wait
        self.reason = ""
        self.given_up: int | None = None
        """Records whose calls had begun, and are not committed; None: no stop was heard."""
        self.paused = False
        """Whether an operator wants nothing to be taken: set by a thread of the telemetry port."""
        self.outdated = False
        """Whether files that clients were built of have changed: set by the thread that watches."""
        self.unpausable = ""
        """Why this process cannot do that; empty: it can."""

    def listen(self) -> None:
        """Take SIGTERM and SIGINT; call from the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def stop(self, reason: str) -> None:
        """Ask to leave. Called again, the time is up at once."""
        again = self._deadline_s is not None
        now_s = self._clock.monotonic()
        self._deadline_s = now_s if again else now_s + self._timeout_s
        self.reason = self.reason or reason
        self._interrupt.due = True

    def pause(self) -> str:
        """Ask to take nothing until ``resume``; return why that cannot be, empty when it can."""
        if not self.unpausable:
            self.paused = True
        return self.unpausable

    def resume(self) -> None:
        self.paused = False

    def end(self, *, bounded: bool) -> str:
        """Return what a process that exits with 0 says: also what it has left to the next one."""
        words = ["drained"]
        if bounded and self.reason.startswith("SIG"):
            words.append(f"{self.reason} came before the end of this bounded run")
        if self.given_up not in {None, 0}:
            words.append(f"records that the next process calls again: {self.given_up}")
        return "; ".join(words)

    @property
    def stopping(self) -> bool:
        return self._deadline_s is not None

    @property
    def overdue(self) -> bool:
        """Whether even unfinished business must be left to the successor."""
        return self._deadline_s is not None and self._clock.monotonic() >= self._deadline_s

    @property
    def left_s(self) -> float:
        """Seconds until a stop is overdue; infinite while none is asked for."""
        return math.inf if self._deadline_s is None else self._deadline_s - self._clock.monotonic()

    def rest(self, seconds: float) -> None:
        """Do nothing for a moment; signals are still heard."""
        if not self.stopping:
            self._wait(seconds)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.stop(signal.Signals(number).name)


class Process(msgspec.Struct, frozen=True):
    """What the parts of one process share: the events, the time, and when to leave."""

    events: Events
    clock: Clock
    lifecycle: Lifecycle

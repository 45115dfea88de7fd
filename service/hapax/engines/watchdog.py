"""Ends the process when a client call never returns, or when a stop never ends.

Some calls ignore their own timeout, and Python cannot interrupt them. The supervisor starts the
process again, and the transaction core needs no orderly end.

Time is counted in ticks of this thread, not by a clock: a process that was frozen and thawed must
not kill itself for the time it could not use.
"""

from __future__ import annotations

import math
import os
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from hapax.core.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hapax.core.interrupt import Interrupt
    from hapax.core.records import Coordinates, Record

TICK_S = 0.1


class Watchdog:
    """Watches one thread's blocking calls, the length of step 4, and the length of a stop."""

    def __init__(
        self,
        timeout_s: float,
        *,
        on_overrun: Callable[[str, float], None],
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._ticks_max = timeout_s / TICK_S
        self._on_overrun = on_overrun
        self._leave = leave
        self._owner: int | None = None
        self._call: str | None = None
        self._ticks = 0
        self._same: tuple[str | None, int] = (None, 0)  # the call of the last ticks, and how many
        self._alarm: Interrupt | None = None
        self._alarm_ticks = 0.0
        self._overdue: Callable[[], bool] = bool
        self._overdue_ticks, self._overdue_ticks_max = 0, 0.0
        self._calls: Interrupt | None = None
        self._call_ticks_max = 0.0
        self._on_hang: Callable[[Coordinates, float], None] = lambda _where, _s: None
        self._tick: Callable[[], tuple[Record, float] | None] = lambda: None
        self._record: Record | None = None
        self._attempt = 0
        self._record_ticks = self._attempt_ticks = 0
        self._record_ticks_max = math.inf
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._owner = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    @contextmanager
    def watch(self, call: str) -> Iterator[None]:
        """Bound one call of the thread that started the watchdog; those of others are unwatched."""
        if threading.get_ident() != self._owner:
            yield
            return
        outer = self._call
        self._call, self._ticks = call, 0
        try:
            yield
        finally:
            self._call = outer

    def waiting(self) -> tuple[str, float] | None:
        """Return the call that each look of late has met, and for how many seconds."""
        call, ticks = self._same
        return None if call is None else (call, ticks * TICK_S)

    def alarm(self, after_s: float, interrupt: Interrupt) -> None:
        """Make ``interrupt`` due after so long, unless set again before."""
        self._alarm_ticks = after_s / TICK_S
        self._alarm = interrupt

    def limit_stop(self, overdue: Callable[[], bool], margin_s: float) -> None:
        """End the process that still runs so long after its time to stop was up.

        Farewells of clients are not all watched calls: destructors wait for brokers, too.
        """
        self._overdue, self._overdue_ticks_max = overdue, margin_s / TICK_S

    def limit_calls(
        self,
        calls: Interrupt,
        timeout_s: float,
        on_hang: Callable[[Coordinates, float], None],
        whole_s: float = math.inf,
    ) -> None:
        """End the process when one attempt (processing/call_window.py) at a record takes longer.

        ``whole_s``: what all attempts at it may take; in its second half no further one begins.
        """
        self._calls, self._call_ticks_max, self._on_hang = calls, timeout_s / TICK_S, on_hang
        self._record_ticks_max = whole_s / 2 / TICK_S

    def follow(self, tick: Callable[[], tuple[Record, float] | None]) -> None:
        """Ask ``tick`` each time for a record whose call hangs, and for how many seconds."""
        self._tick = tick

    def _hanging(self) -> Record | None:
        calls = self._calls
        record = None if calls is None else calls.record
        if calls is None or record is None or record is not self._record:
            self._record, self._record_ticks, self._attempt_ticks = record, 0, 0
            return None
        self._record_ticks += 1
        if self._record_ticks > self._record_ticks_max:
            calls.long = record
        if calls.pausing or calls.attempts != self._attempt:
            self._attempt, self._attempt_ticks = calls.attempts, 0
            return None
        self._attempt_ticks += 1
        return record if self._attempt_ticks > self._call_ticks_max else None

    def _followed(self) -> tuple[Record, float] | None:
        with suppress(Exception):  # it may be closed before this: the rest is watched on
            return self._tick()
        return None

    def _run(self) -> None:
        while not self._stopped.wait(TICK_S):
            record, seconds = self._hanging(), self._attempt_ticks * TICK_S
            if record is None and (hung := self._followed()) is not None:
                record, seconds = hung
            if record is not None:
                self._end(partial(self._on_hang, record.coordinates, seconds), ExitCode.CALL_HUNG)
                return
            self._ticks += 1
            self._alarm_ticks -= 1
            interrupt = self._alarm
            if interrupt is not None and self._alarm_ticks <= 0:
                self._alarm = None
                interrupt.due = True
            self._overdue_ticks += self._overdue()
            call, (before, same) = self._call, self._same
            self._same = call, same + 1 if call == before else 0
            if call is not None and self._ticks > self._ticks_max:
                self._end(partial(self._on_overrun, call, self._ticks * TICK_S))
                return
            if self._overdue_ticks > self._overdue_ticks_max > 0:
                self._end(partial(self._on_overrun, call or "stop", self._overdue_ticks * TICK_S))
                return

    def _end(self, say: Callable[[], None], code: ExitCode = ExitCode.WATCHDOG) -> None:
        with suppress(Exception):
            say()
        self._leave(int(code))

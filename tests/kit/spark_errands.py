"""Work that goes on step by step, when somebody else says so: tasks that may stop for a while.

Each runs in a thread of its own, but only one thread runs at a time, so a seed tells all.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class KilledError(BaseException):
    """The process of this errand ends here."""


class Errand:
    """One piece of work; it calls ``pause`` wherever somebody else may come first."""

    def __init__(self, work: Callable[[Errand], None]) -> None:
        self.done = False
        self._work = work
        self._killed = False
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def step(self) -> None:
        """Let it go on to its next pause, or to its end."""
        if not self.done:
            self._go.release()
            self._back.acquire()

    def kill(self) -> None:
        """End it where it stands."""
        self._killed = True
        self.step()

    def finish(self) -> None:
        """Let it go on to its end."""
        while not self.done:
            self.step()

    def pause(self) -> None:
        """Wait for the next step; called by the work itself."""
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise KilledError

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                self._work(self)
        except KilledError:
            pass
        finally:
            self.done = True
            self._back.release()

"""Watches the files that clients read when they are built, on a thread of its own.

What changed is used when two looks in a row found the same and it can be used: a certificate and
its key may be written one after the other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.telemetry.events import Events

INTERVAL_S: Final = 2.0


class FileWatch(threading.Thread):
    """Compares digests of files every ``interval_s``.

    digests    returns them by path
    problem    returns why the files cannot be used as they are; empty: they can
    on_change  called with the paths that hold something else, when it can be used
    """

    def __init__(
        self,
        events: Events,
        digests: Callable[[], Mapping[str, bytes]],
        problem: Callable[[], str],
        on_change: Callable[[list[str]], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        super().__init__(name="files", daemon=True)
        self._events = events
        self._digests = digests
        self._problem = problem
        self._on_change = on_change
        self._interval_s = interval_s
        self._used = self._last = self._refused = digests()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self.look()

    def stop(self) -> None:
        self._stopped.set()

    def look(self) -> None:
        found = self._digests()
        steady, self._last = found == self._last, found
        changed = sorted(path for path in found if found[path] != self._used[path])
        if not changed or not steady:
            return
        if problem := self._problem():
            if found != self._refused:
                self._events.client_files_refused(changed, problem)
            self._refused = found
            return
        self._used = self._refused = found
        self._on_change(changed)

"""Watches until when certificates are valid, on a thread of its own, and logs it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.certificates import Certificate
    from hapax.telemetry.events import Events

INTERVAL_S: Final = 3600.0


class CertificateWatch(threading.Thread):
    """Reads its own files once, as the clients do, and asks the servers at the start and each hour.

    own    returns what those files hold
    shown  returns what servers show
    """

    def __init__(
        self,
        events: Events,
        own: Callable[[], list[Certificate]],
        shown: Callable[[], list[Certificate]],
        interval_s: float = INTERVAL_S,
    ) -> None:
        # A daemon: it may wait for a server, and must not keep the process alive.
        super().__init__(name="certificates", daemon=True)
        self._events = events
        self._own = own
        self._ask = shown
        self._interval_s = interval_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        self._events.certificates_seen(self._own())
        while True:
            self._events.certificates_seen(self._shown())
            if self._stopped.wait(self._interval_s):
                return

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _shown(self) -> list[Certificate]:
        try:
            return self._ask()
        except Exception:  # noqa: BLE001 - what a server sends must not end the watch
            return []

"""Watches until when certificates are valid, on a thread of its own, and tells of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from hapax.claims.store import kind_of
from hapax.kafka.admin.certificates import own_certificates, server_certificates

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.core.certificates import Certificate
    from hapax.settings import Settings
    from hapax.telemetry.events import Events
    from hapax.wiring.builders import Shared

INTERVAL_S: Final = 3600.0


class CertificateWatch(threading.Thread):
    """Reads our files once, as the clients do, and asks the servers at the start and each hour."""

    def __init__(self, settings: Settings, events: Events, interval_s: float = INTERVAL_S) -> None:
        # A daemon: it may wait for a server, and must not keep the process alive.
        super().__init__(name="certificates", daemon=True)
        self._settings = settings
        self._events = events
        self._interval_s = interval_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until stopped."""
        self._events.certificates_seen(own_certificates(self._settings))
        while True:
            self._events.certificates_seen(self._shown())
            if self._stopped.wait(self._interval_s):
                return

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _shown(self) -> list[Certificate]:
        try:
            return server_certificates(self._settings)
        except Exception:  # noqa: BLE001 - what a server sends must not end the watch
            return []


def watch_certificates(shared: Shared, stack: ExitStack) -> None:
    """Watch until the stack unwinds; do nothing where no connection is encrypted."""
    url = shared.settings.dedup.claims_url
    encrypted = url is not None and kind_of(url).transport(url).encrypted
    if not encrypted and not shared.settings.kafka.security.protocol.endswith("ssl"):
        return
    watch = CertificateWatch(shared.settings, shared.events)
    watch.start()
    stack.callback(watch.stop)

"""Counts now and then what other groups have not read, on a thread that nothing waits for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.lag import GroupProgress
    from hapax.core.reader_lag import ReaderProbe
    from hapax.settings import Settings
    from hapax.telemetry.events import Events

OFFSETS_MAX = 100_000
"""Offsets that one look reads, of all groups together: less than half a second of a core."""


class ReaderLagMonitor(threading.Thread):
    """Looks at each lag interval, in one process of a pipeline.

    That is the worker that has partition 0 of the first input topic, or the driver on Spark.
    """

    def __init__(
        self,
        probes: Mapping[str, ReaderProbe],
        progress: Callable[[], GroupProgress],
        events: Events,
        settings: Settings,
    ) -> None:
        """``progress`` is called on this thread."""
        # A daemon: it may sit in the client, and must not keep the process alive.
        super().__init__(name="reader-lag", daemon=True)
        self._probes = probes
        self._progress = progress
        self._events = events
        self._place = (settings.input.topics[0], 0)
        self._alone = settings.engine == "spark"
        self._interval_s = settings.telemetry.lag_interval_ms / 1000
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until stopped, if there is any group."""
        while self._probes and not self._stopped.wait(self._interval_s):
            self.look()

    def stop(self) -> None:
        """Look no more. A request that is under way is left to itself."""
        self._stopped.set()

    def look(self) -> None:
        """Count once. Never raises: what cannot be asked for is reported, and has no value."""
        for group, probe in self._probes.items():
            try:
                ours = self._alone or self._place in self._progress().committed
                lags = probe.look(OFFSETS_MAX // len(self._probes)) if ours else []
                self._events.reader_lag_updated(group, lags)
            except Exception as error:
                self._events.reader_lag_failed(group, f"{type(error).__name__}: {error}")

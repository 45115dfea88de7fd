"""What is looked at now and then, on threads of their own, so that nothing waits for brokers.

Each monitor reports what it saw by itself. The loop could not: it may hold its partitions for hours
while the claim store is away, and that is when records grow old and retention comes nearer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from hapax.cluster.lag import LagTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.cluster.lag import GroupProgress, LagProbe, ReaderProbe
    from hapax.core.records import TopicPartition
    from hapax.settings import Settings
    from hapax.telemetry.events import Events

BACKOFF_MAX_S = 60.0
PULSE_S = 2.0
"""Between two probes one question is asked so often: does any broker answer?"""
FIRST_S = 1.0
"""A start has other things to do with brokers first."""
READER_OFFSETS_MAX = 100_000
"""Offsets that one look reads, of all groups together: less than half a second of a core."""


class Monitor(threading.Thread, ABC):
    """Looks every ``interval_s``. A daemon: it may sit in a client when the process ends."""

    def __init__(self, name: str, interval_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self._interval_s = interval_s
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self.look()

    def stop(self) -> None:
        """Stop; a request that is under way is left to itself."""
        self._stopped.set()

    @abstractmethod
    def look(self) -> object:
        """Look once and report. Never raises."""


class LagMonitor(Monitor):
    """Probes every ``interval_s``, less often while brokers are away.

    ``progress`` is called on this thread; it returns copies of what the loop knows.
    """

    def __init__(
        self,
        probe: LagProbe,
        progress: Callable[[], GroupProgress],
        events: Events,
        *,
        interval_s: float,
    ) -> None:
        super().__init__("lag-monitor", interval_s)
        self._probe = probe
        self._progress = progress
        self._events = events
        self._tracker = LagTracker()
        self._probed: frozenset[TopicPartition] = frozenset()
        self._away = False

    def run(self) -> None:
        wait_s = rest_s = min(FIRST_S, self._interval_s)
        while not self._stopped.wait(min(rest_s, PULSE_S)):
            rest_s -= PULSE_S
            if rest_s > 0 and not self.pulse():
                continue
            wait_s = rest_s = self._next_s(wait_s, well=self.look())

    def pulse(self) -> bool:
        """Ask whether a broker answers, for an idle loop does not; return whether that is new."""
        try:
            was_away = self._away
            self._tell_away(self._probe.unanswered())
            if was_away:
                return not self._away
            return frozenset(self._progress().committed) != self._probed
        except Exception as error:
            self._events.lag_monitor_failed(f"{type(error).__name__}: {error}")
            return False

    def look(self) -> bool:
        """Probe once and report; return whether all was answered. Never raises."""
        try:
            progress = self._progress()
            snapshot = self._probe.probe(progress.committed)
            self._probed = frozenset(progress.committed)
            self._tell_away(snapshot.away)
            self._events.lag_updated(
                self._tracker.of(snapshot, progress), snapshot.at_s, complete=not snapshot.failures
            )
            for remark in snapshot.remarks:
                self._events.lag_monitor_limited(remark)
            if snapshot.failures:
                self._events.lag_monitor_failed(snapshot.failures[0])
        except Exception as error:
            self._events.lag_monitor_failed(f"{type(error).__name__}: {error}")
            return False
        return not snapshot.failures

    def _tell_away(self, places: str) -> None:
        if places:
            self._events.brokers_unreachable(places)
        elif self._away:
            self._events.brokers_reached()
        self._away = bool(places)

    def _next_s(self, last_s: float, *, well: bool) -> float:
        if well:
            return self._interval_s
        return max(self._interval_s, min(BACKOFF_MAX_S, 2 * last_s))


# -- What other groups have not read -----------------------------------------------------------


class ReaderLagMonitor(Monitor):
    """Asks in the worker that has partition 0 of the first input topic, or the driver on Spark."""

    def __init__(
        self,
        probes: Mapping[str, ReaderProbe],
        progress: Callable[[], GroupProgress],
        events: Events,
        settings: Settings,
    ) -> None:
        """``progress`` is called on this thread."""
        super().__init__("reader-lag", settings.telemetry.lag_interval_ms / 1000)
        self._probes = probes
        self._progress = progress
        self._events = events
        self._place = (settings.input.topics[0], 0)
        self._alone = settings.engine == "spark"

    def run(self) -> None:
        if self._probes:
            super().run()

    def look(self) -> None:
        """Count once. Never raises: what cannot be asked for is reported, and has no value."""
        for group, probe in self._probes.items():
            try:
                ours = self._alone or self._place in self._progress().committed
                lags = probe.look(READER_OFFSETS_MAX // len(self._probes)) if ours else []
                self._events.reader_lag_updated(group, lags)
            except Exception as error:
                self._events.reader_lag_failed(group, f"{type(error).__name__}: {error}")


# -- Files that clients read when they are built --------------------------------------------------


INTERVAL_S: Final = 2.0


class FileWatch(Monitor):
    """Compares digests of files.

    What changed is used when two looks in a row found the same and it can be used: a certificate
    and its key may be written one after the other.

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
        super().__init__("files", interval_s)
        self._events = events
        self._digests = digests
        self._problem = problem
        self._on_change = on_change
        self._used = self._last = self._refused = digests()

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

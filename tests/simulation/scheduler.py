"""One clock for all, and the one place that decides who goes on.

Each process is a greenlet. Whoever waits gives way to whatever is due before it; nothing else ever
switches, so a run depends on its seed alone.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

Event = tuple[float, int, greenlet | Callable[[], None]]

START_S = 1000.0
STEPS_MAX = 20_000
"""More than any schedule needs: beyond, a worker goes round and round without an end."""


class Scheduler:
    """Events in order of time; those of one moment in the order in which they were made."""

    def __init__(self) -> None:
        self.now_s = START_S
        self.steps = 0
        self.stopped = False
        self._events: list[Event] = []
        self._count = 0
        self.hub = getcurrent()

    def monotonic(self) -> float:
        """Return the time; looking costs none."""
        return self.now_s

    def at(self, when_s: float, event: Callable[[], None]) -> None:
        self._push(when_s, event)

    def sleep(self, seconds: float) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.stopped = True
        until_s = self.now_s + seconds
        events = self._events
        if (events and events[0][0] <= until_s) or self.stopped:
            self._push(until_s, getcurrent())
            self.hub.switch()
        else:
            self.now_s = until_s

    def run(self, until_s: float) -> None:
        """Let everything happen that is due until then, or until ``stopped``."""
        events = self._events
        while events and not self.stopped and events[0][0] <= until_s:
            self.now_s, _, event = heappop(events)
            if isinstance(event, greenlet):
                if not event.dead:
                    event.switch()
            else:
                event()

    def release(self) -> None:
        """Let every greenlet that still waits go on once, to end."""
        waiting = [event for _, _, event in self._events if isinstance(event, greenlet)]
        self._events.clear()
        for each in waiting:
            if each:  # one that never began has nothing to end
                each.switch()

    def _push(self, when_s: float, event: greenlet | Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (when_s, self._count, event))

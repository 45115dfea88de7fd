"""What is watched while faults strike: progress, stable offsets, lag.

Times are wall-clock seconds, because records say by the wall clock when they were written.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.fault.results import Sample
from tests.fault.watching import wire
from tests.fault.watching.wire import Line, Place, ends

PROGRESS_INTERVAL_S = 0.02
OFFSETS_INTERVAL_S = 0.25
ASK_S = 1.0


class Seen(Protocol):
    """What the live reader tells."""

    @property
    def done(self) -> int: ...

    def fed_seen_ms(self) -> list[int]: ...


class Progress(threading.Thread):
    """Remembers when outputs of all input partitions written after any moment were visible."""

    def __init__(self, reader: Seen) -> None:
        super().__init__(name="progress", daemon=True)
        self._reader = reader
        self._fed_ms = [0]
        self._seen_s = [0.0]
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(PROGRESS_INTERVAL_S):
            least_ms = min((each for each in self._reader.fed_seen_ms() if each), default=0)
            if least_ms > self._fed_ms[-1]:
                self._seen_s.append(time.time())
                self._fed_ms.append(least_ms)

    def close(self) -> None:
        self._over.set()
        self.join()

    def all_seen(self) -> bool:
        """Whether every input partition has shown an output."""
        return all(self._reader.fed_seen_ms())

    def recovered_s(self, since_s: float) -> float | None:
        """Return when every partition showed an output fed since; None: not yet."""
        at = bisect_left(self._fed_ms, int(since_s * 1000) + 1)
        return self._seen_s[at] if at < len(self._fed_ms) else None

    def await_recovery(self, since_s: float, timeout_s: float) -> float | None:
        deadline_s = time.time() + timeout_s
        while (seen_s := self.recovered_s(since_s)) is None and time.time() < deadline_s:
            time.sleep(PROGRESS_INTERVAL_S)
        return seen_s


class Stall(NamedTuple):
    """A last stable offset that stood below its high watermark, from when to when."""

    began_s: float
    ended_s: float


class Offsets(threading.Thread):
    """Asks for watermarks of the outputs and for the lag of the group, again and again.

    A partition that nobody leads counts as one whose stable offset stands still.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        ports: Sequence[int],
        source: Sequence[Place],
        outputs: Sequence[Place],
        counters: tuple[Callable[[], int], Callable[[], int]],
    ) -> None:
        super().__init__(name="offsets", daemon=True)
        self._lines = [Line(port, ASK_S) for port in ports]
        self._group = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )
        self._source = list(source)
        self._outputs = list(outputs)
        self._written, self._done = counters
        self._stood: dict[Place, tuple[int, float]] = {}
        self._over = threading.Event()
        self._alone = threading.Lock()
        self._began_s = time.time()
        self.stalls: list[Stall] = []
        self.samples: list[Sample] = []
        self.lag = 0

    def run(self) -> None:
        while not self._over.wait(OFFSETS_INTERVAL_S):
            self._watch()
            if not self.samples or time.time() - self._began_s - self.samples[-1].at_s >= 1:
                self.fresh_lag()
                self._sample()

    def close(self) -> None:
        self._over.set()
        self.join()
        self._sample()
        self._group.close()
        for line in self._lines:
            line.close()

    def longest_stall_s(self, since_s: float, until_s: float) -> float:
        """Return the longest stall that touches a span of time."""
        touching = (
            each for each in self.stalls if each.ended_s > since_s and each.began_s < until_s
        )
        return max((each.ended_s - each.began_s for each in touching), default=0.0)

    def fresh_lag(self) -> int:
        """Ask now; brokers that do not answer leave what was known, but never 0."""
        asked = [TopicPartition(*place) for place in self._source]
        try:
            found = self._group.committed(asked, ASK_S)
        except KafkaException:
            return self.lag or 1
        done = {(each.topic, each.partition): max(0, each.offset) for each in found}
        known = self._ask(self._source, wire.COMMITTED)  # later than what is done: never below it
        if len(known) < len(self._source):
            return self.lag or 1
        self.lag = sum(max(0, end - done[place]) for place, end in known.items())
        return self.lag

    def _sample(self) -> None:
        at_s = round(time.time() - self._began_s, 2)
        self.samples.append(Sample(at_s, self._written(), self._done(), self.lag))

    def _watch(self) -> None:
        stable = self._ask(self._outputs, wire.COMMITTED)
        now_s = time.time()
        high = self._ask(self._outputs, wire.UNCOMMITTED)
        for place, offset in stable.items():
            last, since_s = self._stood.get(place, (-1, now_s))
            if offset != last or offset >= high.get(place, 0):
                if now_s - since_s > 3 * OFFSETS_INTERVAL_S:
                    self.stalls.append(Stall(since_s, now_s))
                self._stood[place] = offset, now_s

    def _ask(self, places: list[Place], isolation: int) -> dict[Place, int]:
        """Return the ends of those partitions whose leaders answer."""
        found: dict[Place, int] = {}
        with self._alone:  # the end of a campaign asks from another thread
            for line in self._lines:
                with suppress(OSError):
                    found |= ends(line, places, isolation)
        return found

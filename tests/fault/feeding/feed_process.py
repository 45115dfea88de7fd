"""The feeder's process: two threads, one of them writing in transactions."""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fault.feeding.feed_bound import BoundWriter
from tests.fault.feeding.feed_events import Book, Task
from tests.fault.feeding.feed_state import BOUND, RATE, READY, SAVED, STOP, WRITTEN, shared
from tests.fault.feeding.feed_writers import PlainWriter, Writer
from tests.fault.feeding.ledger import COPIES, Ledger

BOUND_SHARE = 0.45
"""Of the records, how many are written in transactions."""
CHUNKS_PER_S = 12
CHUNK_MAX = 2000
CATCH_UP_S = 0.5
"""How much of what could not be written in time is made up for."""


class Lane(threading.Thread):
    """Brings chunks of events to one writer at its share of the pace."""

    def __init__(self, writer: Writer, rate: Callable[[], float], stop: Callable[[], bool]) -> None:
        super().__init__()
        self._writer = writer
        self._rate = rate
        self._stopping = stop  # Thread has a method called _stop
        self.failure: BaseException | None = None
        self.idle = False

    def run(self) -> None:
        try:
            self._feed()
            self._writer.finish()
        except BaseException as failure:  # the other thread must not go on alone
            self.failure = failure
            raise

    def _feed(self) -> None:
        next_s = time.monotonic()
        while not self._stopping():
            rate = self._rate()
            if rate <= 0:
                if not self.idle:
                    self._writer.finish()
                    self.idle = True
                self._writer.serve(0.02)
                continue
            self.idle = False
            mean = min(max(rate / CHUNKS_PER_S, 1), CHUNK_MAX)
            size = self._writer.events.rng.randint(1, max(1, int(2 * mean) - 1))
            next_s = max(next_s, time.monotonic() - CATCH_UP_S) + size / rate
            self._writer.write(self._writer.events.take(size))
            while (wait_s := next_s - time.monotonic()) > 0 and not self._stopping():
                self._writer.serve(min(wait_s, 0.05))


def main(task: Task) -> None:
    """Write until told to stop, or until nobody is left to tell."""
    folder = Path(task.folder)
    cells = shared(folder / "feed.state")
    parent = os.getppid()
    book = Book()
    lanes: list[Lane] = []

    def stopped() -> bool:
        return bool(cells[STOP]) or os.getppid() != parent or any(lane.failure for lane in lanes)

    def counter(cell: int) -> Callable[[int], None]:
        def count(records: int) -> None:
            cells[cell] += records

        return count

    plain = PlainWriter(task, book, count=counter(WRITTEN), stopped=stopped)
    bound = BoundWriter(task, book, count=counter(BOUND), stopped=stopped)
    lanes += [
        Lane(plain, lambda: cells[RATE] * (1 - BOUND_SHARE), stopped),
        Lane(bound, lambda: cells[RATE] * BOUND_SHARE, stopped),
    ]
    for lane in lanes:
        lane.start()
    cells[READY] = 1

    def save() -> None:
        fates = np.frombuffer(bytes(book.fates), np.uint8).reshape(-1, COPIES)
        Ledger(task.run, fates, bound.hidden).save(folder / "ledger.npz")

    while any(lane.is_alive() for lane in lanes):
        time.sleep(0.02)
        if cells[RATE] == 0 and not cells[SAVED] and all(lane.idle for lane in lanes):
            save()
            cells[SAVED] = 1
    if any(lane.failure for lane in lanes):
        sys.exit(1)
    save()


if __name__ == "__main__":
    gc.disable()  # nothing here makes cycles, and much is made
    main(Task(**json.loads(sys.argv[1])))

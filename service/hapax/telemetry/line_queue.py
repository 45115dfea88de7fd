"""Log lines on their way out: a bounded queue and a thread, so that no reader holds or ends work.

A pipe that is not read, a terminal that was stopped, a disk that is full and a reader that has gone
cost lines and nothing else.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_MAX = 4 << 20
"""Of lines that wait: some minutes of a busy service."""
FLUSH_S = 1.0
"""Longest that the end of a process waits for its last lines."""

_QUEUES: list[LineQueue] = []


def flush_lines(seconds: float = FLUSH_S) -> None:
    """Wait for the last lines of this process, which is about to end."""
    for queue in _QUEUES:
        queue.flush(seconds)


def tell_drops(on_drop: Callable[[], object], on_resume: Callable[[], object]) -> None:
    """Report lines that are dropped from now on; see LineQueue."""
    for queue in _QUEUES:
        queue.on_drop, queue.on_resume = on_drop, on_resume


class LineQueue:
    """Writes lines to a file descriptor, in order. Any thread may add one; none waits or fails.

    on_drop    called for each line that was dropped: there is no place, or it cannot be written
    on_resume  called when a line was written again after that
    """

    def __init__(self, descriptor: int, bytes_max: int = BYTES_MAX) -> None:
        # An own one: business code may close its standard output, and the number goes to a socket.
        self._descriptor = os.dup(descriptor)
        self._bytes_max = bytes_max
        self._dropped = False
        self.on_drop: Callable[[], object] = bool
        self.on_resume: Callable[[], object] = bool
        self._begin()
        _QUEUES.append(self)
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._begin)  # the thread is not copied

    def _begin(self) -> None:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def add(self, text: bytes | str) -> None:
        """Write a line as soon as it can be, without waiting for that."""
        line = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
        with self._changed:
            fits = not self._lines or self._bytes + len(line) <= self._bytes_max
            if fits:
                self._lines.append(line)
                self._bytes += len(line)
                self._changed.notify_all()
        if not fits:
            self._drop()

    debug = info = warning = error = critical = add

    def flush(self, seconds: float = FLUSH_S) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._lines, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line = self._lines[0]
            written = self._write(line + b"\n")
            with self._changed:
                self._lines.popleft()
                self._bytes -= len(line)
                self._changed.notify_all()
            if not written:
                self._drop()
            elif self._dropped:
                self._dropped = False
                with suppress(Exception):  # a callback must not end the thread
                    self.on_resume()

    def _write(self, rest: bytes) -> bool:
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # the parent process reads without blocking
                select.select((), (self._descriptor,), ())
            except OSError:
                return False
        return True

    def _drop(self) -> None:
        self._dropped = True
        with suppress(Exception):
            self.on_drop()


def write_within(write: Callable[[], object], seconds: float = FLUSH_S) -> None:
    """Write last words, and wait no longer than so many seconds for who reads them."""

    def written() -> None:
        with suppress(Exception):  # what cannot be written, or exported, is lost
            write()

    thread = threading.Thread(target=written, daemon=True)
    thread.start()
    thread.join(seconds)

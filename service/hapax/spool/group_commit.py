"""Many callers, one sync: what is handed over while the disk works is accepted together.

One thread writes. In a round it writes down what the last sync made durable, appends what has come
since, and syncs both at once; then the group of the round before is acknowledged. So a group is
acknowledged by the sync after its own, and under load a sync serves two groups; frames.py has why.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from hapax.core.errors import HapaxError, StopError
from hapax.spool.errors import SpoolFullError
from hapax.spool.frames import frame_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.spool.log import SpoolLog

GROUP_BYTES_MAX = 4 << 20
"""A group that has so much takes no further call; one call may be larger."""
FULL_LOOK_S = 0.1
DISK_MIN_BYTES, CALL_PARTS = 1 << 18, 4
"""Bounds by which a call fits once everything is drained: the newest segment stays."""


class Group:
    """Calls that are accepted together. ``first``: sequence of its first record, once known."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.position = b""
        self.size_bytes = 0
        self.first = 0
        self.error: HapaxError | None = None
        self._done = threading.Event()
        self._then: list[Callable[[Group], None]] = []
        self._told: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until it is accepted. Raises SpoolFullError, SpoolFailedError."""
        self._done.wait()
        if self.error is not None:
            raise self.error

    def end(self, error: HapaxError | None = None) -> None:
        """Tell all who wait."""
        self.error = error
        for then in self._then:
            then(self)
        with self._lock:
            self._done.set()
            told, self._told = self._told, []
        for tell in told:
            tell()

    def call_when_done(self, tell: Callable[[], None]) -> None:
        """Call this from another thread when it is accepted or not, or at once if that is known."""
        with self._lock:
            if not self._done.is_set():
                self._told.append(tell)
                return
        tell()

    def when_accepted(self, then: Callable[[Group], None]) -> None:
        """Call this from the thread that writes, accepted or not; before its callers return."""
        self._then.append(then)


class GroupCommit:
    """Accepts records of any thread into a log."""

    def __init__(
        self,
        log: SpoolLog,
        *,
        disk_max_bytes: int,
        memory_max_records: int,
        full_timeout_s: float,
        told: Callable[[float, int], None] = lambda _seconds, _records: None,
    ) -> None:
        """``told``: seconds of each round, and records that it made durable.

        memory_max_records  how many may wait for the disk at once, one call apart
        full_timeout_s      how long a call waits for room, on the disk or within the bounds
        """
        self._log = log
        self._disk_max_bytes = disk_max_bytes
        self._memory_max_records = memory_max_records
        self._full_timeout_s = full_timeout_s
        self._told = told
        self._changed = threading.Condition()
        self._groups: deque[Group] = deque()
        self._waiting_bytes = self._waiting_records = 0
        self._synced: Group | None = None
        self._written: Group | None = None
        self._failed: HapaxError | None = None
        self._closing = False
        self.full = False
        """Whether a call waits for room."""
        self._thread = threading.Thread(target=self._run, name="hapax-spool", daemon=True)

    def start(self) -> None:
        """Begin to accept."""
        self._thread.start()

    def submit(
        self,
        records: Sequence[bytes],
        position: bytes,
        then: Callable[[Group, int], None],
        *,
        timeout_s: float | None = None,
    ) -> Group:
        """Hand records over; return their group, which may hold others, too.

        then       called with the group and the index of the first record in it, when it is
                   accepted or refused, before its callers return
        timeout_s  in place of the usual time to wait for room
        Raises SpoolFullError when no room came in time, SpoolFailedError, ValueError.
        """
        content = sum(map(len, records))
        size = frame_bytes(len(records), content, len(position))
        with self._changed:
            self._admit(size, len(records), timeout_s)
            if not self._groups or self._groups[-1].size_bytes >= GROUP_BYTES_MAX:
                self._groups.append(Group())
            group = self._groups[-1]
            index = len(group.records)
            group.records.extend(records)
            group.position = position or group.position
            group.size_bytes += size
            self._waiting_bytes += size
            self._waiting_records += len(records)
            group.when_accepted(lambda done: then(done, index))
            self._changed.notify_all()
        return group

    def _admit(self, size: int, records: int, timeout_s: float | None) -> None:
        """Wait for room; the lock is held."""
        if size > self._disk_max_bytes // CALL_PARTS:
            raise ValueError(
                f"{size:,} bytes in one call are more than a quarter of disk_max_bytes"
                f" ({self._disk_max_bytes:,}): make smaller calls, or raise it"
            )
        wait_s = self._full_timeout_s if timeout_s is None else timeout_s
        until_s = time.monotonic() + wait_s
        while True:
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise StopError("the publisher is closed: nothing of this call was accepted")
            taken = self._log.size_bytes + self._waiting_bytes
            fits = taken + size <= self._disk_max_bytes
            waiting = self._waiting_records
            if fits and (not waiting or waiting + records <= self._memory_max_records):
                self.full = False
                return
            self.full = self.full or not fits
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise SpoolFullError(
                    f"the spool is full: it holds {taken:,} bytes of disk_max_bytes"
                    f" {self._disk_max_bytes:,}, and {waiting:,} records wait for the disk; nothing"
                    " of this call was accepted"
                )
            self._changed.wait(min(left_s, FULL_LOOK_S))

    @property
    def problem(self) -> StopError | None:
        """Why nothing is accepted any more."""
        return self._failed if isinstance(self._failed, StopError) else None

    def made_room(self) -> None:
        """Look again whether there is room."""
        with self._changed:
            self._changed.notify_all()

    def fail(self, error: HapaxError) -> None:
        """Accept nothing any more."""
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()

    def close(self) -> None:
        """Accept what was handed over, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    # -- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (group := self._next()) or self._synced:
                self._round(group)
        except HapaxError as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(HapaxError(f"the spool's thread has ended: {error!r}"))
            raise

    def _next(self) -> Group | None:
        """Return what is to be written next; wait for it unless a group wants its second sync."""
        with self._changed:
            while not (self._groups or self._synced or self._closing):
                self._changed.wait()
            # Popped: from here on no call joins it.
            return self._groups.popleft() if self._groups else None

    def _round(self, group: Group | None) -> None:
        """Acknowledge the group of the round before, and make this one durable."""
        began_s = time.monotonic()
        self._log.certify()
        self._written = group
        if group is not None:
            self._write(group)
        self._sync(began_s)
        self._synced, self._written = self._written, None

    def _sync(self, began_s: float) -> None:
        self._log.sync()
        done, self._synced = self._synced, None
        self._told(time.monotonic() - began_s, len(done.records) if done else 0)
        if done is not None:
            done.end()

    def _write(self, group: Group) -> None:
        """Append, or wait for room on the disk; when none comes in time nothing is written."""
        until_s = time.monotonic() + self._full_timeout_s
        while True:
            try:
                group.first = self._log.append(group.records, group.position)
            except SpoolFullError as error:
                self.full = True
                self._sync(time.monotonic())
                if time.monotonic() < until_s and not self._closing:
                    with self._changed:
                        self._changed.wait(FULL_LOOK_S)
                    continue
                self._written = None
                self._forget(group)
                group.end(error)
                return
            self.full = False
            self._forget(group)
            return

    def _forget(self, group: Group) -> None:
        with self._changed:
            self._waiting_bytes -= group.size_bytes
            self._waiting_records -= len(group.records)
            self._changed.notify_all()

    def _give_up(self, error: HapaxError) -> None:
        with self._changed:
            self._failed = error
            groups = [self._synced, self._written, *self._groups]
            self._groups.clear()
            self._changed.notify_all()
        for group in groups:
            if group is not None:
                group.end(error)

"""Many callers, one transaction: what is handed over while the disk works is accepted together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from hapax.core.errors import HapaxError, StopError
from hapax.spool.folder import SpoolFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.spool.spool import SpoolStore

GROUP_BYTES_MAX = 4 << 20
"""A group that has so much takes no further call; one call may be larger."""
FULL_LOOK_S = 0.1
DISK_MIN_BYTES, CALL_PARTS = 1 << 18, 4
"""Bounds by which a call fits once everything is drained: in SQLite's log and in its file."""
_RECORD_BYTES = 16


class Group:
    """Calls that are accepted together.

    accepted  resolves when it is accepted; raises SpoolFullError, SpoolFailedError
    then      called with the sequence of its first record when it is, before ``accepted`` resolves
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.position = b""
        self.size_bytes = 0
        self.then: list[Callable[[int], None]] = []
        self.accepted: Future[None] = Future()
        self.accepted.set_running_or_notify_cancel()  # a caller that gives up cancels nothing

    def place(self, first: int) -> None:
        for then in self.then:
            then(first)


class GroupCommit:
    """Accepts records of any thread into a spool."""

    def __init__(
        self,
        spool: SpoolStore,
        *,
        disk_max_bytes: int,
        memory_max_records: int,
        full_timeout_s: float,
        told: Callable[[float, int], None] = lambda _seconds, _records: None,
    ) -> None:
        """``told``: seconds of each transaction, and its records.

        memory_max_records  how many may wait for the disk at once, one call apart
        full_timeout_s      how long a call waits for room, on the disk or within the bounds
        """
        self._spool = spool
        self._disk_max_bytes = disk_max_bytes
        self._memory_max_records = memory_max_records
        self._full_timeout_s = full_timeout_s
        self._told = told
        self._changed = threading.Condition()
        self._open: Group | None = None
        """What the next call joins: the disk works on another one."""
        self._waiting_bytes = self._waiting_records = 0
        self._failed: HapaxError | None = None
        self._closing = False
        self.full = False
        """Whether a call waits for room."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hapax-spool")

    def submit(
        self,
        records: Sequence[bytes],
        then: Callable[[int], None],
        *,
        position: bytes = b"",
        timeout_s: float | None = None,
    ) -> Future[None]:
        """Hand records over; the answer resolves when they are accepted, or not (``Group``).

        position   as SpoolStore.append has it
        then       called with the sequence of the first one when they are, before they are read
        timeout_s  in place of the usual time to wait for room
        Raises SpoolFullError when no room came in time, SpoolFailedError, ValueError.
        """
        size = sum(map(len, records), _RECORD_BYTES * len(records) + len(position))
        with self._changed:
            self._admit(size, len(records), timeout_s)
            if self._open is None or self._open.size_bytes >= GROUP_BYTES_MAX:
                self._open = Group()
                self._pool.submit(self._accept, self._open)
            group = self._open
            index = len(group.records)
            group.records.extend(records)
            group.position = position or group.position
            group.size_bytes += size
            self._waiting_bytes += size
            self._waiting_records += len(records)
            group.then.append(lambda first: then(first + index))
        return group.accepted

    def _admit(self, size: int, records: int, timeout_s: float | None) -> None:
        """Wait for room; the lock is held."""
        if size > self._disk_max_bytes // CALL_PARTS:
            raise ValueError(
                f"{size:,} bytes in one call are more than a quarter of disk_max_bytes"
                f" ({self._disk_max_bytes:,}): make smaller calls, or raise it"
            )
        until_s = time.monotonic() + (self._full_timeout_s if timeout_s is None else timeout_s)
        while True:
            if self._failed is not None:
                raise self._failed
            if self._closing:
                raise StopError("the publisher is closed: nothing of this call was accepted")
            taken = self._spool.taken_bytes + self._waiting_bytes
            if not (fits := taken + size <= self._disk_max_bytes) and self._spool.reclaim():
                continue
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
        return self._failed if isinstance(self._failed, StopError) else None

    def made_room(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Accept what was handed over, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._pool.shutdown()

    # -- the thread -----------------------------------------------------------------------

    def _accept(self, group: Group) -> None:
        with self._changed:
            if self._open is group:
                self._open = None
        try:
            self._write(group)
        except HapaxError as error:
            self._give_up(group, error)
        except BaseException as error:
            self._give_up(group, HapaxError(f"the spool's thread has ended: {error!r}"))
            raise

    def _write(self, group: Group) -> None:
        """Make a group durable and answer its callers; when there is no room nothing is written."""
        if self._failed is not None:
            raise self._failed
        until_s = time.monotonic() + self._full_timeout_s
        while True:
            began_s = time.monotonic()
            try:
                self._spool.append(group.records, group.position, group.place)
            except SpoolFullError as error:
                self.full = True
                if self._spool.reclaim():
                    continue
                if time.monotonic() < until_s and not self._closing:
                    with self._changed:
                        self._changed.wait(FULL_LOOK_S)
                    continue
                self._end(group, error)
                return
            self.full = False
            self._told(time.monotonic() - began_s, len(group.records))
            self._end(group)
            self._spool.checkpoint()
            return

    def _end(self, group: Group, error: HapaxError | None = None) -> None:
        with self._changed:
            self._waiting_bytes -= group.size_bytes
            self._waiting_records -= len(group.records)
            self._changed.notify_all()
        if error is None:
            group.accepted.set_result(None)
        else:
            group.accepted.set_exception(error)

    def _give_up(self, group: Group, error: HapaxError) -> None:
        self._failed = error
        if not group.accepted.done():
            self._end(group, error)

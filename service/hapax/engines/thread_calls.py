"""Calls of plain functions that overlap, and of list functions: a bounded pool of threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any

from hapax.engines.call_slots import Slot, SlotCalls
from hapax.engines.watchdog import TICK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.calls import Call, CallLimits
    from hapax.core.forms import TransformForm
    from hapax.core.records import Record


class ThreadCalls(SlotCalls):
    """Threads that call one transform, which is safe for them. ``open`` before anything else."""

    def __init__(self, form: TransformForm, limits: CallLimits) -> None:
        super().__init__(form, limits, _await)
        self._ready = threading.Condition(threading.Lock())
        self._idle = 0
        self._closed = False

    def open(self) -> None:
        """Set the transform up and start the threads; raises ConfigurationError."""
        self._set_up()
        for number in range(self._limits.concurrency):
            # Daemons: a call that hangs must not keep the process alive.
            threading.Thread(target=self._work, name=f"call-{number}", daemon=True).start()

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, in their order, as soon as limits allow."""
        with self._ready:
            self._queue.add(calls)
            self._ready.notify(min(self._idle, len(calls)))

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: what has not begun never does; a call that has is left to itself."""
        for call in calls:
            call.dropped = True

    def tick(self) -> tuple[Record, float] | None:
        """Count time, on the watchdog's thread; return a record whose call hangs, and its seconds.

        No thread can be cancelled: the process must end.
        """
        for slot in self._overdue():
            record = slot.record
            if record is not None:
                return record, slot.ticks * TICK_S
        return None

    def close(self) -> None:
        """Give everything up, and tear the transform down."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()
        self._lifetime.close()

    # -- on a thread of the pool --------------------------------------------------------------

    def _work(self) -> None:
        while (slot := self._take()) is not None:
            while slot.pieces:
                self._call(slot)
            with self._ready:
                del self._slots[slot]
                self._queue.done(slot.unit)
                if self._idle and len(self._queue):
                    self._ready.notify()
            self._news.tell()

    def _take(self) -> Slot | None:
        with self._ready:
            while not self._closed:
                if unit := self._queue.take():
                    slot = Slot(unit)
                    self._slots[slot] = None
                    return slot
                self._idle += 1
                self._ready.wait()
                self._idle -= 1
        return None

    def _call(self, slot: Slot) -> None:
        form = self._form
        if self._closed or slot.dropped:
            slot.pieces.clear()
            return
        slot.ticks = 0
        try:
            # A context of its own: what a call leaves in a context variable is not the next one's.
            answer = contextvars.Context().run(form.function, self._given(slot.piece))
        except BaseException as error:  # noqa: BLE001 - whatever it raises, also SystemExit
            attempts = slot.failed(error, self._limits)
        else:
            attempts = slot.answered(answer, self._limits, lists=form.lists)
        if attempts and slot.pieces:
            time.sleep(self._limits.retrying.pause_s(attempts))
        if form.lists:
            self._news.tell()


async def _finished(answer: Any) -> Any:
    return await answer


def _await(answer: Any) -> Any:
    return asyncio.run(_finished(answer))

"""Calls of async transforms: coroutines on an event loop that has a thread of its own.

A call that ends begins the next one on the loop itself, so that no slot waits for the thread that
commits.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvloop

from hapax.core.calls import CallTimeoutError
from hapax.engines.call_slots import Slot, SlotCalls
from hapax.engines.watchdog import TICK_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.calls import Call, CallLimits
    from hapax.core.forms import TransformForm
    from hapax.core.records import Record

SWITCH_S = 0.0005
"""How long the thread that commits may keep the interpreter from the loop: 64 calls of 10 ms at
once reach 0.93 of their bound, with the usual 5 ms 0.91."""
BLOCKED_TICKS = 10
"""After so many the loop counts as blocked, and what blocks it is named."""
CLOSE_WAIT_S = 5.0


class LoopCalls(SlotCalls):
    """Coroutines of one transform. ``open`` before anything else."""

    def __init__(
        self,
        form: TransformForm,
        limits: CallLimits,
        *,
        on_blocked: Callable[[Record | None], object],
    ) -> None:
        super().__init__(form, limits, self._await)
        self._on_blocked = on_blocked
        self._function = form.function
        self._incoming: deque[Call] = deque()
        self._tasks: dict[asyncio.Task[Any], Slot] = {}
        self._beats = self._beats_awaited = self._ticks_without = 0
        self._closing = False
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    def open(self) -> None:
        """Start the loop and set the transform up; raises ConfigurationError."""
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._thread.start()
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        self._function = self._form.function

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, in their order, as soon as limits allow."""
        self._incoming.extend(calls)
        self._loop.call_soon_threadsafe(self._accept)

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: what has not begun never does, coroutines are cancelled."""
        for call in calls:
            call.dropped = True
        self._loop.call_soon_threadsafe(self._cancel_dropped)

    def tick(self) -> tuple[Record, float] | None:
        """Count time, on the watchdog's thread; return a record whose call hangs, and its seconds.

        A call that has taken too long is cancelled; it hangs when it is there as long again.
        """
        self._beat()
        for slot in self._overdue():
            record = slot.record
            if slot.ticks > 2 * self._ticks_max + BLOCKED_TICKS and record is not None:
                return record, slot.ticks * TICK_S
            if not slot.cancelled:
                slot.cancelled = True
                self._loop.call_soon_threadsafe(self._cancel, slot)
        return None

    def close(self) -> None:
        """Give everything up, and tear the transform down."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._cancel_all)
        try:
            self._lifetime.close()
        finally:
            self._closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_WAIT_S)
            if not self._thread.is_alive():
                self._loop.close()

    # -- on the loop ------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            # What asks the interpreter to exit leaves run_forever; its record has failed.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def _await(self, answer: Any) -> Any:
        async def finish() -> Any:
            return await answer

        return asyncio.run_coroutine_threadsafe(finish(), self._loop).result()

    def _accept(self) -> None:
        incoming = self._incoming
        while incoming:
            self._queue.add((incoming.popleft(),))
        self._begin()

    def _begin(self) -> None:
        free = self._limits.concurrency - len(self._slots)
        while free > 0 and (unit := self._queue.take()):
            slot = Slot(unit)
            self._slots[slot] = None
            if not self._step(slot):
                free -= 1

    def _step(self, slot: Slot) -> bool:
        """Call the next piece of a slot; return whether the slot is free."""
        pieces = slot.pieces
        while pieces:
            slot.ticks, slot.cancelled = 0, False
            try:
                answer = self._function(self._given(pieces[-1]))
                task = self._loop.create_task(answer)
            except BaseException as error:  # noqa: BLE001 - whatever it raises, also SystemExit
                if self._pause(slot, slot.failed(error, self._limits)):
                    return False
                continue
            slot.task = task
            self._tasks[task] = slot
            task.add_done_callback(self._ended)
            return False
        del self._slots[slot]
        self._queue.done(slot.unit)
        self._news.tell()
        return True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        slot = self._tasks.pop(task)
        slot.task = None
        if task.cancelled():
            attempts = self._cancelled(slot)
        elif (error := task.exception()) is not None:
            attempts = slot.failed(error, self._limits)
        else:
            attempts = slot.answered(task.result(), self._limits, lists=self._form.lists)
        if not self._pause(slot, attempts) and self._step(slot):
            self._begin()

    def _cancelled(self, slot: Slot) -> int:
        if slot.dropped:
            slot.pieces.clear()
            return 0
        if not slot.cancelled:
            return slot.failed(asyncio.CancelledError("it has cancelled itself"), self._limits)
        late = CallTimeoutError(f"it did not return within {self._limits.timeout_s} s")
        return slot.failed(late, self._limits)

    def _pause(self, slot: Slot, attempts: int) -> bool:
        """Whether the next piece is another attempt, which waits a moment."""
        if not attempts or not slot.pieces:
            return False
        slot.ticks = 0
        self._loop.call_later(self._limits.retrying.pause_s(attempts), self._resume, slot)
        return True

    def _resume(self, slot: Slot) -> None:
        if slot.dropped:
            slot.pieces.clear()
        if slot in self._slots and self._step(slot):
            self._begin()

    def _cancel(self, slot: Slot) -> None:
        if isinstance(slot.task, asyncio.Task):
            slot.task.cancel()

    def _cancel_dropped(self) -> None:
        for slot in list(self._slots):
            if slot.dropped:
                self._cancel(slot)

    def _cancel_all(self) -> None:
        while unit := self._queue.take():
            self._queue.done(unit)
        for slot in self._slots:
            for call in slot.unit:
                call.dropped = True
        self._cancel_dropped()

    def _beat(self) -> None:
        """Name what blocks the loop, once each time."""
        if self._beats < self._beats_awaited:
            self._ticks_without += 1
            if self._ticks_without == BLOCKED_TICKS:
                self._on_blocked(self._at_work())
            return
        self._ticks_without = 0
        self._beats_awaited += 1
        self._loop.call_soon_threadsafe(self._count_beat)

    def _count_beat(self) -> None:
        self._beats += 1

    def _at_work(self) -> Record | None:
        """Return the record of the coroutine that has the loop."""
        task = asyncio.current_task(self._loop)
        slot = None if task is None else self._tasks.get(task)
        return None if slot is None else slot.record

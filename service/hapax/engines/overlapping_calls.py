"""Calls that overlap: coroutines on an event loop, functions on threads, all of one batch.

A coroutine that ends begins the next call on the loop itself, which has a thread of its own, so
that no slot waits for the thread that commits.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt, is_from_outside
from hapax.core.record_path import Batch
from hapax.engines.watchdog import TICK_S
from hapax.processing.call_window import (
    Call,
    CallLimits,
    CallQueue,
    CallTimeoutError,
    Room,
    Slot,
    key_of,
)
from hapax.processing.retry_later import Retrying, RetryTopic
from hapax.processing.transform import Transformer, form_of, load_form
from hapax.schemas.data import with_data
from hapax.settings.rules import call_problems, state_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.record_path import Preset, Results
    from hapax.core.records import Record
    from hapax.core.results import Result
    from hapax.processing.call_window import Unit
    from hapax.processing.keyed_state import KeyedState
    from hapax.processing.transform import TransformForm
    from hapax.settings import Settings

SWITCH_S = 0.0005
"""How long the thread that commits may keep the interpreter from the loop: 64 calls of 10 ms at
once reach 0.93 of their bound, with the usual 5 ms 0.91."""
BLOCKED_TICKS = 10
"""After so many the loop counts as blocked, and what blocks it is named."""
CLOSE_WAIT_S = 5.0
WAIT_S = 0.05


def bound(
    form: TransformForm, limits: CallLimits, state: KeyedState | None = None
) -> TransformForm:
    """Return the form with data, state and, where its module has imported it, with its context."""
    if state is not None:
        return state.bound(form, partial(bound, limits=limits))
    context = sys.modules.get("hapax.context")
    return with_data(context.bound(form) if context else form, limits.formats)


def take_counted() -> list[Any]:
    """Return what business code has counted in this process, for the one that serves it."""
    context = sys.modules.get("hapax.context")
    return context.drained() if context else []


def add_counted(counted: list[Any]) -> None:
    if counted:
        importlib.import_module("hapax.context").add(counted)


class CallLifetime:
    """Opens and closes one transform. ``run`` waits for an awaitable of it."""

    def __init__(self, form: TransformForm, run: Callable[[Any], Any]) -> None:
        self.form = form
        self._run = run
        self._context: Any = None
        self._opened = False

    def open(self) -> TransformForm:
        """Set up; return the form to call. Raises ConfigurationError when that fails."""
        try:
            form = self._enter() if self.form.context else self.form
            if form.setup is not None:
                self._finish(form.setup())
        except BaseException as error:
            if isinstance(error, ConfigurationError) or is_from_outside(error):
                raise
            what = "context" if self.form.context else "setup"
            problem = f"HAPAX_TRANSFORM: its {what} has failed: {type(error).__name__}: {error}"
            raise ConfigurationError(problem) from error
        self.form, self._opened = form, True
        return form

    def close(self) -> None:
        """Tear down; raises what business code raises, as RuntimeError what is no Exception."""
        if not self._opened:
            return
        self._opened = False
        try:
            if self._context is not None:
                context, self._context = self._context, None
                leave = getattr(context, "__aexit__", None) or context.__exit__
                self._finish(leave(None, None, None))
            elif self.form.teardown is not None:
                self._finish(self.form.teardown())
        except BaseException as error:
            if isinstance(error, Exception) or is_from_outside(error):
                raise
            problem = f"HAPAX_TRANSFORM: its teardown has raised {type(error).__name__}: {error}"
            raise RuntimeError(problem) from error

    def _enter(self) -> TransformForm:
        context = self.form.function()
        enter = getattr(context, "__aenter__", None) or context.__enter__
        found = self._finish(enter())
        self._context = context
        try:
            form = form_of(found)
        except ValueError as error:
            raise ConfigurationError(f"HAPAX_TRANSFORM: what it yields {error}") from error
        if form.stateful:
            raise ConfigurationError(
                "HAPAX_TRANSFORM: what its context yields keeps state: make it a function"
            )
        if form.context or form.asynchronous != self.form.asynchronous:
            kind = "an async function" if self.form.asynchronous else "a plain function"
            raise ConfigurationError(f"HAPAX_TRANSFORM: this context manager yields {kind}")
        return form

    def _finish(self, answer: Any) -> Any:
        return self._run(answer) if inspect.isawaitable(answer) else answer


class SlotCalls(ABC):
    """Makes calls alongside each other. One thread starts and drops; others may make them.

    ``open`` comes before anything else. Time is counted in ticks of the watchdog, not by a clock:
    what was frozen and thawed must not lose its calls for the time that it could not use.
    """

    def __init__(self, form: TransformForm, limits: CallLimits, run: Callable[[Any], Any]) -> None:
        self._form = form
        self._limits = limits
        self._lifetime = CallLifetime(form, run)
        self._queue = CallQueue(limits.order, 1)
        self._slots: dict[Slot, None] = {}
        self._news = threading.Event()
        self._ticks_max = float("inf") if limits.timeout_s is None else limits.timeout_s / TICK_S

    @property
    def at_once(self) -> int:
        return self._limits.concurrency * (self._limits.records_max if self._form.lists else 1)

    @abstractmethod
    def open(self, state: KeyedState | None = None) -> None:
        """Set the transform up; raises ConfigurationError."""

    @abstractmethod
    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, and what has waited for room, in their order, as limits allow."""

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: what has not begun never does."""
        for call in calls:
            call.dropped = True

    @abstractmethod
    def tick(self) -> tuple[Record, float] | None:
        """Count time, on the watchdog's thread; return a record that hangs, and how long."""

    @abstractmethod
    def close(self) -> None:
        """Give everything up, and tear the transform down."""

    def begun(self) -> set[Call]:
        return {call for slot in list(self._slots) for call in slot.unit}

    def wait(self, seconds: float) -> None:
        """Return when a call has ended since the last wait, or when the time is up."""
        self._news.wait(seconds)
        self._news.clear()

    def running(self) -> list[tuple[Record, float]]:
        """Return the records in a call, and for how many seconds; from any thread."""
        found = ((slot.record, slot.ticks * TICK_S) for slot in list(self._slots))
        return [(record, seconds) for record, seconds in found if record is not None]

    def _given(self, piece: Unit) -> Any:
        given = self._limits.given
        return [given(call) for call in piece] if self._form.lists else given(piece[0])

    def _set_up(self, state: KeyedState | None) -> None:
        self._form = bound(self._lifetime.open(), self._limits, state)
        longest = self._limits.records_max if self._form.lists else 1
        self._queue = CallQueue(self._limits.order, longest, unique=state is not None)

    def _overdue(self, timed: Iterable[Slot]) -> list[Slot]:
        """Count one tick for each attempt; return those that have taken too long."""
        attempts = [slot for slot in timed if not slot.resting]
        for slot in attempts:
            slot.ticks += 1
        return [slot for slot in attempts if slot.ticks > self._ticks_max]


def _new_event_loop() -> asyncio.AbstractEventLoop:
    with suppress(ImportError):  # it has no wheels for Windows and PyPy
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
        return loop
    return asyncio.new_event_loop()


async def _finished(answer: Any) -> Any:
    return await answer


class LoopCalls(SlotCalls):
    """Coroutines of one transform; while one holds the loop time passes for it alone."""

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
        self._judged: Slot | None = None
        """Its function is called, or its answer looked at, on the loop itself."""
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._run, name="calls", daemon=True)

    def open(self, state: KeyedState | None = None) -> None:
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._thread.start()
        try:
            self._set_up(state)
        except BaseException:
            self.close()
            raise
        self._function = self._form.function

    def start(self, calls: Sequence[Call]) -> None:
        self._incoming.extend(calls)
        self._loop.call_soon_threadsafe(self._accept)

    def drop(self, calls: Sequence[Call]) -> None:
        super().drop(calls)
        self._loop.call_soon_threadsafe(self._cancel_dropped)

    def tick(self) -> tuple[Record, float] | None:
        """Cancel an attempt that has taken too long; it hangs when it takes as long again."""
        if self._closing:
            return None
        hangs = 2 * self._ticks_max + BLOCKED_TICKS
        for slot in self._overdue(self._timed()):
            record, task = slot.record, slot.task
            if slot.ticks > hangs and record is not None:
                return record, slot.ticks * TICK_S
            if not slot.late and isinstance(task, asyncio.Task):
                self._loop.call_soon_threadsafe(self._cut, task)
        if self._ticks_without > hangs:  # by what no record is known of: the oldest is a guess
            records = [slot.record for slot in list(self._slots) if not slot.resting]
            return next(((one, hangs * TICK_S) for one in records if one is not None), None)
        return None

    def close(self) -> None:
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
        return asyncio.run_coroutine_threadsafe(_finished(answer), self._loop).result()

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
        pieces = slot.pieces
        while pieces:
            slot.begin()
            self._judged = slot
            try:
                answer = self._function(self._given(pieces[-1]))
                task = self._loop.create_task(answer)
            except BaseException as error:  # noqa: BLE001 - whatever it raises, also SystemExit
                if self._pause(slot, slot.failed(error, self._limits)):
                    return False
                continue
            finally:
                self._judged = None
            slot.task = task
            self._tasks[task] = slot
            task.add_done_callback(self._ended)
            return False
        del self._slots[slot]
        self._queue.done(slot.unit)
        self._news.set()
        return True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        slot = self._judged = self._tasks.pop(task)
        slot.task = None
        attempts = self._judge(slot, task)
        self._judged = None
        if not self._pause(slot, attempts) and self._step(slot):
            self._begin()

    def _judge(self, slot: Slot, task: asyncio.Task[Any]) -> int:
        limits, cancelled = self._limits, task.cancelled()
        if cancelled and slot.dropped:
            slot.pieces.clear()
            return 0
        error = asyncio.CancelledError("it has cancelled itself") if cancelled else task.exception()
        if slot.late:  # an answer after the loop was held comes too late as well
            error = CallTimeoutError(f"it did not return within {limits.timeout_s} s")
        if error is not None:
            return slot.failed(error, limits)
        return slot.answered(task.result(), limits, lists=self._form.lists)

    def _pause(self, slot: Slot, attempts: int) -> bool:
        if not attempts or not slot.pieces:
            return False
        self._loop.call_later(self._limits.retrying.pause_s(attempts), self._resume, slot)
        return True

    def _resume(self, slot: Slot) -> None:
        if slot.dropped:
            slot.pieces.clear()
        if slot in self._slots and self._step(slot):
            self._begin()

    def _cut(self, task: asyncio.Task[Any]) -> None:
        slot = self._tasks.get(task)
        if slot is not None and not slot.late:
            slot.late = True
            task.cancel()

    def _cancel_dropped(self) -> None:
        for slot in list(self._slots):
            if slot.dropped and isinstance(slot.task, asyncio.Task):
                slot.task.cancel()

    def _cancel_all(self) -> None:
        self._queue.clear()
        for call in self.begun():
            call.dropped = True
        self._cancel_dropped()

    def _timed(self) -> list[Slot]:
        if self._beats < self._beats_awaited:
            self._ticks_without += 1
            task = asyncio.current_task(self._loop)
            slot = self._judged if task is None else self._tasks.get(task)
            if self._ticks_without == BLOCKED_TICKS:
                self._on_blocked(None if slot is None else slot.record)
            return [] if slot is None else [slot]
        self._ticks_without = 0
        self._beats_awaited += 1
        self._loop.call_soon_threadsafe(self._count_beat)
        return list(self._slots)

    def _count_beat(self) -> None:
        self._beats += 1


class ThreadCalls(SlotCalls):
    """Threads that call one transform, which is safe for them."""

    def __init__(self, form: TransformForm, limits: CallLimits) -> None:
        super().__init__(form, limits, lambda answer: asyncio.run(_finished(answer)))
        self._ready = threading.Condition(threading.Lock())
        self._idle = 0
        self._closed = False

    def open(self, state: KeyedState | None = None) -> None:
        self._set_up(state)
        for number in range(self._limits.concurrency):
            # Daemons: a call that hangs must not keep the process alive.
            threading.Thread(target=self._work, name=f"call-{number}", daemon=True).start()

    def start(self, calls: Sequence[Call]) -> None:
        with self._ready:
            self._queue.add(calls)
            self._ready.notify(self._idle if self._queue.aside else min(self._idle, len(calls)))

    def tick(self) -> tuple[Record, float] | None:
        """Return a record that hangs. No thread can be cancelled: the process must end."""
        for slot in self._overdue(list(self._slots)):
            record = slot.record
            if record is not None:
                return record, slot.ticks * TICK_S
        return None

    def close(self) -> None:
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
            self._news.set()

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
        slot.begin()
        try:
            # A context of its own: what a call leaves in a context variable is not the next one's.
            answer = contextvars.Context().run(form.function, self._given(slot.pieces[-1]))
        except BaseException as error:  # noqa: BLE001 - whatever it raises, also SystemExit
            attempts = slot.failed(error, self._limits)
        else:
            attempts = slot.answered(answer, self._limits, lists=form.lists)
        if attempts and slot.pieces:
            time.sleep(self._limits.retrying.pause_s(attempts))
        if form.lists:
            self._news.set()


def retrying(settings: Settings) -> Retrying:
    retry, name = settings.retry, settings.retry_topic
    return Retrying(
        backoff_ms=retry.backoff_ms,
        topic=None if name is None else RetryTopic(name, frozenset(settings.input.topics)),
        later=retry.later or (),
        later_attempts=retry.later_attempts,
        delay_ms=retry.delay_ms,
        delay_max_ms=retry.delay_max_ms,
    )


def call_limits(settings: Settings) -> CallLimits:
    call, timeout_ms = settings.call, settings.call.timeout_ms
    return CallLimits(
        concurrency=call.concurrency,
        order=call.order,
        records_max=call.records_max,
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        attempts_max=settings.retry.attempts,
        retrying=retrying(settings),
        output_bytes_max=call.output_bytes_max,
        formats=settings.formats,
    )


def load_calls(settings: Settings) -> TransformForm:
    """Import business code; raise ConfigurationError when settings do not go with its form."""
    form = load_form(settings.transform)
    # With state the calls of a batch end before it is committed, and none is made meanwhile.
    alone = form.stateful or not overlapping(form, call_limits(settings))
    problems = list(call_problems(settings)) if alone and settings.engine == "worker" else []
    if form.stateful:
        problems += state_problems(settings)
    if problems:
        raise ConfigurationError(problems)
    return form


def make_calls(
    form: TransformForm, limits: CallLimits, on_blocked: Callable[[Record | None], object] = bool
) -> SlotCalls:
    """Return what makes the calls of a form; it is not open yet."""
    if form.asynchronous:
        return LoopCalls(form, limits, on_blocked=on_blocked)
    return ThreadCalls(form, limits)


def overlapping(form: TransformForm, limits: CallLimits) -> bool:
    return limits.concurrency > 1 or not form.plain


class GatheredCalls:
    """Gives all records of a batch their results before it returns."""

    def __init__(self, calls: SlotCalls) -> None:
        self.calls = calls

    def apply_all(self, batch: Batch, interrupt: Interrupt, preset: Preset) -> Results:
        """Return the results in order; when the interrupt is due, a prefix of at least one call."""
        room, before = Room(), interrupt.bytes
        room.most = interrupt.bytes_max - before
        calls = [
            Call(record, record.event_id, key_of(record), unchecked=False, room=room, inside=True)
            for record in batch.records
        ]
        for index, known in preset.items():
            calls[index].preset = known
        made = [call for call in calls if not call.done]
        self.calls.start(made)
        stopped = False
        while not all(call.done for call in made):
            self.calls.wait(WAIT_S)
            interrupt.weigh(before + room.bytes)
            if interrupt.due and not stopped:
                stopped = True
                made = self._stop(made)
        return [call.outcome for call in takewhile(lambda call: call.done, calls)]

    def close(self) -> None:
        self.calls.close()

    def apply(self, record: Record) -> Result | None:
        return self.apply_all(Batch([record]), Interrupt(), {})[0]

    def _stop(self, made: list[Call]) -> list[Call]:
        begun = self.calls.begun()
        kept = [call for index, call in enumerate(made) if not index or call.done or call in begun]
        keeping = set(map(id, kept))
        for call in made:
            call.dropped = id(call) not in keeping
        return kept


def open_transformer(
    form: TransformForm,
    limits: CallLimits,
    on_blocked: Callable[[Record | None], object] = bool,
    state: KeyedState | None = None,
) -> Transformer | GatheredCalls:
    """Return what runs a form batch by batch, set up. Raises ConfigurationError."""
    if not overlapping(form, limits):
        function, attempts = bound(form, limits, state).function, limits.attempts_max
        return Transformer(function, attempts, limits.retrying, limits.output_bytes_max)
    calls = make_calls(form, limits, on_blocked)
    calls.open(state)
    return GatheredCalls(calls)

"""What calls on an event loop and calls on threads have in common: slots, news, and ticks."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from hapax.core.call_window import CallQueue, fail, settle
from hapax.core.errors import ConfigurationError
from hapax.core.ports import is_from_outside
from hapax.core.transform import form_of
from hapax.engines.watchdog import TICK_S
from hapax.schemas.data import with_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.call_window import Call, CallLimits, Unit
    from hapax.core.records import Record
    from hapax.core.transform import TransformForm


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
            raise ConfigurationError([problem]) from error
        self.form, self._opened = form, True
        return form

    def close(self) -> None:
        """Tear down; raises what business code raises, as RuntimeError what is no Exception."""
        if not self._opened:
            return
        self._opened = False
        try:
            self._leave()
        except BaseException as error:
            if isinstance(error, Exception) or is_from_outside(error):
                raise
            problem = f"HAPAX_TRANSFORM: its teardown has raised {type(error).__name__}: {error}"
            raise RuntimeError(problem) from error

    def _leave(self) -> None:
        if self._context is not None:
            context, self._context = self._context, None
            leave = getattr(context, "__aexit__", None) or context.__exit__
            self._finish(leave(None, None, None))
        elif self.form.teardown is not None:
            self._finish(self.form.teardown())

    def _enter(self) -> TransformForm:
        context = self.form.function()
        enter = getattr(context, "__aenter__", None) or context.__enter__
        found = self._finish(enter())
        self._context = context
        try:
            form = form_of(found)
        except ValueError as error:
            raise ConfigurationError([f"HAPAX_TRANSFORM: what it yields {error}"]) from error
        if form.context or form.asynchronous != self.form.asynchronous:
            kind = "an async function" if self.form.asynchronous else "a plain function"
            raise ConfigurationError([f"HAPAX_TRANSFORM: this context manager yields {kind}"])
        return form

    def _finish(self, answer: Any) -> Any:
        return self._run(answer) if inspect.isawaitable(answer) else answer


class Slot:
    """One of so many calls at once: a unit, and what of it is still to be called, last first.

    ``task``: what can be cancelled. ``ticks``: of the watchdog since the present call has begun.
    """

    __slots__ = ("cancelled", "pieces", "task", "ticks", "unit")

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.pieces = [unit]
        self.task: object = None
        self.ticks = 0
        self.cancelled = False

    @property
    def piece(self) -> Unit:
        return self.pieces[-1]

    @property
    def record(self) -> Record | None:
        """The first record of the call, as another thread sees it."""
        pieces = self.pieces
        return pieces[-1][0].record if pieces else None

    @property
    def dropped(self) -> bool:
        """Whether none of its results is wanted any more."""
        return all(call.dropped for call in self.unit)

    def answered(self, answer: object, limits: CallLimits, *, lists: bool) -> int:
        """Give results; return how many attempts the next piece has had, 0 for a new one."""
        piece = self.pieces.pop()
        return self._again(settle(piece, answer, limits, lists=lists))

    def failed(self, error: BaseException, limits: CallLimits) -> int:
        """Take note of what a call has raised; the rest as in ``answered``."""
        piece = self.pieces.pop()
        return self._again(fail(piece, error, limits))

    def _again(self, pieces: list[Unit]) -> int:
        self.pieces += reversed(pieces)
        return max((piece[0].attempts for piece in pieces), default=0)


class News:
    """Wakes the thread that waits for results. Cheap to set again before it has read."""

    def __init__(self) -> None:
        self._told = False
        self._event = threading.Event()

    def tell(self) -> None:
        """Wake the waiting thread; from any thread."""
        if not self._told:
            self._told = True
            self._event.set()

    def wait(self, seconds: float) -> None:
        """Wait until something was set since the last wait, or until the time is up."""
        if not self._told:
            self._event.wait(seconds)
        self._told = False
        self._event.clear()


class SlotCalls:
    """What both ways to make calls have in common. ``ticks_max``: of a call, infinite without one.

    Time is counted in ticks of the watchdog, not by a clock: what was frozen and thawed must not
    lose its calls for the time that it could not use.
    """

    def __init__(self, form: TransformForm, limits: CallLimits, run: Callable[[Any], Any]) -> None:
        self._form = form
        self._limits = limits
        self._lifetime = CallLifetime(form, run)
        self._queue = CallQueue(limits.order, 1)
        self._slots: dict[Slot, None] = {}
        self._news = News()
        limit_s = limits.timeout_s
        self._ticks_max = float("inf") if limit_s is None else limit_s / TICK_S

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    @property
    def at_once(self) -> int:
        return self._limits.concurrency * (self._limits.records_max if self._form.lists else 1)

    def begun(self) -> set[Call]:
        return {call for slot in list(self._slots) for call in slot.unit}

    def wait(self, seconds: float) -> None:
        self._news.wait(seconds)

    def running(self) -> list[tuple[Record, float]]:
        """Return the records in a call, and for how many seconds; from any thread."""
        found = ((slot.record, slot.ticks * TICK_S) for slot in list(self._slots))
        return [(record, seconds) for record, seconds in found if record is not None]

    def _given(self, piece: Unit) -> Any:
        given = self._limits.given
        return [given(call) for call in piece] if self._form.lists else given(piece[0])

    def _set_up(self) -> None:
        self._form = with_data(self._lifetime.open(), self._limits.formats)
        longest = self._limits.records_max if self._form.lists else 1
        self._queue = CallQueue(self._limits.order, longest)

    def _overdue(self) -> list[Slot]:
        """Count one tick for each call in its slot; return those that have taken too long."""
        late = []
        for slot in list(self._slots):
            slot.ticks += 1
            if slot.ticks > self._ticks_max:
                late.append(slot)
        return late

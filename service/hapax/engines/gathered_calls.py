"""Calls that overlap within one batch: for tasks of Spark, isolated processes, the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.calls import Call, CallLimits, key_of
from hapax.core.errors import ConfigurationError
from hapax.core.forms import load_form
from hapax.core.interrupt import Interrupt
from hapax.core.retry_later import Retrying, RetryTopic
from hapax.core.transform import Transformer
from hapax.engines.loop_calls import LoopCalls
from hapax.engines.thread_calls import ThreadCalls
from hapax.schemas.data import with_data
from hapax.settings.rules import call_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.forms import TransformForm
    from hapax.core.records import Record
    from hapax.core.transform import Result
    from hapax.settings import Settings

WAIT_S = 0.05

Making = LoopCalls | ThreadCalls


def retrying(settings: Settings) -> Retrying:
    """Return what follows a call that failed."""
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
    """Return how calls are made, and what follows one that fails."""
    call, timeout_ms = settings.call, settings.call.timeout_ms
    return CallLimits(
        concurrency=call.concurrency,
        order=call.order,
        records_max=call.records_max,
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        attempts_max=settings.retry.attempts,
        retrying=retrying(settings),
        formats=settings.formats,
    )


def load_calls(settings: Settings) -> TransformForm:
    """Import business code; raise ConfigurationError when settings do not go with its form."""
    form = load_form(settings.transform)
    if settings.engine == "worker" and not overlapping(form, call_limits(settings)):
        problems = [problem.sentence for problem in call_problems(settings)]
        if problems:
            raise ConfigurationError(problems)
    return form


def make_calls(
    form: TransformForm, limits: CallLimits, on_blocked: Callable[[Record | None], object] = bool
) -> Making:
    """Return what makes the calls of a form; it is not open yet."""
    if form.asynchronous:
        return LoopCalls(form, limits, on_blocked=on_blocked)
    return ThreadCalls(form, limits)


def overlapping(form: TransformForm, limits: CallLimits) -> bool:
    """Whether calls need more than a loop over the records."""
    return limits.concurrency > 1 or not form.plain


class GatheredCalls:
    """Gives all records of a batch their results before it returns."""

    def __init__(self, calls: Making) -> None:
        self.calls = calls

    def apply_all(
        self,
        records: Sequence[Record],
        interrupt: Interrupt,
        fates: dict[int, Result | None],
    ) -> list[Result | None]:
        """Return the results in order; when the interrupt is due, a prefix of at least one call."""
        calls = [
            Call(record, record.event_id, key_of(record), unchecked=False) for record in records
        ]
        for index, fate in fates.items():
            calls[index].fate = fate
        made = [call for call in calls if not call.done]
        self.calls.start(made)
        stopped = False
        while not all(call.done for call in made):
            self.calls.wait(WAIT_S)
            if interrupt.due and not stopped:
                stopped = True
                made = self._stop(made)
        results: list[Result | None] = []
        for call in calls:
            if not call.done:
                break
            results.append(call.outcome)
        return results

    def apply(self, record: Record) -> Result | None:
        """Return the result of one record."""
        return self.apply_all([record], Interrupt(), {})[0]

    def close(self) -> None:
        """Tear the transform down."""
        self.calls.close()

    def _stop(self, made: list[Call]) -> list[Call]:
        """Begin no further call; return those to wait for, the first one among them."""
        begun = self.calls.begun()
        kept = [call for index, call in enumerate(made) if not index or call.done or call in begun]
        keeping = set(map(id, kept))
        for call in made:
            call.dropped = id(call) not in keeping
        return kept


def open_transformer(
    form: TransformForm, limits: CallLimits, on_blocked: Callable[[Record | None], object] = bool
) -> Transformer | GatheredCalls:
    """Return what runs a form batch by batch, set up. Raises ConfigurationError."""
    if not overlapping(form, limits):
        function = with_data(form, limits.formats).function
        return Transformer(function, limits.attempts_max, limits.retrying)
    calls = make_calls(form, limits, on_blocked)
    calls.open()
    return GatheredCalls(calls)

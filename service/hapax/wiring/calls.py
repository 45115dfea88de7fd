"""Business code, put together: its form, how its calls are made, and a process for suspects."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hapax.core.isolation import Isolation
from hapax.engines.gathered_calls import GatheredCalls, call_limits, open_transformer
from hapax.engines.isolated_calls import IsolatedCalls

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from hapax.core.forms import TransformForm
    from hapax.core.records import Coordinates, Record
    from hapax.core.transform import Transformer
    from hapax.engines.gathered_calls import Making
    from hapax.settings import Settings
    from hapax.telemetry.events import Events
    from hapax.wiring.builders import Shared

CALL_SHARE = 0.9
"""Of ``max.poll.interval.ms``: a batch that takes longer is taken from us anyway."""


def call_limit_s(settings: Settings) -> float:
    """Return how long business code may hold one record.

    Unset: so long that the group has all but given the partition to another member.
    """
    timeout_ms = settings.call.timeout_ms
    if timeout_ms is None:
        return CALL_SHARE * settings.group.max_poll_interval_ms / 1000
    return timeout_ms / 1000


def transformer(
    shared: Shared, form: TransformForm, stack: ExitStack
) -> Transformer | GatheredCalls:
    """Return business code, set up; raises ConfigurationError."""
    events = shared.events
    made = open_transformer(form, call_limits(shared.settings), events.event_loop_blocked)
    if isinstance(made, GatheredCalls):
        stack.callback(made.close)
        shared.watchdog.follow(partial(_follow, made.calls, events))
    return made


def _follow(calls: Making, events: Events) -> tuple[Record, float] | None:
    events.calls_observed(calls.running())
    return calls.tick()


def isolation(
    settings: Settings,
    transformer: Transformer | GatheredCalls,
    *,
    on_death: Callable[[Coordinates, str, int], object],
    on_failure: Callable[[str], object],
) -> Isolation:
    """Return business code, with another process for records that may have killed one."""
    return Isolation(
        transformer,
        IsolatedCalls(settings.transform, call_limits(settings), call_limit_s(settings)),
        on_death=lambda record, how, deaths: on_death(record.coordinates, how, deaths),
        on_failure=on_failure,
        at_once=transformer.calls.at_once if isinstance(transformer, GatheredCalls) else 1,
    )

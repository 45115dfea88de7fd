"""Keyed state, put together: where a transform may keep some, its store and its changelog."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hapax.core.errors import ConfigurationError, PreflightError
from hapax.core.keyed_state import KeyedState
from hapax.engines.overlapping_calls import call_limits, overlapping
from hapax.engines.state_restore import StateHold
from hapax.kafka.read.changelog import Changelog
from hapax.state.lmdb_store import LmdbStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from hapax.core.transform import TransformForm
    from hapax.kafka.consume.source import KafkaSource
    from hapax.kafka.produce.producer import Report
    from hapax.settings import Settings
    from hapax.wiring.builders import Shared


class Keyed(NamedTuple):
    """State, and what holds partitions until theirs is there."""

    state: KeyedState
    hold: StateHold


def keyed_state(
    shared: Shared,
    form: TransformForm,
    source: KafkaSource,
    placed: dict[int, Report],
    stack: ExitStack,
) -> Keyed:
    """Raise ConfigurationError and PreflightError where state cannot be kept."""
    settings = shared.settings
    if problems := list(state_problems(settings, form)):
        raise ConfigurationError(problems)
    changelog = Changelog(settings)
    topic = source.list_topics(_ANSWER_S).topics[settings.input.topics[0]]
    if problems := changelog.problems(len(topic.partitions)):
        raise PreflightError(problems)
    folder = settings.state.dir or stack.enter_context(
        tempfile.TemporaryDirectory(prefix="hapax-state-")
    )
    store = LmdbStore(Path(folder), settings.state.size_max)
    stack.callback(store.close)

    def announce(ends: dict[int, int]) -> None:
        placed.clear()
        placed.update({at: partial(store.placed, number) for at, number in ends.items()})

    state = KeyedState(store, settings.state_topic, announce)
    return Keyed(state, StateHold(shared, state, store, changelog))


_ANSWER_S = 10.0


def state_problems(settings: Settings, form: TransformForm) -> Iterator[str]:
    """Yield what does not go with a transform that keeps state."""
    what = f"HAPAX_TRANSFORM={settings.transform} keeps state"
    if settings.engine != "worker":
        yield (
            f"{what}, and HAPAX_ENGINE is {settings.engine}: keep it with HAPAX_SPARK__DATAFRAME,"
            " or choose the worker"
        )
    if settings.guarantee != "exactly_once":
        yield f"{what}, and HAPAX_GUARANTEE is {settings.guarantee}: choose exactly_once"
    if settings.elsewhere:
        yield f"{what}, and HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is another cluster: remove it"
    if settings.retry_topic is not None:
        yield f"{what}, and later tries would change it out of order: remove HAPAX_RETRY__LATER"
    if len(settings.input.topics) > 1:
        yield f"{what}, and HAPAX_INPUT__TOPICS are several: read one topic"
    if overlapping(form, call_limits(settings)):
        yield (
            f"{what}, and its calls overlap: make it a plain function of one record, with"
            " HAPAX_CALL__CONCURRENCY=1"
        )

"""Keyed state, put together: its store, its changelog, and what holds partitions meanwhile."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.engines.state_restore import Keyed, StateHold
from hapax.engines.steps import now_ms
from hapax.kafka.produce.base import KafkaProducing
from hapax.processing.keyed_state import KeyedState
from hapax.state_store import LmdbStore

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hapax.kafka.consume.source import KafkaSource
    from hapax.kafka.produce.producer import Report
    from hapax.kafka.read.changelog import Changelog
    from hapax.wiring.builders import Producing, Shared


def keyed_state(
    shared: Shared,
    changelog: Changelog,
    source: KafkaSource,
    transaction: Producing,
    placed: dict[int, Report],
    stack: ExitStack,
) -> Keyed:
    """Raise PreflightError where the folder of the state is of no use."""
    settings = shared.settings
    kept = settings.state.dir is not None
    folder = Path(settings.state.dir or tempfile.mkdtemp(prefix="hapax-state-"))
    store = LmdbStore(folder, settings.state.size_max, changelog.ids())
    source.name_changelog(store.of[-1])
    if not kept:  # the files last as long as the process has them open
        shutil.rmtree(folder)

    def announce(ends: dict[int, int]) -> None:
        placed.clear()
        placed.update({at: partial(store.placed, number) for at, number in ends.items()})

    state = KeyedState(
        store,
        changelog.topic,
        announce,
        app=settings.app,
        inputs=settings.input.topics,
        bytes_max=changelog.bytes_max,
        now_ms=now_ms,
    )
    hold = StateHold(shared, state, store, changelog)
    stack.callback(lambda: store.close(trusted=hold.close()))
    assert isinstance(transaction, KafkaProducing)  # as load_calls has asked for
    transaction.require(changelog.topic)
    return Keyed(state, hold)

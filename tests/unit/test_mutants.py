"""Controls: a broken worker must be caught, or the green of the others proves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from service.adapters.memory_claims import MemoryClaims
from service.adapters.memory_transaction import MemoryTransaction
from service.core import exactly_once
from service.core.errors import BatchAbortedError
from service.core.plan import Planner
from service.core.transform import Transformer
from service.engines.recovery import Recovery
from service.engines.worker import Worker
from tests.kit.schedules import caught

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.core.ports import Batch
    from service.core.records import Progress

    Patch = Callable[[pytest.MonkeyPatch], None]

SEEDS = range(600)


def no_rewind_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    def rewind(_self: Recovery, _batch: Batch, *, resolved: bool) -> Progress:
        return {}

    patch.setattr(Recovery, "_rewind", rewind)


def rewind_to_the_batch_although_the_outcome_is_open(patch: pytest.MonkeyPatch) -> None:
    def rewind(self: Recovery, batch: Batch, *, resolved: bool) -> Progress:
        self._put_back(batch)
        return batch.first

    patch.setattr(Recovery, "_rewind", rewind)


def rewind_without_a_place_for_partitions_never_committed(patch: pytest.MonkeyPatch) -> None:
    whole = Recovery._rewind

    def rewind(self: Recovery, batch: Batch, *, resolved: bool) -> Progress:
        settled, self._source.settled = self._source.settled, dict  # type: ignore[method-assign]
        try:
            return whole(self, batch, resolved=resolved)
        finally:
            self._source.settled = settled  # type: ignore[method-assign]

    patch.setattr(Recovery, "_rewind", rewind)


def no_put_back_while_claims_are_away(patch: pytest.MonkeyPatch) -> None:
    hold = Recovery._hold

    def forgetful(self: Recovery, reason: str, batch: Batch) -> None:
        hold(self, reason, type(batch)([], {}, {}))

    patch.setattr(Recovery, "_hold", forgetful)


def no_fence_on_doubt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "fence_doubt", lambda _self: None)


def our_own_claim_is_a_duplicate(patch: pytest.MonkeyPatch) -> None:
    claim = MemoryClaims.claim

    def dropping(self: MemoryClaims, ids: Any, records: Any, replays: Any) -> Any:
        own = {
            index: records[index].coordinates for index, i in enumerate(ids) if i in self._claims
        }
        return {**own, **claim(self, ids, records, replays)}

    patch.setattr(MemoryClaims, "claim", dropping)


def twins_are_not_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryClaims, "claim", lambda _self, _ids, _records, _replays: {})


def progress_by(distance: int) -> Patch:
    def patch_progress(patch: pytest.MonkeyPatch) -> None:
        right = exactly_once._progress

        def wrong(batch: Batch, done: int) -> Progress:
            return {where: max(0, at + distance) for where, at in right(batch, done).items()}

        patch.setattr(exactly_once, "_progress", wrong)

    patch_progress.__name__ = f"progress_off_by_{distance}"
    return patch_progress


def a_failed_send_is_ignored(patch: pytest.MonkeyPatch) -> None:
    send = MemoryTransaction.send

    def careless(self: MemoryTransaction, messages: Any) -> None:
        try:
            send(self, messages)
        except BatchAbortedError:
            return

    patch.setattr(MemoryTransaction, "send", careless)


def commit_before_the_offsets(patch: pytest.MonkeyPatch) -> None:
    send_offsets = MemoryTransaction.send_offsets

    def split(self: MemoryTransaction, progress: Any) -> None:
        self.commit()
        send_offsets(self, progress)

    patch.setattr(MemoryTransaction, "send_offsets", split)


def the_rest_of_a_cut_batch_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    process = Worker._process

    def ignore(progress: Any) -> None:
        return

    def forgetful(self: Worker, batch: Batch) -> None:
        rewind, self._source.rewind = self._source.rewind, ignore  # type: ignore[method-assign]
        try:
            process(self, batch)
        finally:
            self._source.rewind = rewind  # type: ignore[method-assign]

    patch.setattr(Worker, "_process", forgetful)


def dead_letters_are_not_written(patch: pytest.MonkeyPatch) -> None:
    apply = Transformer.apply

    def swallowing(self: Transformer, record: Any) -> Any:
        result = apply(self, record)
        return result if isinstance(result, tuple) else ()

    patch.setattr(Transformer, "apply", swallowing)


def outputs_leave_in_another_order(patch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def shuffled(self: Planner, *values: Any, **named: Any) -> Any:
        made = plan(self, *values, **named)
        made.messages.reverse()
        made.sources.reverse()
        return made

    patch.setattr(Planner, "plan", shuffled)


MUTANTS: list[Patch] = [
    no_rewind_after_an_abort,
    rewind_to_the_batch_although_the_outcome_is_open,
    rewind_without_a_place_for_partitions_never_committed,
    no_put_back_while_claims_are_away,
    no_fence_on_doubt,
    our_own_claim_is_a_duplicate,
    twins_are_not_dropped,
    progress_by(1),
    progress_by(-1),
    a_failed_send_is_ignored,
    commit_before_the_offsets,
    the_rest_of_a_cut_batch_is_forgotten,
    dead_letters_are_not_written,
    outputs_leave_in_another_order,
]


def test_the_unbroken_worker_is_not_caught() -> None:
    assert caught(SEEDS) is None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_worker_is_caught(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.kit.pipeline.TURNS_MAX", 400)
    mutant(monkeypatch)
    assert caught(SEEDS) is not None

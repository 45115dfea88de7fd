"""Broken in what becomes of a batch that was taken ahead of its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.engines import batch_runner
from hapax.engines.batch_runner import BatchRunner
from hapax.engines.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    from hapax.core.ports import Batch
    from hapax.core.records import TopicPartition


def kept_when_the_one_before_it_fails(patch: pytest.MonkeyPatch) -> None:
    give_up = BatchRunner.give_up

    def keep(self: BatchRunner, moved: Collection[TopicPartition] = ()) -> Batch:
        ahead, self._ahead = self._ahead, None
        back = give_up(self, moved)
        self._ahead = ahead
        return back

    patch.setattr(BatchRunner, "give_up", keep)


def kept_when_its_partitions_leave(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "_gave_up", lambda _self, _batch, _changes: False)


def where_it_began_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    together = batch_runner._together

    def alone(batch: Batch, _ahead: Any, moved: Collection[TopicPartition]) -> Batch:
        return together(batch, None, moved)

    patch.setattr(batch_runner, "_together", alone)


def read_from_where_it_began_although_it_moved(patch: pytest.MonkeyPatch) -> None:
    give_up = BatchRunner.give_up
    patch.setattr(BatchRunner, "give_up", lambda self, _moved=(): give_up(self))

"""Broken in what becomes of a record that asks for a later try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.plan import Planner
from hapax.testing.source import MemorySource
from hapax.testing.transaction import MemoryTransaction
from tests.simulation.business import RETRY

if TYPE_CHECKING:
    import pytest


def offset_without_the_record_that_waits(patch: pytest.MonkeyPatch) -> None:
    plan = Planner.plan

    def careless(self: Planner, *values: Any, **named: Any) -> Any:
        made = plan(self, *values, **named)
        kept = [n for n, message in enumerate(made.messages) if message.topic != RETRY]
        made.messages = [made.messages[n] for n in kept]
        made.sources = [made.sources[n] for n in kept]
        return made

    patch.setattr(Planner, "plan", careless)


def record_that_waits_without_its_offset(patch: pytest.MonkeyPatch) -> None:
    send = MemoryTransaction.send

    def split(self: MemoryTransaction, messages: Any) -> None:
        waiting = [message for message in messages if message.topic == RETRY]
        if waiting:
            send(self, waiting)
            self.commit()
            self.begin()
        send(self, [message for message in messages if message.topic != RETRY])

    patch.setattr(MemoryTransaction, "send", split)


def the_end_passes_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    read = MemorySource._read

    def hasty(self: MemorySource, where: Any, batch: Any, records_max: int) -> None:
        read(self, where, batch, records_max)
        if where[0] == RETRY and self._broker.fetch(where, self._position[where], 1):
            self._tell_end(where, batch, self._broker.logs[where].stable_end)

    patch.setattr(MemorySource, "_read", hasty)

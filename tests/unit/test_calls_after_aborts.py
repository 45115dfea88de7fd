"""A thousand aborted transactions, each form of a transform: no record is called a second time.

The worker, its window and its calls are the real ones; Kafka and the claims are in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hapax.engines.batch_runner import Windowing, WindowRunner
from hapax.engines.overlapping_calls import make_calls
from hapax.processing.call_window import CallLimits, Window
from hapax.processing.transform import form_of
from hapax.testing.source import InjectedFault
from tests.kit.pipeline import Pipeline
from tests.simulation.business import work

if TYPE_CHECKING:
    from hapax.core.records import Record
    from hapax.engines.batch_runner import BatchRunner
    from hapax.engines.overlapping_calls import SlotCalls
    from hapax.telemetry.events import Events

ABORTS = 1000
PARTITIONS, BATCH, AT_ONCE = 2, 2, 8
RECORDS = BATCH * ABORTS + 100
SLOW, PAUSE_S = 50, 0.002
"""One record in so many takes so long: its call is in flight while others are aborted."""


class Aborting:
    """Refuses the offsets of every second transaction."""

    def __init__(self) -> None:
        self.struck = self._asked = 0

    def __call__(self, step: str) -> InjectedFault | None:
        if step != "send_offsets" or self.struck == ABORTS:
            return None
        self._asked += 1
        if self._asked % 2:
            return None
        self.struck += 1
        return InjectedFault("aborted")


class Counting:
    """Business code in each of its forms, and how often it was called for each record."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []

    @property
    def calls(self) -> Counter[tuple[int, int]]:
        return Counter(self._places)

    def function(self, record: Record) -> Any:
        self._block(record)
        return work(record)

    async def coroutine(self, record: Record) -> Any:
        await asyncio.sleep(self._pause_s(record))
        return work(record)

    def batch(self, records: list[Record]) -> list[Any]:
        self._block(*records)
        return [work(record) for record in records]

    async def coroutine_batch(self, records: list[Record]) -> list[Any]:
        await asyncio.sleep(max(map(self._pause_s, records)))
        return [work(record) for record in records]

    def _block(self, *records: Record) -> None:
        if pause_s := max(map(self._pause_s, records)):
            time.sleep(pause_s)

    def _pause_s(self, record: Record) -> float:
        self._places.append((record.partition, record.offset))
        return 0.0 if record.offset % SLOW else PAUSE_S


class Overlapping(Pipeline):
    """A worker whose calls overlap."""

    turns_max = 100 * ABORTS

    def __init__(self, calls: SlotCalls | None, **options: Any) -> None:
        self.calls = calls
        super().__init__(PARTITIONS, batch_max=BATCH, **options)

    def _runner(self, events: Events) -> BatchRunner:
        runner = super()._runner(events)
        if self.calls is None:
            return runner
        windowing = Windowing(
            Window(), self.calls, self.isolation, 4 * AT_ONCE, 1 << 20, at_once=AT_ONCE
        )
        return WindowRunner(
            self.core,
            self.source,
            runner.suspects,
            runner.sizing,
            windowing=windowing,
            interrupt=self.interrupt,
            watchdog=self.watchdog,
        )


FORMS: dict[str, tuple[str, int] | None] = {
    "one at a time": None,
    "threads": ("function", AT_ONCE),
    "coroutine": ("coroutine", AT_ONCE),
    "list": ("batch", 1),
    "list in threads": ("batch", 2),
    "coroutine of a list": ("coroutine_batch", 2),
}


@pytest.fixture
def overlapping():
    """Makes a pipeline whose calls are closed in the end."""
    made: list[SlotCalls] = []

    def pipeline(form: str, counting: Counting, aborting: Aborting) -> Overlapping:
        if (called := FORMS[form]) is None:
            return Overlapping(None, faults=aborting, transform=counting.function)
        name, concurrency = called
        limits = CallLimits(concurrency=concurrency, records_max=AT_ONCE, attempts_max=1)
        made.append(make_calls(form_of(getattr(counting, name)), limits))
        made[-1].open()
        return Overlapping(made[-1], faults=aborting)

    yield pipeline
    for calls in made:
        calls.close()


@pytest.mark.parametrize("form", FORMS)
def test_in_a_thousand_aborted_transactions_each_record_is_called_exactly_once(overlapping, form):
    counting, aborting = Counting(), Aborting()
    pipeline = overlapping(form, counting, aborting)
    for number in range(RECORDS):
        pipeline.write(b"%d" % number, partition=number % PARTITIONS)
    pipeline.run()
    assert pipeline.drained()
    assert Counter(pipeline.outputs()) == Counter(b"%d" % number for number in range(RECORDS))
    assert aborting.struck == ABORTS
    assert pipeline.told.names().count("batch_aborted") == ABORTS
    assert len(counting.calls) == RECORDS
    assert set(counting.calls.values()) == {1}

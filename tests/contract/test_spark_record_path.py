"""Which record path a task takes, on a real broker, and that it leaves no client behind."""

import gc
import platform
import sys
import threading
from typing import Any

import msgspec
import pytest

from hapax.core.errors import ConfigurationError
from hapax.engines.spark.plan import RangeOutcome
from hapax.kafka import native
from hapax.kafka.consume.decode import NativeIntake
from hapax.kafka.native import NativeBatch
from hapax.wiring.task import RangeTask
from tests.kit.topics import Given, produce

fast = pytest.importorskip("hapax_fast", reason="the native part is optional")

END_S = 20.0
TAKES_MAX = 20
TEN = [b"v%d" % number for number in range(10)]
UPPER = [value.upper() for value in TEN]


@pytest.fixture
def app(application):
    made = application("path", partitions=1)
    produce(made.bootstrap, made.input, *(Given(value, partition=0) for value in TEN))
    return made


@pytest.fixture
def _without_native(monkeypatch):
    """Be an executor whose Python lacks hapax_fast."""
    monkeypatch.setitem(sys.modules, "hapax_fast", None)
    native._found.cache_clear()
    yield
    native._found.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "path"), [("auto", "native"), ("on", "native"), ("off", "python (HAPAX_FAST=off)")]
)
def test_a_task_reports_its_record_path_and_where_it_ran(app, wanted, path):
    report = app.run(app.plan(app.member()), HAPAX_FAST=wanted)
    assert report.error is None
    name, (executor, taken) = report.events[0]
    assert (name, executor) == ("executor_seen", platform.node())
    assert taken.startswith(path)
    assert app.values() == UPPER


def test_native_records_of_a_task_really_come_from_the_native_intake(app, monkeypatch):
    taken = []
    arrivals = NativeIntake.arrivals

    def counted(*arguments: Any) -> Any:
        messages, records = arrivals(*arguments)
        taken.append((len(messages), 0 if records is None else len(records)))
        return messages, records

    monkeypatch.setattr("hapax.kafka.consume.decode.NativeIntake.arrivals", counted)
    app.run(app.plan(app.member()), HAPAX_FAST="on")
    assert sum(messages for messages, _records in taken) == 0
    assert sum(records for _messages, records in taken) == len(TEN)


@pytest.mark.usefixtures("_without_native")
def test_an_executor_without_the_native_part_refuses_or_takes_python_and_says_why(app):
    plan = app.plan(app.member())
    report = app.run(plan, HAPAX_FAST="on")
    assert isinstance(report.error, ConfigurationError)
    assert str(report.error) == (
        f"executor {platform.node()}: HAPAX_FAST=on, but hapax_fast is not installed."
        " Cure that, or set HAPAX_FAST=auto"
    )
    assert app.committed() == {0: None}
    assert app.outputs() == []
    report = app.run(plan, HAPAX_FAST="auto")
    assert report.events[0][1][1] == "python (hapax_fast is not installed)"
    assert app.values() == UPPER


def test_ranges_leave_no_client_behind_however_they_end(app):
    member = app.member()
    plan = app.plan(member, pace=2)
    gc.collect()
    before = fast.clients()
    outcomes = [
        app.run(each, HAPAX_FAST="on").outcome
        for each in (
            plan,
            plan,
            msgspec.structs.replace(plan, member=b"unknown"),
            msgspec.structs.replace(plan, starts={(app.input, 0): 99}),
        )
    ]
    assert outcomes == [RangeOutcome.DONE] * 3 + [RangeOutcome.STOP]
    gc.collect()
    assert fast.clients() == before


def test_a_range_ends_although_its_batch_is_held_and_fetched_records_wait(app):
    """Librdkafka's destructor waits for ever for messages and queues that are open."""
    parts = RangeTask(app.with_settings(HAPAX_FAST="on"), app.plan(app.member()))
    gc.collect()  # what earlier tests have left
    before = fast.clients()
    source, transaction = parts.clients()
    source.place()
    transaction.open()
    source.confirm()
    batch = next(batch for _ in range(TAKES_MAX) if (batch := source.take(3, 1.0)).records)
    assert isinstance(batch, NativeBatch)
    held = [source, transaction]
    del source, transaction

    def end() -> None:
        held.clear()
        gc.collect()

    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    ending.join(END_S)
    assert not ending.is_alive()
    with pytest.raises(RuntimeError, match="these records were given back"):
        list(batch.records)
    del batch
    assert fast.clients() == before

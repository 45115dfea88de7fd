"""The watch on Spark's executors, on a stand-in for its context."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped] # comes without types

from hapax.engines.spark.jvm import INTERVAL_S, watch_executors
from tests.kit.doubles import Told
from tests.unit.test_telemetry_events import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.telemetry.events import Events
    from hapax.telemetry.health import Executor

WITHIN_S = 10.0


class FakeContext:
    """A context with executors. ``on_ask`` may change it, or raise, before each answer."""

    uiWebUrl: str | None = None  # noqa: N815 - Spark's name

    def __init__(self, *executors: Executor) -> None:
        self.found = list(executors)
        self.on_ask: Callable[[], object] = lambda: None
        self._jsc: Any = self

    def sc(self) -> FakeContext:
        return self

    def statusStore(self) -> FakeContext:  # noqa: N802 - Java's name
        return self

    def executorList(self, only_active: bool) -> FakeContext:  # noqa: FBT001, N802 - Java's
        assert only_active
        self.on_ask()
        return self

    def size(self) -> int:
        return len(self.found)

    def apply(self, at: int) -> SimpleNamespace:
        one = self.found[at]
        facts = {
            "id": one.name,
            "hostPort": one.address,
            "totalCores": one.cores,
            "activeTasks": one.running,
            "completedTasks": one.done,
            "failedTasks": one.failed,
            "memoryUsed": one.memory_bytes,
            "maxMemory": one.memory_max_bytes,
        }
        return SimpleNamespace(**{name: lambda value=value: value for name, value in facts.items()})


def watched(context: FakeContext, wait: Callable[[float], object]) -> list[dict[str, Any]]:
    told = Told()
    thread = watch_executors(cast("Any", context), cast("Events", told), wait)
    thread.join(WITHIN_S)
    assert not thread.is_alive()
    return told.of("executors_changed")


def test_executors_are_told_at_once_and_every_few_seconds_until_spark_is_stopped():
    context, ui = FakeContext(IDLE), "http://driver:4040"
    context.uiWebUrl = ui
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        context.found = []
        if len(waits) == 2:
            context._jsc = None

    assert watched(context, wait) == [{"executors": [IDLE], "ui": ui}, {"executors": [], "ui": ui}]
    assert waits == [INTERVAL_S, INTERVAL_S]


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("gone"), ConnectionResetError(), AttributeError("_jvm")]
)
def test_the_watch_ends_quietly_with_a_jvm_that_is_gone(error):
    context = FakeContext(IDLE)

    def gone() -> None:
        raise error

    def wait(_seconds: float) -> None:
        context.on_ask = gone

    assert watched(context, wait) == [{"executors": [IDLE], "ui": ""}]

"""When readers are counted, by which process, and what remains of a count that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.core.lag import GroupProgress
from hapax.core.partition_offsets import LogOffsets
from hapax.core.reader_lag import ReaderLag
from hapax.engines.lag_monitor import READER_OFFSETS_MAX, ReaderLagMonitor
from hapax.settings import load_settings
from tests.kit.waiting import await_
from tests.unit.test_telemetry_events import Told

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST, SECOND = ("in", 0), ("in", 1)
NAMES = ("reader_lag_records", "reader_lag_records_max", "reader_lag_open")


class Probe:
    """Answers one after the other; an exception is raised."""

    def __init__(self, *answers: list[ReaderLag] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def look(self, offsets_max: int) -> list[ReaderLag]:
        self.asked.append(offsets_max)
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer


def lag(partition: int, records: int, uncounted: int = 0) -> ReaderLag:
    return ReaderLag("out", partition, LogOffsets(0, 90, 94), 80, records, uncounted)


def monitor(
    told: Told, probes: Mapping[str, Probe], progress: GroupProgress, engine: str = "worker"
) -> ReaderLagMonitor:
    settings = load_settings(
        {
            "HAPAX_APP": "a",
            "HAPAX_ENGINE": engine,
            "HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "HAPAX_INPUT__TOPICS": "in,more",
            "HAPAX_OUTPUT__TOPIC": "out",
            "HAPAX_TELEMETRY__LAG_INTERVAL": "1s",
        }
    )
    return ReaderLagMonitor(probes, lambda: progress, told.events, settings)


def values(told: Told, group: str, partition: int) -> list[float | None]:
    labels = {"group": group, "topic": "out", "partition": str(partition)}
    return [told.value(name, **labels) for name in NAMES]


def test_what_a_group_has_left_is_three_series_and_they_go_when_it_cannot_be_asked():
    told = Told()
    billing = Probe([lag(0, 5), lag(1, 3, 4)], [lag(1, 2)], TimeoutError("no answer"), [lag(0, 1)])
    look = monitor(told, {"billing": billing}, GroupProgress({FIRST: 3})).look
    look()
    assert [values(told, "billing", number) for number in (0, 1)] == [[5, 5, 4], [3, 7, 4]]
    look()
    assert [values(told, "billing", number) for number in (0, 1)] == [[None] * 3, [2, 2, 4]]
    look()
    assert values(told, "billing", 1) == [None] * 3
    assert told.lines[-1]["reason"] == "TimeoutError: no answer"
    look()
    assert values(told, "billing", 0) == [1, 1, 4]


def test_a_group_that_fails_leaves_the_series_of_others():
    told = Told()
    probes = {"billing": Probe(ValueError("unforeseen")), "search": Probe([lag(0, 5)])}
    monitor(told, probes, GroupProgress({FIRST: 3})).look()
    assert values(told, "search", 0) == [5, 5, 4]
    assert [probe.asked for probe in probes.values()] == [[READER_OFFSETS_MAX // 2]] * 2


@pytest.mark.parametrize(
    ("engine", "ours", "counts"),
    [
        ("worker", {FIRST: 3, SECOND: 3}, True),
        ("worker", {SECOND: 3, ("more", 0): 3}, False),
        ("worker", {}, False),
        ("spark", {}, True),
    ],
)
def test_the_process_with_the_first_partition_counts(engine, ours, counts):
    probe = Probe([lag(0, 5)])
    monitor(Told(), {"billing": probe}, GroupProgress(ours), engine).look()
    assert bool(probe.asked) == counts


def test_series_go_with_the_partition():
    told, progress = Told(), GroupProgress({FIRST: 3})
    billing = monitor(told, {"billing": Probe([lag(0, 5)], [lag(0, 5)])}, progress)
    billing.look()
    progress.committed = {}
    billing.look()
    assert values(told, "billing", 0) == [None] * 3


def test_the_thread_looks_until_it_is_stopped_and_ends_at_once_without_a_group():
    told, probe = Told(), Probe()
    thread = monitor(told, {"billing": probe}, GroupProgress({FIRST: 3}))
    thread.start()
    await_(lambda: len(probe.asked) > 1)
    thread.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert thread.daemon
    idle = monitor(told, {}, GroupProgress({FIRST: 3}))
    idle.start()
    idle.join(30)
    assert not idle.is_alive()

"""What other groups have not read, as a metric: counted from look to look on a real broker."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from hapax.kafka.read.lag_probe import ReaderLagProbe
from hapax.kafka.read.range_reader import count_records
from tests.kit.at_work import delete_from
from tests.kit.behind import Stage, some
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port
from tests.kit.raw_offsets import commit_raw
from tests.kit.topics import produce_open
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator

PLENTY = 100_000


@pytest.fixture
def stage(sandbox) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(sandbox, stack)


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """How many offsets each look has read."""
    counts: list[int] = []

    def counted(queries: Any, isolation: Any, known: Any, ends: Any, **how: Any) -> Any:
        counts.append(sum(ends[where] - one.end for where, one in known.items()))
        return count_records(queries, isolation, known, ends, **how)

    monkeypatch.setattr("hapax.kafka.read.lag_probe.count_records", counted)
    return counts


def probe_of(stage: Stage, topic: str) -> ReaderLagProbe:
    return ReaderLagProbe({"bootstrap.servers": stage.servers, "group.id": topic}, topic)


def seen(probe: ReaderLagProbe, offsets_max: int = PLENTY) -> list[tuple[int, int, int]]:
    """Return of each partition the least and the most that is left, and what is open."""
    return [(one.records_min, one.records_max, one.undecided) for one in probe.look(offsets_max)]


def test_a_look_reads_what_is_new_and_what_was_read_is_known(stage, unique, read):
    topic = unique("read")
    stage.create(topic)
    stage.committed(topic, 50)
    stage.aborted(topic, 200)
    stage.commit(topic, {0: 0})
    probe = probe_of(stage, topic)
    for offset, left in ((0, 50), (0, 50), (20, 30), (51, 0), (252, 0)):
        stage.commit(topic, {0: offset})
        assert seen(probe) == [(left, left, 0)]
    assert read == [252, 0, 0, 0, 0]
    stage.commit(topic, {0: 45})  # back
    assert seen(probe) == [(5, 5, 0)]
    stage.committed(topic, 3)
    stage.opened(topic, 4)
    assert seen(probe) == [(8, 8, 4)]
    assert read[5:] == [252 - 45, 4]


def test_a_look_reads_no_more_than_it_may_and_the_range_narrows(stage, unique):
    topic = unique("long")
    stage.create(topic)
    stage.committed(topic, 1000)
    stage.commit(topic, {0: 0})
    probe = probe_of(stage, topic)
    found = [seen(probe, 400) for _ in range(3)]
    assert found == [[(400, 1001, 0)], [(800, 1001, 0)], [(1000, 1000, 0)]]


def test_nothing_is_known_any_more_of_a_topic_that_was_recreated(stage, unique):
    topic = unique("recreated")
    stage.create(topic)
    stage.committed(topic, 30)
    stage.commit(topic, {0: 5})
    probe = probe_of(stage, topic)
    assert seen(probe) == [(25, 25, 0)]
    delete_from(stage.servers, topic)
    stage.create(topic)
    stage.committed(topic, 10)
    stage.aborted(topic, 6)
    await_(lambda: seen(probe) == [(0, 10, 0)], 30, lambda: str(seen(probe)))
    stage.commit(topic, {0: 5})
    assert seen(probe) == [(5, 5, 0)]


def test_a_group_without_an_offset_has_none_or_all_before_it(stage, unique):
    topic = unique("new")
    stage.create(topic, 2)
    stage.committed(topic, 7)
    assert seen(probe_of(stage, topic)) == [(0, 7, 0), (0, 0, 0)]


def lags(port: int, group: str) -> dict[str, list[float]]:
    """Return by metric its values for a group, in the order of partitions; none: no series."""
    try:
        lines = ask(port, "/metrics")[1].splitlines()
    except OSError:
        return {}
    found: dict[str, list[float]] = {}
    for line in sorted(lines):
        if line.startswith("hapax_reader_lag_") and f'group="{group}"' in line:
            name, _, value = line.partition("{")
            found.setdefault(name, []).append(float(value.rpartition(" ")[2]))
    return found


def test_one_worker_reports_what_readers_of_its_outputs_have_not_read(sandbox, tmp_path):
    ports = [free_port(), free_port()]
    route = PipelineUnderTest(
        sandbox, tmp_path, partitions=2, TELEMETRY__READERS="billing", TELEMETRY__LAG_INTERVAL="1s"
    )
    route.create()
    for number, port in enumerate(ports):
        route.worker(f"w-{number}", TELEMETRY__PORT=str(port))
    route.write(*[b"%d" % number for number in range(20)])
    ends = {0: 0, 1: 0}

    def shown() -> list[dict[str, list[float]]]:
        return [one for one in (lags(port, "billing") for port in ports) if one]

    def told(records: list[int], most: list[int], undecided: int) -> bool:
        return shown() == [
            {
                "hapax_reader_lag_records": records,
                "hapax_reader_lag_records_max": most,
                "hapax_reader_lag_open": [undecided, 0],
            }
        ]

    await_(lambda: len(route.outputs()) == 20, 60, lambda: str(shown()))
    counts = [sum(one.partition == number for one in route.outputs()) for number in ends]
    await_(lambda: told([0, 0], counts, 0), 60, lambda: f"{counts} {shown()}")
    # As most clients do: the offset after the last record, before its marker.
    last = {one.partition: one.offset + 1 for one in route.outputs()}
    commit_raw(
        route.bootstrap, "billing", route.target, {n: (at, -1, "") for n, at in last.items()}
    )
    await_(lambda: told([0, 0], [0, 0], 0), 60, lambda: str(shown()))
    with produce_open(route.bootstrap, route.target, *some(3)):
        await_(lambda: told([0, 0], [0, 0], 3), 60, lambda: str(shown()))
    await_(lambda: told([0, 0], [0, 0], 0), 60, lambda: str(shown()))
    route.close()

"""Both ends of a backfill, to the record: markers, aborted records, holes and empty partitions."""

import subprocess

import pytest

from tests.kit.accounted import accounted
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import FOREVER, Given, produce_aborted, produce_committed, produce_open

T = 1_700_000_000_000
"""Unix ms; records are seconds after it."""
START, END = "2023-11-14T22:13:30Z", "2023-11-14T22:13:40Z"
"""Ten and twenty seconds after T."""
SPAN = {"INPUT__START": START, "INPUT__END": END}
ENGINES: list[type[WorkerProcess]] = [WorkerProcess, SparkProcess]


def at(partition: int, *seconds: float) -> list[Given]:
    """Return a record of each time, whose value names partition and time."""
    return [
        Given(b"%d:%g" % (partition, s), partition=partition, timestamp_ms=T + int(s * 1000))
        for s in seconds
    ]


@pytest.fixture
def route(sandbox, tmp_path):
    """Six partitions, each with another end.

    0 plain records · 1 markers and aborted records around both ends · 2 empty · 3 all too early
    4 all too late · 5 a transaction that is open across the end, and is committed later
    """
    made = PipelineUnderTest(sandbox, tmp_path, partitions=6)
    made.create(source=FOREVER)
    servers, source = made.bootstrap, made.source
    made.write(*at(0, 8, 9.999, 10, 11, 19.999, 20, 21))
    produce_committed(servers, source, *at(1, 9))
    produce_aborted(servers, source, *at(1, 10))
    produce_committed(servers, source, *at(1, 12, 13))
    produce_aborted(servers, source, *at(1, 19, 19.5))
    produce_aborted(servers, source, *at(1, 22))
    produce_committed(servers, source, *at(1, 23))
    made.write(*at(3, 1, 2))
    made.write(*at(4, 30, 31))
    made.write(*at(5, 11))
    yield made
    made.close()


EXPECTED = [b"0:10", b"0:11", b"0:19.999", b"1:12", b"1:13", b"5:11", b"5:12"]


@pytest.mark.parametrize("kind", ENGINES)
def test_each_partition_begins_and_ends_at_the_record_of_the_time(route, kind):
    with produce_open(route.bootstrap, route.source, *at(5, 12, 21)) as producer:
        process = route.start(kind, "b-0", **SPAN)
        # The open transaction began before the end: what it holds before it is waited for.
        with pytest.raises(TimeoutError):
            await_exit(process, 12 if kind is WorkerProcess else 30)
        producer.commit_transaction(30)
        process.ends_with(0)
    assert sorted(str(r.value) for r in route.outputs()) == sorted(map(str, EXPECTED))
    # 1: offsets 0 record, 1 marker, 2 aborted, 3 marker, 4 and 5 records, 6 marker, 7 and 8
    # aborted, 9 marker, 10 aborted and beyond the end.
    assert route.committed() == {0: 5, 1: 10, 2: 0, 3: 2, 4: 0, 5: 2}
    found = accounted(route)
    assert (found.clean, found.totals["records"]) == (True, len(EXPECTED)), found.totals


def await_exit(process: WorkerProcess, within_s: float) -> None:
    try:
        process.process.wait(within_s)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None

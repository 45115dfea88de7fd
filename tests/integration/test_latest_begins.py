"""Where HAPAX_INPUT__START=latest begins, over kills and with several members at once."""

import pytest

from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given
from tests.kit.waiting import await_

PARTITIONS, OLD = 4, 50


@pytest.fixture
def route(sandbox, tmp_path):
    """A topic with old records in every partition, and no group that knows it."""
    made = PipelineUnderTest(sandbox, tmp_path, partitions=PARTITIONS, INPUT__START="latest")
    made.create()
    old = [Given(b"old", partition=number % PARTITIONS) for number in range(PARTITIONS * OLD)]
    made.write(*old)
    yield made
    made.close()


def new(name: bytes) -> list[Given]:
    return [Given(name, partition=number) for number in range(PARTITIONS)]


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_a_worker_killed_at_its_first_commit_processes_no_old_record_when_it_is_back(
    route, delay_s
):
    worker = route.worker()
    await_(lambda: any(each is not None for each in route.committed().values()), 60, worker.text)
    if delay_s:
        route.write(*new(b"before"))
        route.await_outputs(1)
    worker.kill()
    assert route.committed().keys() == set(range(PARTITIONS))
    assert None not in route.committed().values()  # all at once, or none
    route.write(*new(b"while away"))
    worker.start()
    route.await_lag_0()
    found = [record.value for record in route.outputs()]
    assert b"old" not in found
    assert found.count(b"while away") == PARTITIONS


def test_two_members_that_start_at_once_process_no_old_record(route):
    workers = [route.worker("w-0"), route.worker("w-1")]
    await_(lambda: None not in route.committed().values(), 60, lambda: workers[0].text()[-2000:])
    for worker in workers:
        await_(lambda w=worker: bool(w.lines("partitions_assigned")), 60, worker.text)  # type: ignore[misc]
    route.write(*new(b"new"))
    route.await_lag_0()
    assert [record.value for record in route.outputs()] == [b"new"] * PARTITIONS
    assert all(worker.terminate() == 0 for worker in workers)

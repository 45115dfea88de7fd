"""Events whose first copy was claimed, never committed, and can no longer be read."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
}

route = a_route(created=False, redis=True, partitions=2)


def event(name: str, key: bytes = b"k", partition: int = 0) -> Given:
    return Given(name.encode(), key, (("message-id", name.encode()),), partition)


def claimed_then_killed(route: PipelineUnderTest, name: str, **settings: str) -> None:
    """Let a worker claim an event and kill it before it commits."""
    desk = Desk(route)
    worker = route.worker("w-0", TRANSFORM="tests.kit.orders:hang", **settings)
    await_(
        lambda: desk.type("claims", "show", name).exit_code == 0, 60, lambda: worker.text()[-3000:]
    )
    worker.kill()
    assert not route.committed()[0]


def delete_below(route: PipelineUnderTest, offset: int) -> None:
    client = AdminClient({"bootstrap.servers": route.bootstrap})
    for done in client.delete_records([TopicPartition(route.source, 0, offset)]).values():
        done.result(30)


@pytest.mark.long
@pytest.mark.parametrize("records_max", ["10000", "1"])
def test_on_a_compacted_topic_the_copy_that_survives_the_cleaner_has_the_effect(route, records_max):
    """Also when records between the two copies are committed before the second is reached."""
    route.create(source=COMPACTED)
    route.write(event("e"))
    claimed_then_killed(route, "e")
    route.write(event("between", b"between"))
    route.write(event("e"))  # the sender repeats it: the same key, so the first copy is cleaned

    def cleaned() -> bool:
        route.write(event("other", b"other", 0))  # rolls segments
        return read_back(route.bootstrap, route.source)[0].offset > 0

    await_(cleaned, 90, lambda: str(read_back(route.bootstrap, route.source)))
    worker = route.run_to_end(TRANSACTION__RECORDS_MAX=records_max)
    assert [record.value for record in route.outputs()] == [b"between", b"e", b"other"]
    assert '"claims_taken_over"' in worker.text()


def test_records_that_were_deleted_stop_the_service_and_no_copy_is_dropped_for_them(route):
    route.create()
    route.write(event("e"))
    claimed_then_killed(route, "e")
    route.write(event("e"))
    delete_below(route, 1)
    worker = route.worker()
    worker.ends_with(6)
    assert route.committed()[0] == 0


def test_an_owner_that_is_there_still_makes_a_duplicate(route):
    route.create()
    route.write(event("e"))
    claimed_then_killed(route, "e")
    route.write(event("e", partition=1))
    route.run_to_end()
    (output,) = route.outputs()
    assert dict(output.headers)["hapax-source"] == f"{route.source}/0/0".encode()


def test_an_event_that_comes_again_in_the_topic_that_is_left_has_its_effect(route, sandbox):
    route.create()
    other = f"{route.app}-in-2"
    sandbox.create_topic(other, 1)
    produce(route.bootstrap, other, event("e"))
    claimed_then_killed(route, "e", INPUT__TOPICS=f"{route.source},{other}")
    route.write(event("e"))
    route.run_to_end()
    assert [record.value for record in route.outputs()] == [b"e"]


def test_a_task_on_spark_takes_the_claim_over_as_a_worker_does(route, sandbox):
    route.create()
    other = f"{route.app}-in-2"
    sandbox.create_topic(other, 1)
    produce(route.bootstrap, other, event("e"))
    claimed_then_killed(route, "e", INPUT__TOPICS=f"{route.source},{other}")
    route.write(event("e", partition=1))
    driver = route.start(SparkProcess, "s-0", STOP_AFTER__AT_END="true")
    driver.ends_with(0)
    assert [record.value for record in route.outputs()] == [b"e"]
    assert '"claims_taken_over"' in driver.text()

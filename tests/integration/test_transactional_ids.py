"""Whose transactions are whose: pipelines whose names join alike, and ids of earlier versions."""

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Offset

from hapax.core.committed_metadata import CommittedMetadata
from hapax.kafka.admin.adoption import cluster_id
from hapax.settings import load_settings
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import transaction

ROUNDS = 5


@pytest.fixture
def routes(sandbox, tmp_path):
    made = [PipelineUnderTest(sandbox, tmp_path) for _ in range(2)]
    for route in made:
        route.create()
    yield made
    for route in made:
        route.close()


def test_two_pipelines_whose_app_and_instance_join_alike_never_fence_each_other(routes):
    app = routes[0].app
    workers = [
        routes[0].worker("eu-0", APP=app),
        routes[1].worker("0", APP=f"{app}-eu"),
    ]
    for count in range(1, ROUNDS + 1):
        for route in routes:
            route.write(b"%d" % count)
            route.await_outputs(count)
    assert [worker.terminate() for worker in workers] == [0, 0]
    rebuilt = [line for worker in workers for line in worker.lines("producer_rebuilt")]
    assert rebuilt == []


def begin_at_0(route: PipelineUnderTest, metadata: str) -> None:
    """Let the group have been there, at the first record."""
    consumer = Consumer({"bootstrap.servers": route.bootstrap, "group.id": route.app})
    consumer.commit(offsets=[Offset(route.source, 0, 0, metadata=metadata)], asynchronous=False)
    consumer.close()


def test_what_a_killed_process_of_an_earlier_version_left_open_is_ended_at_the_first_start(routes):
    route = routes[0]
    route.write(b"1")
    begin_at_0(route, "")
    with transaction(route.bootstrap, f"{route.app}-w-0") as former:
        former.produce(route.target, b"hidden")
        assert former.flush(60) == 0
        worker = route.worker()
        # Before its own timeout, a minute, nothing else would end it.
        route.await_outputs(1)
        with pytest.raises(KafkaException):
            former.commit_transaction(60)
    assert [record.value for record in route.outputs()] == [b"1"]
    assert worker.terminate() == 0


def test_an_id_of_earlier_versions_is_left_alone_once_this_version_has_taken_over(routes):
    route = routes[0]
    route.write(b"1")
    here = cluster_id(load_settings(route.environment() | {"HAPAX_INSTANCE": "w-0"}))
    begin_at_0(route, CommittedMetadata(cluster_id=here).encode())
    with transaction(route.bootstrap, f"{route.app}-w-0") as other:
        other.produce(route.target, b"of another pipeline")
        assert other.flush(60) == 0
        worker = route.worker()
        route.await_lag_0()
        other.commit_transaction(60)
    route.await_outputs(2)
    assert worker.terminate() == 0

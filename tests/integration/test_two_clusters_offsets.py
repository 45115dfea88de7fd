"""Offsets know their cluster: copied by a mirror, or read behind a name that moved."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.admin.topics import cluster_id
from hapax.sandbox import Sandbox
from hapax.settings import load_settings
from tests.kit.forwarder import Forwarder
from tests.kit.managed_process import WorkerProcess
from tests.kit.mirrors import an_other_cluster
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

first = an_other_cluster()
"""The cluster that is left; the session's own is where everything moves to."""


@pytest.fixture
def route(first, sandbox, tmp_path):
    """A pipeline whose topics are in both clusters, which reads the first."""
    made = PipelineUnderTest(first, tmp_path)
    made.create()
    for topic in (made.source, made.target, made.dead_letters):
        sandbox.create_topic(topic)
    yield made
    made.close()


def id_of(route: PipelineUnderTest, cluster: Sandbox) -> str:
    named = {"HAPAX_INSTANCE": "w", "HAPAX_KAFKA__BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return cluster_id(
        load_settings(
            {
                **{
                    name: value
                    for name, value in route.environment().items()
                    if name.startswith("HAPAX_")
                },
                **named,
            }
        )
    )


def group_of(route: PipelineUnderTest, cluster: Sandbox) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": route.app,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )


def reason(worker: WorkerProcess) -> str:
    return str(worker.lines("service_stopped")[-1]["reason"])


def mirrored(route: PipelineUnderTest, there: Sandbox) -> TopicPartition:
    """Copy the group's offset with what stands beside it, as MirrorMaker 2 does."""
    source, target = group_of(route, route.sandbox), group_of(route, there)
    (found,) = source.committed([TopicPartition(route.source, 0)], 30)
    target.commit(
        offsets=[TopicPartition(found.topic, 0, found.offset, found.metadata)], asynchronous=False
    )
    source.close()
    target.close()
    return found


def test_offsets_that_a_mirror_copied_are_refused_until_they_are_adopted(route, first, sandbox):
    route.write(b"a", b"b")
    route.run_to_end()
    here, there = id_of(route, first), id_of(route, sandbox)
    found = mirrored(route, sandbox)
    assert CommittedMetadata.decode(found.metadata).cluster_id == here
    assert found.leader_epoch == 0
    produce(sandbox.bootstrap_servers, route.source, b"a", b"b", b"c")
    elsewhere = {"KAFKA__BOOTSTRAP_SERVERS": sandbox.bootstrap_servers}
    worker = route.worker("w-1", **elsewhere)
    worker.ends_with(3)
    for word in (here, there, f"{route.source}/0", "HAPAX_APP", "hapax claims adopt"):
        assert word in reason(worker)
    assert read_back(sandbox.bootstrap_servers, route.target) == []
    Desk(route, **elsewhere).ask("claims", "adopt", "--yes")
    route.run_to_end(**elsewhere)
    values = [record.value for record in read_back(sandbox.bootstrap_servers, route.target)]
    assert values == [b"c"]


@pytest.mark.long
def test_an_address_that_leads_to_another_cluster_ends_the_worker_with_6(route, first, sandbox):
    here, there = id_of(route, first), id_of(route, sandbox)
    produce(sandbox.bootstrap_servers, route.source, *(b"other %d" % n for n in range(50)))
    (broker,) = first.kafka.brokers
    worker = route.worker()
    route.write(*(Given(b"%d" % n) for n in range(10)))
    route.await_outputs(10)
    broker.kill()
    try:
        # Where the first cluster's broker answered, one of the other cluster does.
        here_port, there_port = (
            int(each.bootstrap_servers.rpartition(":")[2]) for each in (first, sandbox)
        )
        with Forwarder(there_port, port=here_port):
            await_(lambda: not worker.running, 25, lambda: worker.text()[-3000:])
    finally:
        broker.start()
        broker.await_ready()
    assert worker.process.returncode == 6, worker.text()[-3000:]
    for word in (here, there, "HAPAX_APP", "hapax claims adopt"):
        assert word in reason(worker)
    assert read_back(sandbox.bootstrap_servers, route.target) == []

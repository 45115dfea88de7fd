"""A pipeline that moves to another cluster: its claims, its offsets, and what they know of it."""

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import PreflightError
from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.admin.topics import cluster_id
from hapax.operations.claims import Adopting, recommit_here
from hapax.sandbox import Sandbox, SandboxTopic
from hapax.settings import Settings, load_settings
from tests.kit.forwarder import Forwarder
from tests.kit.managed_process import WorkerProcess, required
from tests.kit.mirrors import an_other_cluster
from tests.kit.night import Desk
from tests.kit.pages import type_section
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

# -- One claim store, and another Kafka cluster with the same topics behind the same settings.


IN_FLIGHT = [f"e-{number}" for number in range(5)]
other = an_other_cluster()


@pytest.fixture
def route(other, route_of, redis_url):
    """A pipeline whose topics are in both clusters."""
    made = route_of(DEDUP__REDIS_URL=redis_url)
    for topic in (made.source, made.target, made.dead_letters):
        other.create_topic(topic)
    return made


def events(*names: str) -> list[Given]:
    return [Given(name.encode(), b"k", (("message-id", name.encode()),)) for name in names]


def id_at(sandbox: Sandbox) -> str:
    client = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    return str(client.list_topics(timeout=30).cluster_id)


def elsewhere(other: Sandbox) -> dict[str, str]:
    return {"KAFKA__BOOTSTRAP_SERVERS": other.bootstrap_servers}


def left_in_flight(route: PipelineUnderTest, desk: Desk) -> None:
    """Process two events here, claim five more, and kill the worker before it commits them."""
    route.write(*events("done-0", "done-1"))
    route.run_to_end()
    route.write(*events(*IN_FLIGHT))
    worker = route.worker("w-0", TRANSFORM="tests.kit.orders:hang")
    await_(
        lambda: desk.type("claims", "show", IN_FLIGHT[-1]).exit_code == 0, 60, lambda: tail(worker)
    )
    worker.kill()


def tail(worker: WorkerProcess) -> str:
    return worker.text()[-3000:]


def refused(worker: WorkerProcess, code: int, *ids: str) -> None:
    worker.ends_with(code)
    (line,) = [line for line in worker.text().splitlines() if '"service_stopped"' in line]
    for word in (*ids, "HAPAX_APP", "hapax claims adopt"):
        assert word in line


def test_what_was_in_flight_on_one_cluster_is_processed_on_the_other_after_adopt(
    route, other, sandbox
):
    left_in_flight(route, Desk(route))
    produce(other.bootstrap_servers, route.source, *events("new", *reversed(IN_FLIGHT)))
    here, there = id_at(sandbox), id_at(other)
    refused(route.worker("w-1", **elsewhere(other)), 3, here, there)
    assert read_back(other.bootstrap_servers, route.target) == []

    abroad = Desk(route, **elsewhere(other))
    assert abroad.type("claims", "adopt").exit_code == 2  # nobody can be asked
    assert abroad.ask("claims", "adopt", "--dry-run")["adopted"] is False
    refused(route.worker("w-1", **elsewhere(other)), 3, here, there)
    assert abroad.ask("claims", "adopt", "--yes") == {
        "adopted": True,
        "cluster": there,
        "before": here,
        "claims": True,
        "offsets": [],
    }
    route.run_to_end(**elsewhere(other))
    found = [record.value for record in read_back(other.bootstrap_servers, route.target)]
    assert found == [b"new", *(name.encode() for name in reversed(IN_FLIGHT))]
    refused(route.worker("w-2"), 3, here, there)


def test_a_worker_leaves_with_6_when_its_claims_go_to_another_cluster(route, other, sandbox):
    worker = route.worker()
    route.write(*events("a"))
    route.await_outputs(1)
    assert Desk(route, **elsewhere(other)).ask("claims", "adopt", "--yes")["adopted"] is True
    route.write(*events("b"))
    refused(worker, 6, id_at(sandbox), id_at(other))
    assert [record.value for record in route.outputs()] == [b"a"]


def taken_over(
    route: PipelineUnderTest, other: Sandbox, *, by_the_page: bool, redis: Sandbox
) -> list[bytes | None]:
    """Lose a cluster whose mirror lacks two events; return the values of the mirror at the end.

    Two events that are new there get the offsets that the two had; then senders repeat these.
    """
    route.write(*events("copied", "gap-1", "gap-2"))
    route.run_to_end()
    produce(other.bootstrap_servers, route.source, *events("copied"))
    desk = Desk(route, **elsewhere(other))
    if by_the_page:
        redis.redis.flush()  # its claims alone: test_pages.py has the pattern
        type_section(desk, route, "disaster-recovery.md", "A mirror takes over")
    else:
        desk.ask("claims", "adopt", "--yes")
    produce(other.bootstrap_servers, route.source, *events("new-1", "new-2"))
    route.run_to_end(**elsewhere(other))
    produce(other.bootstrap_servers, route.source, *events("gap-1", "gap-2", "new-2"))
    route.run_to_end(**elsewhere(other))
    return [record.value for record in read_back(other.bootstrap_servers, route.target)]


def test_a_mirror_takes_over_by_the_commands_of_the_page(route, other, sandbox):
    assert taken_over(route, other, by_the_page=True, redis=sandbox) == [
        *(b"copied", b"new-1", b"new-2"),
        *(b"gap-1", b"gap-2"),
    ]


def test_claims_of_records_that_a_mirror_lacks_drop_their_repeats_once_its_offsets_pass_them(
    route, other, sandbox
):
    found = taken_over(route, other, by_the_page=False, redis=sandbox)
    assert found == [b"copied", b"new-1", b"new-2"]


# -- Offsets know their cluster: copied by a mirror, or read behind a name that moved ------


@pytest.fixture
def moving(other, sandbox, route_of):
    """A pipeline whose topics are in both clusters; it leaves the other one."""
    made = route_of(servers=other)
    for topic in (made.source, made.target, made.dead_letters):
        sandbox.create_topic(topic)
    return made


def reason(worker: WorkerProcess) -> str:
    return str(worker.lines("service_stopped")[-1]["reason"])


def mirrored(route: PipelineUnderTest, there: Sandbox) -> TopicPartition:
    """Copy the group's offset with what stands beside it, as MirrorMaker 2 does."""
    named = {"group.id": route.app, "log_level": 0}
    source, target = (
        Consumer({"bootstrap.servers": each.bootstrap_servers, **named})
        for each in (route.sandbox, there)
    )
    (found,) = source.committed([TopicPartition(route.source, 0)], 30)
    copied = TopicPartition(found.topic, 0, found.offset, found.metadata)
    target.commit(offsets=[copied], asynchronous=False)
    for group in (source, target):
        group.close()
    return found


def test_offsets_that_a_mirror_copied_are_refused_until_they_are_adopted(moving, other, sandbox):
    moving.write(b"a", b"b")
    moving.run_to_end()
    here, there = id_at(other), id_at(sandbox)
    found = mirrored(moving, sandbox)
    assert CommittedMetadata.decode(found.metadata).cluster_id == here
    assert found.leader_epoch == 0
    produce(sandbox.bootstrap_servers, moving.source, b"a", b"b", b"c")
    worker = moving.worker("w-1", **elsewhere(sandbox))
    worker.ends_with(3)
    for word in (here, there, f"{moving.source}/0", "HAPAX_APP", "hapax claims adopt"):
        assert word in reason(worker)
    assert read_back(sandbox.bootstrap_servers, moving.target) == []
    Desk(moving, **elsewhere(sandbox)).ask("claims", "adopt", "--yes")
    moving.run_to_end(**elsewhere(sandbox))
    values = [record.value for record in read_back(sandbox.bootstrap_servers, moving.target)]
    assert values == [b"c"]


@pytest.mark.long
def test_an_address_that_leads_to_another_cluster_ends_the_worker_with_6(moving, other, sandbox):
    here, there = id_at(other), id_at(sandbox)
    produce(sandbox.bootstrap_servers, moving.source, *(b"other %d" % n for n in range(50)))
    (broker,) = other.kafka.brokers
    worker = moving.worker()
    moving.write(*(Given(b"%d" % n) for n in range(10)))
    moving.await_outputs(10)
    broker.kill()
    try:
        # Where the cluster's broker answered, one of the session's does.
        here_port, there_port = (
            int(each.bootstrap_servers.rpartition(":")[2]) for each in (other, sandbox)
        )
        with Forwarder(there_port, port=here_port):
            await_(lambda: not worker.running, 25, lambda: worker.text()[-3000:])
    finally:
        broker.start()
        broker.await_ready()
    assert worker.process.returncode == 6, worker.text()[-3000:]
    for word in (here, there, "HAPAX_APP", "hapax claims adopt"):
        assert word in reason(worker)
    assert read_back(sandbox.bootstrap_servers, moving.target) == []


# -- Offsets that were copied from another cluster are committed again as those of this one


OF_THE_OTHER = CommittedMetadata("of-the-other-topic-001", "of-the-other-cluster-1", began=2)


@pytest.fixture
def settings(sandbox, unique):
    app = unique("recommit")
    sandbox.create_topics(SandboxTopic(f"{app}-in", 2), SandboxTopic(f"{app}-out"))
    return load_settings(
        required(
            app=app,
            servers=sandbox.bootstrap_servers,
            source=f"{app}-in",
            target=f"{app}-out",
            INSTANCE="one",
        )
    )


def outside(settings: Settings, topic: str) -> Consumer:
    """Return a client of the group, which has committed an offset of the other cluster."""
    servers, group = settings.kafka.bootstrap_servers, settings.app
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    place = TopicPartition(topic, 1, 7, OF_THE_OTHER.encode())
    consumer.commit(offsets=[place], asynchronous=False)
    return consumer


def test_offsets_keep_their_place_and_get_the_ids_of_this_cluster_and_topic(settings):
    (topic,) = settings.input.topics
    consumer = outside(settings, topic)
    assert recommit_here(settings, cluster_id(settings)) == {(topic, 1): 7}
    found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], 30)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers, "log_level": 0})
    topic_id = str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)
    assert [one.offset for one in found] == [-1001, 7]
    assert CommittedMetadata.decode(found[1].metadata) == CommittedMetadata(
        topic_id.replace("+", "-").replace("/", "_"),
        admin.list_topics(timeout=30).cluster_id,
        began=2,
    )


def test_a_group_without_offsets_is_left_alone(settings):
    assert recommit_here(settings, cluster_id(settings)) == {}


def test_offsets_of_a_group_that_has_members_are_not_touched(settings):
    (topic,) = settings.input.topics
    consumer = outside(settings, topic)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    with pytest.raises(PreflightError, match=f"a member has joined group {settings.app}"):
        recommit_here(settings, cluster_id(settings))
    with pytest.raises(PreflightError, match=f"group {settings.app} has members: .* Stop them"):
        Adopting(settings).adopt()
    consumer.close()


def test_the_id_of_a_cluster_that_does_not_answer_cannot_be_had(settings, monkeypatch):
    monkeypatch.setattr("hapax.kafka.admin.topics.ANSWER_TIMEOUT_S", 0.2)
    away = load_settings(required(app=settings.app, servers="127.0.0.1:9", INSTANCE="one"))
    with pytest.raises(PreflightError, match=r"127\.0\.0\.1:9: connection refused"):
        cluster_id(away)

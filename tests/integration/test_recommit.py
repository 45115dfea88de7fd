"""Offsets that were copied from another cluster are committed again as those of this one."""

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import PreflightError
from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.admin.topics import cluster_id
from hapax.operations.claims import Adopting, recommit_here
from hapax.sandbox import SandboxTopic
from hapax.settings import Settings, load_settings
from tests.kit.managed_process import required

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


def outside(settings: Settings) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": settings.app,
            "log_level": 0,
        }
    )


def test_offsets_keep_their_place_and_get_the_ids_of_this_cluster_and_topic(settings):
    (topic,) = settings.input.topics
    consumer = outside(settings)
    consumer.commit(
        offsets=[TopicPartition(topic, 1, 7, OF_THE_OTHER.encode())], asynchronous=False
    )
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
    consumer = outside(settings)
    consumer.commit(
        offsets=[TopicPartition(topic, 1, 7, OF_THE_OTHER.encode())], asynchronous=False
    )
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

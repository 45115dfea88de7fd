"""Which cluster the brokers are: Kafka's cluster id, and a group's offsets moved to it by hand.

Topics of another cluster may have the names of ours (mirrored topics, a DNS name that leads
elsewhere, staging beside production), and offsets that mean other records. Brokers tell the id of
their cluster with each answer about metadata (KIP-78); it stands beside every committed offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import PreflightError
from hapax.kafka.errors import describe
from hapax.kafka.group_state import admin_properties
from hapax.kafka.properties import build
from hapax.kafka.read.offset_client import OffsetClient, reader_properties
from hapax.kafka.topic_ids import KAFKAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.core.records import Progress
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 30.0


def cluster_id(settings: Settings) -> str:
    """Return the id of the cluster that answers now; raise PreflightError when none does."""
    client = OffsetClient(settings)
    try:
        return _known(client.cluster_id())
    finally:
        client.close()


def recommit_here(settings: Settings) -> Progress:
    """Commit the group's offsets again, with the ids of the present cluster and topics beside them.

    The offsets themselves stay. Return those that were committed again: all that the group has in
    its input topics. Raises PreflightError, and changes nothing, while the group has members, and
    when the brokers do not answer.
    """
    consumer = build(Consumer, reader_properties(settings), None)
    try:
        metadata = consumer.list_topics(timeout=ANSWER_TIMEOUT_S)
        cluster, topic_ids = _known(metadata.cluster_id), _topic_ids(settings)
        found = consumer.committed(
            [
                TopicPartition(topic, number)
                for topic in topic_ids
                for number in metadata.topics[topic].partitions
            ],
            ANSWER_TIMEOUT_S,
        )
        renewed = list(_renewed(found, cluster, topic_ids))
        if renewed:
            refused = consumer.commit(offsets=renewed, asynchronous=False) or []
            for one in refused:
                if one.error is not None:
                    raise KafkaException(one.error)  # noqa: TRY301 - one way out for all
    except KafkaException as error:
        if error.args[0].code() in {
            KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.STALE_MEMBER_EPOCH,
        }:
            problem = (
                f"group {settings.app} has members: stop every process of HAPAX_APP={settings.app},"
                " wait until HAPAX_GROUP__SESSION_TIMEOUT has passed, and try again"
            )
            raise PreflightError([problem]) from error
        raise _unanswered(f"the offsets of group {settings.app}", error) from error
    finally:
        consumer.close()
    return {(one.topic, one.partition): one.offset for one in renewed}


def _known(found: str | None) -> str:
    if not found:
        raise PreflightError(
            ["the brokers do not return the id of their cluster: they are too old"]
        )
    return found


def _unanswered(what: str, error: KafkaException) -> PreflightError:
    return PreflightError(
        [f"HAPAX_KAFKA__BOOTSTRAP_SERVERS: {what} cannot be read: {describe(error.args[0])}"]
    )


def _topic_ids(settings: Settings) -> dict[str, str]:
    """Return Kafka's ids of the input topics; raises KafkaException for one that is not there."""
    admin = AdminClient({**admin_properties(reader_properties(settings)), "log_level": 0})
    asked = admin.describe_topics(
        TopicCollection(list(settings.input.topics)), request_timeout=ANSWER_TIMEOUT_S
    )
    return {
        topic: str(answer.result(ANSWER_TIMEOUT_S).topic_id).translate(KAFKAS)
        for topic, answer in asked.items()
    }


def _renewed(
    found: Iterable[Any], cluster: str, topic_ids: dict[str, str]
) -> Iterator[TopicPartition]:
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
        if one.offset < 0:
            continue
        beside = msgspec.structs.replace(
            CommittedMetadata.decode(one.metadata),
            topic_id=topic_ids[one.topic],
            cluster_id=cluster,
        )
        # Without the leader's epoch: it counts the elections of the cluster that it came from.
        yield TopicPartition(one.topic, one.partition, one.offset, beside.encode())

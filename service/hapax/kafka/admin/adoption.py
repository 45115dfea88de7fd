"""Kafka's ids of the cluster and topics that answer, and a group's offsets moved to them by hand.

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
from hapax.kafka.client_log import kafkas_id
from hapax.kafka.errors import UNKNOWN_TOPIC, describe
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hapax.core.records import Progress
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 30.0


def cluster_id(settings: Settings) -> str:
    """Return the id of the cluster that answers now; raise PreflightError when none does."""
    client = BlockingOffsets(settings)
    try:
        return _known(client.cluster_id())
    finally:
        client.close()


def topic_ids(settings: Settings) -> dict[str, str | None]:
    """Return Kafka's ids of those topics that are there; None: the brokers have no ids.

    Raises PreflightError when they are not returned.
    """
    admin = AdminClient({**admin_properties(reader_properties(settings)), "log_level": 0})
    asked = TopicCollection(list(settings.read_topics))
    answers = admin.describe_topics(asked, request_timeout=ANSWER_TIMEOUT_S)
    found: dict[str, str | None] = {}
    for topic, answer in answers.items():
        try:
            found[topic] = kafkas_id(str(answer.result(ANSWER_TIMEOUT_S).topic_id))
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_TOPIC:
                raise _unanswered(f"the id of topic {topic}", error) from error
        except TimeoutError as error:
            raise PreflightError([f"the id of topic {topic} was not returned in time"]) from error
    return found


def recommit_here(settings: Settings) -> Progress:
    """Commit the group's offsets again, with the ids of the present cluster and topics beside them.

    The offsets themselves stay. Return those that were committed again: all that the group has in
    the topics it reads. Raises PreflightError, and changes nothing, while the group has members,
    and when the brokers do not answer.
    """
    consumer = build(Consumer, reader_properties(settings), None)
    try:
        metadata = consumer.list_topics(timeout=ANSWER_TIMEOUT_S)
        cluster, ids = _known(metadata.cluster_id), topic_ids(settings)
        if absent := [topic for topic in settings.read_topics if topic not in ids]:
            raise PreflightError([f"topic {topic} does not exist: create it" for topic in absent])
        found = consumer.committed(
            [
                TopicPartition(topic, number)
                for topic in ids
                for number in metadata.topics[topic].partitions
            ],
            ANSWER_TIMEOUT_S,
        )
        renewed = list(_renewed(found, cluster, ids))
        if renewed:
            refused = consumer.commit(offsets=renewed, asynchronous=False) or []
            for one in refused:
                if one.error is not None:
                    raise KafkaException(one.error)  # noqa: TRY301 - one way out for all
    except KafkaException as error:
        raise _not_committed(settings.app, error) from error
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


def _not_committed(app: str, error: KafkaException) -> PreflightError:
    if error.args[0].code() not in {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.STALE_MEMBER_EPOCH,
    }:
        return _unanswered(f"the offsets of group {app}", error)
    problem = (
        f"group {app} has members: stop every process of HAPAX_APP={app}, wait until"
        " HAPAX_GROUP__SESSION_TIMEOUT has passed, and try again"
    )
    return PreflightError([problem])


def _renewed(
    found: Iterable[Any], cluster: str, ids: Mapping[str, str | None]
) -> Iterator[TopicPartition]:
    for one in found:
        if one.error is not None:
            raise KafkaException(one.error)
        if one.offset < 0:
            continue
        beside = msgspec.structs.replace(
            CommittedMetadata.of(one),
            topic_id=ids[one.topic],
            cluster_id=cluster,
        )
        # Without the leader's epoch: it counts the elections of the cluster that it came from.
        yield TopicPartition(one.topic, one.partition, one.offset, beside.encode())

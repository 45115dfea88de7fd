"""Kafka's ids of the cluster and topics that answer.

Topics of another cluster may have the same names (mirrored topics, a DNS name that leads elsewhere,
staging next to production), and offsets that mean other records. Brokers return the id of their
cluster with each answer about metadata (KIP-78); it is kept in the metadata of every committed
offset.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from hapax.core.errors import PreflightError
from hapax.kafka.client_log import kafkas_id
from hapax.kafka.errors import UNKNOWN_TOPIC, describe
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import BlockingOffsets, reader_properties

if TYPE_CHECKING:
    from hapax.settings import Settings

ANSWER_TIMEOUT_S = 30.0


def cluster_id(settings: Settings) -> str:
    """Return the id of the cluster that answers now; raise PreflightError when none does."""
    with closing(BlockingOffsets(settings)) as client:
        found = client.cluster_id()
    if not found:
        raise PreflightError(
            ["the brokers do not return the id of their cluster: they are too old"]
        )
    return found


def topic_ids(settings: Settings) -> dict[str, str | None]:
    """Return ids of existing topics; None: brokers have none. PreflightError: no answer."""
    admin = AdminClient({**admin_properties(reader_properties(settings)), "log_level": 0})
    asked = TopicCollection(list(settings.read_topics))
    answers = admin.describe_topics(asked, request_timeout=ANSWER_TIMEOUT_S)
    found: dict[str, str | None] = {}
    for topic, answer in answers.items():
        try:
            found[topic] = kafkas_id(str(answer.result(ANSWER_TIMEOUT_S).topic_id))
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_TOPIC:
                problem = (
                    f"HAPAX_KAFKA__BOOTSTRAP_SERVERS: the id of topic {topic} cannot be read:"
                    f" {describe(error.args[0])}"
                )
                raise PreflightError([problem]) from error
        except TimeoutError as error:
            raise PreflightError([f"the id of topic {topic} was not returned in time"]) from error
    return found

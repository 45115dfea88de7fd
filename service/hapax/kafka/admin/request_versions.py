"""Which requests the brokers serve, as a client's own lines say (kafka/admin/answers.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from hapax.kafka.admin.answers import ApiVersionsLog
from hapax.kafka.properties import admin_properties, build
from hapax.kafka.read.offsets_client import reader_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.settings import Settings

_TIMEOUT_S = 2.0


def request_versions(settings: Settings) -> dict[str, int]:
    """Return the highest version of each request that every broker serves; {}: not known."""
    log = ApiVersionsLog()
    client = telling_client(reader_properties(settings), log)
    try:
        client.list_topics(timeout=_TIMEOUT_S)
    except KafkaException:
        return {}
    client.poll(0)
    return log.apis


def telling_client(properties: Mapping[str, Any], log: ApiVersionsLog) -> AdminClient:
    """Return a client that tells ``log`` what the brokers serve, and why it cannot connect."""
    telling = {
        **admin_properties(properties),
        "error_cb": log.error,
        "debug": "feature",
        "log_level": 7,  # the level of the lines about versions
    }
    return build(AdminClient, telling, log.logger)

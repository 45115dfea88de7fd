"""Whether the Kafka client takes the properties that the settings give it, without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer

from hapax.kafka.msk_token import require_signer
from hapax.kafka.properties import build, consumer_properties, producer_properties

if TYPE_CHECKING:
    from hapax.settings import Settings

_LEFT_OUT = ("bootstrap.servers", "sasl.oauthbearer.", "oauth_cb", "debug")
"""What makes a client connect as soon as it is built, to brokers and token services, or talk."""


def check_client_properties(settings: Settings) -> None:
    """Build both clients; raise ConfigurationError for what one of them does not take or find."""
    if settings.kafka.security.oauth_msk_region is not None:
        require_signer()
    for client, properties in (
        (Consumer, consumer_properties(settings)),
        (Producer, producer_properties(settings)),
    ):
        kept = {name: value for name, value in properties.items() if not name.startswith(_LEFT_OUT)}
        built = build(client, {**kept, "log_level": 0}, None)
        if isinstance(built, Consumer):
            built.close()

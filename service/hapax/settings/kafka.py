"""Settings of the connection to Kafka, of the consumer group and of the transaction."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from hapax.settings.base import SettingsGroup
from hapax.settings.properties import KAFKA_PROPERTIES
from hapax.settings.value_types import (
    HTTP_URL,
    PATH,
    SECRET,
    SERVERS,
    TEXT,
    choice,
    duration,
    size,
    whole,
)

Protocol = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Membership = Literal["static", "dynamic"]
GroupProtocol = Literal["classic", "consumer"]


class SecuritySettings(SettingsGroup):
    """How to talk to the brokers, and as whom."""

    protocol: Annotated[Protocol, choice(Protocol)] = "plaintext"
    """Encryption and authentication of connections."""
    sasl_mechanism: Annotated[Mechanism | None, choice(Mechanism)] = None
    """How to log in; needed by the sasl protocols."""
    username: Annotated[str | None, TEXT] = None
    """User of PLAIN and SCRAM."""
    password: Annotated[SecretStr | None, SECRET] = None
    """Password of PLAIN and SCRAM."""
    ca_file: Annotated[str | None, PATH] = None
    """PEM file of the authorities for the brokers' certificates. Unset: those of the system."""
    certificate_file: Annotated[str | None, PATH] = None
    """PEM file of the client certificate."""
    key_file: Annotated[str | None, PATH] = None
    """PEM file of its private key."""
    key_password: Annotated[SecretStr | None, SECRET] = None
    """Password of that key."""
    oauth_token_url: Annotated[str | None, HTTP_URL] = Field(default=None, repr=False)
    """Where OAUTHBEARER fetches its tokens."""
    oauth_client_id: Annotated[str | None, TEXT] = None
    """Client of OAUTHBEARER."""
    oauth_client_secret: Annotated[SecretStr | None, SECRET] = None
    """Secret of that client."""
    oauth_token_file: Annotated[str | None, PATH] = None
    """File with the token (as Kubernetes projects it), read again before it expires; in place of
    URL, client and secret."""
    oauth_msk_region: Annotated[str | None, TEXT] = None
    """Region of an Amazon MSK cluster: tokens are signed with the AWS identity of this process.
    Needs `pip install 'hapax-kafka[msk-iam]'`."""
    oauth_ca_file: Annotated[str | None, PATH] = None
    """PEM file of the authorities for the token service's certificate. Unset: those of the system.
    """
    oauth_scope: Annotated[str | None, TEXT] = None
    """Scope to request."""


class KafkaSettings(SettingsGroup):
    """The brokers."""

    bootstrap_servers: Annotated[str, SERVERS] = Field(examples=["kafka-0:9092,kafka-1:9092"])
    """Brokers to contact first. Where it is absent, not empty: KAFKA_BOOTSTRAP_SERVERS."""
    properties: Annotated[dict[str, str], KAFKA_PROPERTIES] = Field({}, repr=False)
    """Further librdkafka properties. Those that would break the guarantee, or that have a setting
    of their own, are refused."""
    security: SecuritySettings


class TargetKafkaSettings(SettingsGroup):
    """The brokers that outputs go to, where they are not those of the input."""

    bootstrap_servers: Annotated[str | None, SERVERS] = None
    """Brokers of another cluster for outputs, dead letters and progress. Unset: those of
    HAPAX_KAFKA__BOOTSTRAP_SERVERS."""
    properties: Annotated[dict[str, str], KAFKA_PROPERTIES] = Field({}, repr=False)
    """As HAPAX_KAFKA__PROPERTIES, for clients of that cluster."""
    security: SecuritySettings


class TransactionSettings(SettingsGroup):
    """When a transaction is cut."""

    interval_ms: Annotated[int, duration("1ms", "10m")] = Field(
        default=100, json_schema_extra={"default": "`100ms`, on Spark `500ms`"}
    )
    """Aimed length of one batch under backlog: longer ones cost the brokers less per record,
    shorter ones are visible sooner. Without a backlog a batch is cut at once."""
    records_max: Annotated[int, whole(1, 1_000_000)] = 50_000
    """Most records of one batch: bounds memory, and what an abort repeats. With claims a process
    holds two batches under a backlog."""
    bytes_max: Annotated[int, size("1KiB", "1GiB")] = 16 << 20
    """Most bytes of keys and values of one batch; a larger single record still goes through. It
    ends with the record with which its outputs exceed four times as much."""
    timeout_ms: Annotated[int, duration("1s", "15m")] = 10_000
    """After this long the brokers abort the transaction of a process that is gone; readers of the
    output wait for it."""


class GroupSettings(SettingsGroup):
    """How the partitions are shared with the other processes of the pipeline."""

    membership: Annotated[Membership, choice(Membership)] = "static"
    """static: a killed process that restarts under its name continues within about a second,
    without a rebalance; otherwise its partitions wait for one session timeout. dynamic: for names
    that change with every start."""
    protocol: Annotated[GroupProtocol, choice(GroupProtocol)] = "classic"
    """consumer (KIP-848) needs brokers from 4.0 and dynamic membership."""
    session_timeout_ms: Annotated[int, duration("1s", "30m")] = 15_000
    """A process without a heartbeat for this long loses its partitions. Brokers allow 6s to 30m
    unless configured otherwise."""
    max_poll_interval_ms: Annotated[int, duration("1s", "24h")] = 300_000
    """A process that does not poll for this long loses its partitions: the longest a batch may
    take."""

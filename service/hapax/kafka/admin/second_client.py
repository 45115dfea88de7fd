"""Requests that confluent-kafka lacks, made by kafka-python (the extra ``transactions``).

DescribeProducers  which producers have a transaction open in a partition (KIP-664)
WriteTxnMarkers    ends a transaction by hand, as Kafka's ``kafka-transactions.sh abort`` does
DescribeConfigs    the value in a broker's file that another source overrides: confluent-kafka keeps
                   one of the values that a setting has under one name

It connects by the properties of the other client. What it cannot do is refused with a sentence.
"""

from __future__ import annotations

import logging
import ssl
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from hapax.cluster.transaction_states import Holder
from hapax.core.errors import HapaxError
from hapax.kafka.connection import access
from hapax.kafka.read.offsets_client import reader_properties
from hapax.kafka.tokens import token_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

TIMEOUT_MS = 10_000
NOT_INSTALLED = "kafka-python is not installed; run: pip install 'hapax-kafka[transactions]'"
_VERIFIES, _IDENTIFIES = (
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
)
_SSL = {
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    _IDENTIFIES,
}
_PASSWORDS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}


class RequestError(HapaxError):
    """The broker did not answer, or refused; the text says which."""


def producers(settings: Settings, partitions: list[Where]) -> list[tuple[Holder, int]]:
    """Return them, each with the epoch of the coordinator that ended its last one; -1: none."""
    with _client(settings, "the producers in these partitions cannot be listed") as client:
        from kafka import TopicPartition

        told = client.describe_producers([TopicPartition(*where) for where in partitions])
    return [
        (
            Holder(
                topic=where.topic,
                partition=where.partition,
                producer_id=one.producer_id,
                epoch=one.producer_epoch,
                start=one.current_transaction_start_offset,
                last_ms=one.last_timestamp,
            ),
            one.coordinator_epoch,
        )
        for where, state in told.items()
        for one in state.active_producers
        if one.current_transaction_start_offset >= 0
    ]


def write_marker(settings: Settings, holder: Holder, epoch: int, *, commit: bool) -> None:
    """Raise RequestError when the leader refuses, also for lack of ALTER on the cluster."""
    place = f"{holder.topic}/{holder.partition}"
    with _client(settings, f"{place}: the transaction cannot be ended") as client:
        from kafka import TopicPartition
        from kafka.admin import AbortTransactionSpec

        spec = AbortTransactionSpec(
            TopicPartition(holder.topic, holder.partition),
            holder.producer_id,
            holder.epoch,
            max(0, epoch),
        )
        if commit:
            _commit(client, spec)
        else:
            client.abort_transaction(spec)


def _commit(client: Any, spec: Any) -> None:
    """Send what has no method, by a part that is not public: pyproject.toml bounds its version."""
    manager = client._manager
    where = spec.topic_partition
    request = client._abort_transaction_request(spec)
    request.markers[0].transaction_result = True
    leaders = manager.run(client._async_get_leader_for_partitions, [where])
    answer = manager.run(manager.send, request, next(iter(leaders)))
    client._abort_transaction_process_response(answer, spec)


def value_in_file(settings: Settings, broker: int, name: str) -> str | None:
    """Return what a broker's own file says of a setting; None: nothing."""
    problem = f"broker {broker}: {name} cannot be read"
    with _client(settings, problem) as client:
        from kafka.admin import ConfigResource, ConfigResourceType

        asked = ConfigResource(ConfigResourceType.BROKER, str(broker), {name: None})
        told = client.describe_configs([asked], include_synonyms=True, config_filter="all")
    entry = told.get("broker", {}).get(str(broker), {}).get(name)
    if entry is None:
        raise RequestError(problem)
    values = (each for each in entry["synonyms"] if each["source"] == "STATIC_BROKER_CONFIG")
    return next((each["value"] for each in values), None)


@contextmanager
def _client(settings: Settings, problem: str) -> Iterator[Any]:
    """Open a client for the block; its errors are raised as RequestError, ``problem`` first."""
    try:
        from kafka import KafkaAdminClient, errors
    except ImportError:
        raise RequestError(f"{problem}: {NOT_INSTALLED}") from None
    # Its lines would appear in the output of commands, and those of level DEBUG hold the password.
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    properties = reader_properties(settings)
    if why := unsupported(properties) or token_problem(properties):
        raise RequestError(f"{problem}: {why}")
    try:
        with closing(KafkaAdminClient(**_configuration(properties))) as client:
            yield client
    except errors.KafkaTimeoutError as error:  # a refused login, too: it repeats it for as long
        why = access(settings).text or _why(error)
        raise RequestError(f"{problem}: {why}") from error
    except (errors.KafkaError, OSError) as error:
        raise RequestError(f"{problem}: {_why(error)}") from error


def _why(error: Exception) -> str:
    code = getattr(error, "errno", None)
    if isinstance(error, OSError) or not isinstance(code, int):
        return str(error) or type(error).__name__
    return KafkaError(code).str()


def unsupported(properties: Mapping[str, Any]) -> str:
    """Return which property kafka-python cannot follow; empty when there is none."""
    protocol = str(properties.get("security.protocol", "plaintext")).lower()
    mechanism = str(properties.get("sasl.mechanism", "")).upper()
    own_tool = "use Kafka's own tool, kafka-transactions.sh"
    if protocol.startswith("sasl"):
        if mechanism == "OAUTHBEARER" and "oauth_cb" not in properties:
            return f"kafka-python does not fetch tokens from a token service: {own_tool}"
        if mechanism not in {*_PASSWORDS, "OAUTHBEARER"}:
            return (
                f"no login by {mechanism or 'the default mechanism'} with kafka-python: {own_tool}"
            )
    secured = [name for name in properties if name.startswith("ssl.") and name not in _SSL]
    if protocol.endswith("ssl") and secured:
        return f"kafka-python has nothing like {secured[0]}: {own_tool}"
    return ""


def _configuration(properties: Mapping[str, Any]) -> dict[str, Any]:
    protocol = str(properties.get("security.protocol", "plaintext")).upper()
    found: dict[str, Any] = {
        "bootstrap_servers": properties["bootstrap.servers"].split(","),
        "client_id": properties["client.id"],
        "security_protocol": protocol,
        "request_timeout_ms": TIMEOUT_MS,
        "bootstrap_timeout_ms": TIMEOUT_MS,
    }
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(properties)
    if not protocol.startswith("SASL"):
        return found
    found["sasl_mechanism"] = str(properties["sasl.mechanism"]).upper()
    if found["sasl_mechanism"] in _PASSWORDS:
        user, password = properties["sasl.username"], properties["sasl.password"]
        return found | {"sasl_plain_username": str(user), "sasl_plain_password": str(password)}
    return found | {"sasl_oauth_token_provider": _token_provider(properties["oauth_cb"])}


def _token_provider(ask: Any) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc] # the library has no types
        def token(self) -> str:
            return str(ask("")[0])

    return Tokens()


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """Return what the other client asks of the broker's certificate, and shows of its own."""
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    if properties.get(_IDENTIFIES) == "none":
        context.check_hostname = False
    if str(properties.get(_VERIFIES, "true")).lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := properties.get("ssl.certificate.location"):
        key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
        context.load_cert_chain(certificate, key, None if password is None else str(password))
    return context

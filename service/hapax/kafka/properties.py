"""Settings to client properties: each that differs from the client's default has its reason."""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from ctypes import c_char_p, c_int, c_void_p
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, cimpl, libversion

from hapax.core.errors import ConfigurationError, PreflightError
from hapax.kafka.tokens import property_of, require_signer, token_problem, token_source
from hapax.settings.redaction import secret_values
from hapax.settings.secrets import Strike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hapax.settings import SecuritySettings, Settings

SOCKET_TIMEOUT_MS = 4000
MESSAGE_BYTES_MAX = 1_000_000_000
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat, Amazon
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # BSD, macOS
)
"""Where systems keep the authorities that they trust."""
_PARTITIONERS = {
    # murmur2_random is what the Java producer does: hash of the key, records without key anywhere.
    "murmur2": "murmur2_random",
    "consistent_random": "consistent_random",
    "random": "random",
    "round_robin": "random",  # the adapter names every partition itself
}
_ADMIN = (
    "bootstrap.servers",
    "client.id",
    "security.",
    "sasl.",
    "ssl.",
    "https.",
    "socket.",
    "reconnect.",
    "oauth_cb",
)
APART = ":"
"""Between app and instance. It is in neither name, so no two pairs make the same id: joined by
a dash ``orders`` and ``eu-0``, and ``orders-eu`` and ``0`` were one id, and fenced each other.
"""
_CONNECTING = ("bootstrap.servers", "sasl.oauthbearer.", "oauth_cb", "debug")
"""What makes a client connect as soon as it is built, to brokers and token services, or talk."""


def nearest_property(said: str) -> str:
    """Return which property may be meant when the client says that it does not know one."""
    unknown = re.search(r'^No such configuration property: "(.+)"$', said)
    close = get_close_matches(unknown[1], property_names(), n=1, cutoff=0.75) if unknown else []
    return f": did you mean {close[0]}?" if close else ""


def property_names() -> list[str]:
    """Return the names that librdkafka lists, of this version; none where it cannot be called."""
    with suppress(OSError, AttributeError), TemporaryFile() as file:
        # Its functions are found through the extension that is linked with it.
        client, system = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
        show = client.rd_kafka_conf_properties_show
        system.fdopen.argtypes, system.fdopen.restype = (c_int, c_char_p), c_void_p
        system.fclose.argtypes = show.argtypes = (c_void_p,)
        stream = system.fdopen(os.dup(file.fileno()), b"w")
        if stream is None:
            return []
        show(stream)
        system.fclose(stream)
        file.seek(0)
        return re.findall(r"(?m)^([a-z][\w.]+) +\|", file.read().decode())
    return []


Client = TypeVar("Client")


def build(client: Callable[..., Client], properties: Mapping[str, Any], logger: object) -> Client:
    """Raise ConfigurationError for refused properties, PreflightError without a token."""
    if problem := token_problem(properties):
        raise PreflightError(problem)
    try:
        return client(dict(properties), logger=logger)
    except KafkaException as error:
        named = "".join(f"; {each}" for each in _unreadable(properties))
        # The client repeats a value that it does not take.
        strike = Strike(secret_values({name: str(value) for name, value in properties.items()}))
        said = strike(error.args[0].str())
        said += nearest_property(error.args[0].str())
        problem = f"HAPAX_KAFKA__PROPERTIES or a related setting: {said}{named}"
        raise ConfigurationError(problem) from None


def _unreadable(properties: Mapping[str, Any]) -> Iterator[str]:
    for path in (text for name, text in properties.items() if name.endswith(".location")):
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            yield f"{path}: {error.strerror}"


def admin_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a client's properties that any client takes: where the brokers are."""
    return {name: value for name, value in properties.items() if name.startswith(_ADMIN)}


def library_version() -> str:
    return str(libversion()[0])


def transactional_id(settings: Settings) -> str:
    """Return app and instance: the same after a restart, so a successor fences its predecessor."""
    return f"{settings.app}{APART}{settings.instance}"


def client_name(settings: Settings) -> str:
    """Return the name of the service's clients, and of the static member.

    Quotas and metrics of brokers go by the first, and the second counts within the group of the
    app and is limited to the letters of a topic's name: a dash is enough for both.
    """
    return f"{settings.app}-{settings.instance}"


def lane_id(settings: Settings, lane: int) -> str:
    """Return the transactional id of one lane of a Spark application.

    A slash is no letter of an instance's name, so no worker ever has such an id: the worker
    ``orders-0-1`` is not lane 1 of the driver ``orders-0``.
    """
    return f"{transactional_id(settings)}/{lane}"


def _common(settings: Settings) -> dict[str, Any]:
    security = settings.kafka.security
    optional = {
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.username,
        "sasl.password": property_of(security.password),
        "ssl.ca.location": security.ca_file,
        "ssl.certificate.location": security.certificate_file,
        "ssl.key.location": security.key_file,
        "ssl.key.password": property_of(security.key_password),
        "sasl.oauthbearer.token.endpoint.url": security.oauth_token_url,
        "sasl.oauthbearer.client.id": security.oauth_client_id,
        "sasl.oauthbearer.client.secret": property_of(security.oauth_client_secret),
        "sasl.oauthbearer.scope": security.oauth_scope,
        "sasl.oauthbearer.method": "oidc" if security.oauth_token_url else None,
        "https.ca.location": _token_authorities(security),
        "oauth_cb": token_source(security),
    }
    return {
        "bootstrap.servers": settings.kafka.bootstrap_servers,
        "client.id": client_name(settings),
        "security.protocol": security.protocol,
        # After "all brokers down" a re-bootstrap can leave the offsets call waiting without end on
        # a connection that no longer exists (measured with one lost connection, 3 of 3).
        "metadata.recovery.strategy": "none",
        # The default of 10 s makes one commit last as long after a few resets in a row.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        # The default of 60 s (producer: near the transaction timeout) is how long a lost request
        # stalls everything.
        "socket.timeout.ms": SOCKET_TIMEOUT_MS,
        "socket.nagle.disable": True,
        **{name: value for name, value in optional.items() if value is not None},
    }


def _token_authorities(security: SecuritySettings) -> str | None:
    """Return who may sign the token service's certificate.

    Left alone, the client looks where Red Hat keeps them, and nowhere else: on Debian no token
    was ever fetched over TLS (librdkafka 2.16.0 as in its wheel, ``probe`` makes no difference).
    """
    if not (security.oauth_token_url or "").startswith("https:"):
        return None
    found = (path for path in AUTHORITIES if Path(path).is_file())
    return security.oauth_ca_file or next(found, None)


def consumer_properties(settings: Settings) -> dict[str, Any]:
    group = settings.group
    session_ms = group.session_timeout_ms
    membership: dict[str, Any] = {"group.protocol": group.protocol}
    if group.protocol == "classic":
        membership |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            # Members learn of a rebalance by their next heartbeat: so long takes a handover.
            "heartbeat.interval.ms": max(100, min(300, session_ms // 5)),
        }
    if group.membership == "static":
        membership["group.instance.id"] = client_name(settings)
    return {
        **_common(settings),
        # The default of 1 s idles a consumer that is faster than its fetches.
        "fetch.queue.backoff.ms": 10,
        # Off by default: a record that was damaged on a broker's disk would pass for a sound one.
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
        **settings.kafka.properties,
        **membership,
        "group.id": settings.app,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # Never jump: the source knows a new group from a position that fell off the log.
        "auto.offset.reset": "error",
        # End-of-partition events carry the offset after markers and aborted data.
        "enable.partition.eof": True,
        "max.poll.interval.ms": group.max_poll_interval_ms,
    }


def producer_properties(settings: Settings, *, transactional: bool | None = None) -> dict[str, Any]:
    """Return the properties of a producer; ``transactional`` None: as the guarantee wants it."""
    if transactional is None:
        transactional = settings.mode.transactional
    timeout_ms = settings.transaction.timeout_ms
    properties = {
        **_common(settings),
        # The next transaction's first request meets CONCURRENT_TRANSACTIONS while the markers of
        # the last are written: with the default of 100 ms small transactions take 14 ms, with 5 ms
        # 4, and less with 2. The client doubles it with each repetition.
        "retry.backoff.ms": 2,
        "linger.ms": 1,
        "batch.size": 1 << 20,
        # The largest there is: topics say how much they take, and brokers judge. With the default
        # the client itself refused what was legal to write into the input (1,000,000 against
        # 1,048,588 bytes), and its dead letter.
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1 << 20,
        # A record for a missing topic would wait 30 s, longer than its transaction.
        "topic.metadata.propagation.max.ms": min(5000, timeout_ms // 2),
        **{
            name: value
            for name, value in settings.kafka.properties.items()
            if not name.startswith(("fetch.", "queued."))
        },
        "enable.idempotence": True,
        # A misspelt name would get a topic, with the brokers' number of partitions.
        "allow.auto.create.topics": False,
        "partitioner": _PARTITIONERS[settings.output.partitioner],
    }
    if transactional:
        properties |= {
            "transactional.id": transactional_id(settings),
            "transaction.timeout.ms": timeout_ms,
            "socket.timeout.ms": min(SOCKET_TIMEOUT_MS, timeout_ms),
            # Lines about broker connections, where requests are not counted (produce/producer.py).
            "debug": "broker",
        }
    return properties


def check_client_properties(settings: Settings) -> None:
    """Build both, unconnected; raise ConfigurationError for what one does not take or find."""
    if settings.kafka.security.oauth_msk_region is not None:
        require_signer()
    for client, properties in (
        (Consumer, consumer_properties(settings)),
        (Producer, producer_properties(settings)),
    ):
        kept = {name: text for name, text in properties.items() if not name.startswith(_CONNECTING)}
        built = build(client, {**kept, "log_level": 0}, None)
        if isinstance(built, Consumer):
            built.close()

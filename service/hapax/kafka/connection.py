"""The way to the brokers: whether a process listens there, and why none of them accepts the client.

Asked for when a first request has failed: the client's own answer is then "transport failure" or
"timed out"; the cause reaches only an error callback, which clients of the service do without.
"""

from __future__ import annotations

import os
import queue
import re
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from hapax.cluster.cluster_state import Address
from hapax.core.errors import PreflightError
from hapax.kafka.errors import describe
from hapax.kafka.properties import admin_properties, build, consumer_properties
from hapax.kafka.tokens import token_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.settings import Settings

WAIT_S = 3.0
TURN_S = 0.1
TEXT_MAX = 300
CONNECT_TIMEOUT_S, RESOLVE_TIMEOUT_S = 2.0, 3.0
SOON_S = 1.0
"""For who waits or types: a network that takes longer for a handshake is away for now."""
KAFKA_PORT = 9092

_CAUSES = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE})
"""Login or token refused, TLS failed, unknown host."""

_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})

_SIGNS = ("SSL routines", "security.protocol")
"""What a broken connection says of itself when TLS, or its absence, is the reason."""

_UNREACHED = "Connect to "


class Access(NamedTuple):
    """What a broker, the token service or the network answers, in one line.

    refused  waiting does not cure it: login, token or certificate
    suspect  nor this, probably: connections break as they do when TLS is spoken on one side only,
             or when a broker goes down
    """

    text: str | None = None
    refused: bool = False
    suspect: bool = False


def answers(client: Any, timeout_s: float, topic: str | None = None) -> bool:
    """Whether one answers in time; an answer without brokers, of one that stops, does not count."""
    try:
        return bool(client.list_topics(topic, timeout=timeout_s).brokers)
    except KafkaException:
        return False


def new_client_answered(properties: Mapping[str, Any], timeout_s: float) -> bool:
    new = build(AdminClient, {**admin_properties(properties), "log_level": 0}, None)
    return answers(new, timeout_s)


def no_broker(settings: Settings, error: KafkaException | None = None) -> PreflightError:
    """Return the one sentence of a command, after ``error`` or because nothing listens."""
    servers = settings.kafka.bootstrap_servers
    reason = unanswered(servers) if error is None else access(settings).text
    if reason is None and error is not None:
        reason = describe(error.args[0])
    problem = (
        f"no broker answered at HAPAX_KAFKA__BOOTSTRAP_SERVERS={servers} ({reason});"
        " check address, port, protocol and credentials"
    )
    return PreflightError(problem)


def require_listener(settings: Settings) -> None:
    """Raise PreflightError within a second; the client itself would try until its timeout."""
    if all(each.problem for each in bootstrap(settings.kafka.bootstrap_servers).values()):
        raise no_broker(settings)


def access(settings: Settings) -> Access:
    """Try to get in, for after a request has failed; takes three seconds at most.

    Of several brokers one that refuses the client counts more than one that is down. Holds no
    secret of the service: it is what the other side says, or what TLS makes of its certificate.
    """
    heard: list[KafkaError] = []
    properties = admin_properties(consumer_properties(settings))
    if problem := token_problem(properties):
        return Access(problem)
    listening: dict[str, Any] = {"log_level": 0, "error_cb": heard.append}
    admin = AdminClient({**properties, **listening})
    give_up_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_s:
        if answers(admin, TURN_S):
            return Access()
        admin.poll(0)
        for cause in filter(_tells, heard):
            return Access(
                _printable(f"{describe(cause)}{_hint(cause)}"),
                refused=cause.code() in _REFUSALS,
                suspect=cause.code() not in _CAUSES,
            )
        if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in heard):
            break
    unreached = (error for error in heard if _UNREACHED in error.str())
    found = next(unreached, None)
    return Access() if found is None else Access(_printable(describe(found)))


def _tells(error: KafkaError) -> bool:
    return error.code() in _CAUSES or any(sign in error.str() for sign in _SIGNS)


def _hint(error: KafkaError) -> str:
    # With TLS 1.3 a client has long shaken hands when its certificate is judged.
    refused = "certificate" in error.str() and "alert" in error.str()
    return ": the client certificate is refused, or one is required" if refused else ""


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)[:TEXT_MAX]


def probe(places: Iterable[str], within_s: float = RESOLVE_TIMEOUT_S) -> dict[str, Address]:
    """Try all ``host:port`` at once, nothing sent; takes so long at most, however dead they are."""
    wanted = list(dict.fromkeys(places))
    answers: queue.SimpleQueue[Address] = queue.SimpleQueue()
    for place in wanted:
        # Daemons: a resolver that does not answer cannot be interrupted.
        threading.Thread(
            target=lambda one: answers.put(_try(one)), args=(place,), name="tcp-probe", daemon=True
        ).start()
    found: dict[str, Address] = {}
    deadline_s = time.monotonic() + within_s
    while len(found) < len(wanted):
        try:
            one = answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except queue.Empty:
            break
        found[one.place] = one
    slow = f"no answer within {within_s:.0f} s"
    return {place: found.get(place, Address(place, slow)) for place in wanted}


def bootstrap(servers: str) -> dict[str, Address]:
    return probe((place.strip() for place in servers.split(",") if place.strip()), SOON_S)


def addressed(text: str, settings: Settings) -> str:
    """Return a text in which commands of Kafka's own tools name the brokers."""
    secured = settings.kafka.security.protocol != "plaintext"
    place = f"--bootstrap-server {settings.kafka.bootstrap_servers}"
    more = " --command-config client.properties" if secured else ""
    return re.sub(r"\b(kafka-[a-z-]+\.sh) ", rf"\1 {place}{more} ", text)


def unanswered(servers: str) -> str:
    """Say why nothing came of each address, as ``kafka-0:9092: connection refused, …``."""
    return told(bootstrap(servers))


def told(found: Mapping[str, Address]) -> str:
    return ", ".join(
        f"{place}: {address.problem or 'open, but no broker answers'}"
        for place, address in found.items()
    )


def speaks_tls(place: str) -> bool:
    """Return whether a listener answers a TLS handshake; nothing is trusted, and nothing sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(split(place), SOON_S) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except (OSError, UnicodeError, OverflowError):  # an SSLError is an OSError
        return False


def split(place: str) -> tuple[str, int]:
    """Read ``host``, ``host:port`` or ``[address]:port``."""
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = place, str(KAFKA_PORT)
    return host.strip("[]"), int(port)


def _try(place: str) -> Address:
    host, port = split(place)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        passing = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        return Address(place, f"the name {host} cannot be resolved (DNS)", unknown=not passing)
    why = "it has no address"
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as connection:
                connection.settimeout(CONNECT_TIMEOUT_S / len(found))
                connection.connect(address)
        except TimeoutError:
            why = "no answer"
        except (OSError, OverflowError) as error:
            number = getattr(error, "errno", None)
            why = os.strerror(number).lower() if number else "no connection"
        else:
            return Address(place)
    return Address(place, why)

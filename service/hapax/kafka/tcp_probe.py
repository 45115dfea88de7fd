"""Whether a process listens at an address: name resolution and TCP, nothing said."""

from __future__ import annotations

import os
import queue
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

from hapax.core.cluster_state import Address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONNECT_TIMEOUT_S, RESOLVE_TIMEOUT_S = 2.0, 3.0
SOON_S = 1.0
"""For who waits or types: a network that takes longer for a handshake is away for now."""
KAFKA_PORT = 9092


def probe(places: Iterable[str], within_s: float = RESOLVE_TIMEOUT_S) -> dict[str, Address]:
    """Try all ``host:port`` at once; takes so long at most, however dead they are."""
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
    """Try all addresses of a comma list, for a second."""
    return probe((place.strip() for place in servers.split(",") if place.strip()), SOON_S)


def unanswered(servers: str) -> str:
    """Say of each address of a comma list why nothing came of it; for after a request has failed.

    ``kafka-0:9092: connection refused, kafka-1:9092: open, but no broker answers``
    """
    return told(bootstrap(servers))


def told(found: Mapping[str, Address]) -> str:
    """Return addresses, each with what is wrong there, in one line."""
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

"""When the certificates of this pipeline expire: our files, and what servers show in a handshake.

Nothing is verified here, for what has expired is just what is looked for; no request is sent, and
the connection is closed after the handshake.
"""

from __future__ import annotations

import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.claims.store import kind_of
from hapax.core.certificates import Certificate, expiries_s, expiry_s
from hapax.kafka.connection import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.settings import Settings

HANDSHAKE_TIMEOUT_S = 3.0
AT_ONCE = 8


def own_certificates(settings: Settings) -> list[Certificate]:
    """Return those of our files, as they are on the disk now."""
    security, dedup = settings.kafka.security, settings.dedup
    store = "" if dedup.claims_url is None else kind_of(dedup.claims_url).name.lower()
    files = (
        ("kafka-client", security.certificate_file),
        ("kafka-ca", security.ca_file),
        (f"{store}-client", dedup.certificate_file if store else None),
        (f"{store}-ca", dedup.ca_file if store else None),
    )
    return [_of_file(role, path) for role, path in files if path is not None]


def server_certificates(settings: Settings, brokers: Iterable[str] = ()) -> list[Certificate]:
    """Return what the servers show; takes three seconds at most for eight of them.

    ``brokers``: further ``host:port`` beside those of the settings.
    """
    wanted = list(dict.fromkeys(_servers(settings, brokers)))
    if not wanted:
        return []
    with ThreadPoolExecutor(min(AT_ONCE, len(wanted))) as pool:
        return list(pool.map(lambda one: _of_server(settings, *one), wanted))


def _servers(settings: Settings, brokers: Iterable[str]) -> Iterator[tuple[str, str]]:
    if settings.kafka.security.protocol.endswith("ssl"):
        for place in (*settings.kafka.bootstrap_servers.split(","), *brokers):
            yield "kafka-broker", place
    if (url := settings.dedup.claims_url) is not None:
        kind = kind_of(url)
        way = kind.transport(url)
        for host, port in way.places if way.encrypted else ():
            named = f"[{host}]" if ":" in host else host
            yield f"{kind.name.lower()}-server", f"{named}:{port}"


def _of_file(role: str, path: str) -> Certificate:
    try:
        found = expiries_s(Path(path).read_bytes())
    except OSError as error:
        return Certificate(role, path, problem=error.strerror or "it cannot be read")
    except ValueError as error:
        return Certificate(role, path, problem=str(error))
    # A chain ends with its first link; of authorities an old one may stand beside its successor.
    return Certificate(role, path, max(found) if role.endswith("-ca") else min(found))


def _of_server(settings: Settings, role: str, place: str) -> Certificate:
    host, port = split(place)
    try:
        context = _context(settings, role)
        with (
            socket.create_connection((host, port), HANDSHAKE_TIMEOUT_S) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
        return Certificate(role, place, None if shown is None else expiry_s(shown))
    except (OSError, ValueError) as error:
        number = getattr(error, "errno", None)
        why = os.strerror(number).lower() if isinstance(number, int) and number > 0 else ""
        return Certificate(role, place, problem=why or getattr(error, "reason", "") or "no TLS")


def _context(settings: Settings, role: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent to it
    group = settings.kafka.security if role.startswith("kafka") else settings.dedup
    if group.certificate_file is not None:
        password = None if group.key_password is None else group.key_password.get_secret_value()
        context.load_cert_chain(group.certificate_file, group.key_file, password or "")
    return context

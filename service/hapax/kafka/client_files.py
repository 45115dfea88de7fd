"""Files that clients read: certificates, their keys, and secrets.

Those of Kafka read them when they are built, and never again: a process that outlives what is in
one of them has to build them again (engines/monitors.py). The claim store's client reads its own
with each connection.
"""

from __future__ import annotations

import ssl
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.settings.value_types import FiledSecret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.settings import SecuritySettings, Settings


class CurrentText(msgspec.Struct, frozen=True):
    """A secret in a file: a new client, which asks for its text, gets what the file holds then."""

    secret: FiledSecret

    def __str__(self) -> str:
        return self.secret.get_secret_value()

    def __repr__(self) -> str:
        return repr(self.secret)


def property_of(secret: Any) -> Any:
    """Return the property of a secret of the settings; None: it is not set."""
    if isinstance(secret, FiledSecret):
        return CurrentText(secret)
    return secret and secret.get_secret_value()


def kafka_files(settings: Settings) -> set[str]:
    paths: set[str | None] = set()
    for prefix, security in _clusters(settings):
        paths |= {
            security.ca_file,
            security.certificate_file,
            security.key_file,
            security.oauth_ca_file,
            *(secret.path for _, secret in _filed(prefix, security)),
        }
    return {path for path in paths if path is not None}


def file_digests(settings: Settings) -> dict[str, bytes]:
    """Return by path a digest of each file of any client; empty where it cannot be read."""
    dedup = settings.dedup
    secrets = (dedup.redis_url, dedup.key_password)
    paths = {
        *(each.path for each in secrets if isinstance(each, FiledSecret)),
        *filter(None, (dedup.ca_file, dedup.certificate_file, dedup.key_file)),
    }
    return {path: _digest(path) for path in kafka_files(settings) | paths}


def files_problem(settings: Settings) -> str:
    """Return why Kafka's clients cannot be built of their files as they are; empty: they can."""
    problems = (_problem(prefix, security) for prefix, security in _clusters(settings))
    return next(filter(None, problems), "")


def _clusters(settings: Settings) -> Iterator[tuple[str, SecuritySettings]]:
    yield "HAPAX_KAFKA__", settings.kafka.security
    if settings.elsewhere:
        yield "HAPAX_OUTPUT__KAFKA__", settings.output.kafka.security


def _problem(prefix: str, security: SecuritySettings) -> str:
    for name, secret in _filed(prefix, security):
        if problem := secret.problem():
            return f"{name}: {problem}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for path in filter(None, (security.ca_file, security.oauth_ca_file)):
        try:
            context.load_verify_locations(path)
        except (OSError, ValueError) as error:
            return f"{path}: {_why(error)}"
    if security.certificate_file is None:
        return ""
    password = security.key_password and security.key_password.get_secret_value()
    try:
        context.load_cert_chain(security.certificate_file, security.key_file, password or "")
    except (OSError, ValueError) as error:
        return f"{security.certificate_file} with {security.key_file}: {_why(error)}"
    return ""


def _filed(prefix: str, security: SecuritySettings) -> Iterator[tuple[str, FiledSecret]]:
    for name in ("password", "key_password", "oauth_client_secret"):
        secret = getattr(security, name)
        if isinstance(secret, FiledSecret):
            yield f"{prefix}SECURITY__{name.upper()}_FILE", secret


def _digest(path: str) -> bytes:
    try:
        return blake2b(Path(path).read_bytes()).digest()
    except OSError:
        return b""


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or "it cannot be used")

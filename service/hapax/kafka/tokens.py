"""Where the client gets its tokens of OAUTHBEARER, unless it fetches them itself; its files.

From a file, as Kubernetes projects them into a pod: it is read whenever the client wants a token,
at first and after four fifths of the last one's time (librdkafka), when Kubernetes has a new one.

For Amazon MSK, requests that AWS' own library signs in the process. The identity is what AWS'
libraries find: variables, the role of a Kubernetes service account or of the instance. A token is
valid for 15 minutes, and signed again whenever the client wants one.

Clients of Kafka read files (certificates, their keys, secrets) when they are built, and never
again: a process that outlives what is in one of them has to build them again (engines/monitors.py).
The claim store's client reads its own with each connection.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.settings.value_types import FiledSecret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hapax.settings import SecuritySettings, Settings

OPAQUE_S = 300.0
"""How long a token counts that does not say how long it is valid."""
BYTES_MAX = 1 << 16
NOT_INSTALLED = "the signer of Amazon MSK is not installed; run: pip install 'hapax-kafka[msk-iam]'"
_MS = 1000


class TokenError(Exception):
    """There is no token to be had, in one sentence without the token."""


class TokenFile(msgspec.Struct, frozen=True):
    """What a client asks for its tokens: its property ``oauth_cb``."""

    path: str

    def __call__(self, _config: str) -> tuple[str, float]:
        """Raise TokenError; the client repeats none of its words, and asks again 10 s later."""
        try:
            with Path(self.path).open("rb") as file:
                token = file.read(BYTES_MAX).decode("ascii").strip()
        except OSError as error:
            raise TokenError(f"{self.path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TokenError(f"{self.path} holds no token: it is not text") from None
        if not token or any(character.isspace() for character in token):
            raise TokenError(f"{self.path} holds no token: it is empty, or has several words")
        until_s = valid_until_s(token)
        if until_s is None:
            return token, time.time() + OPAQUE_S
        if until_s <= time.time():
            raise TokenError(f"the token in {self.path} expired {time.time() - until_s:.0f} s ago")
        return token, until_s


def valid_until_s(token: str) -> float | None:
    """Return what a JWT (RFC 7519) says as ``exp``; None for any other token. Not verified."""
    try:
        _header, said, _signature = token.split(".")
        claims = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


def require_signer() -> None:
    """Raise ConfigurationError unless AWS' library is installed; nothing is imported or asked."""
    if find_spec("aws_msk_iam_sasl_signer") is None:
        raise ConfigurationError(f"HAPAX_KAFKA__SECURITY__OAUTH_MSK_REGION: {NOT_INSTALLED}")


class MskToken(msgspec.Struct, frozen=True):
    """What a client asks for its tokens: its property ``oauth_cb``."""

    region: str

    def __call__(self, _config: str) -> tuple[str, float]:
        """Raise TokenError; the client repeats none of its words, and asks again 10 s later."""
        try:
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
        except ImportError:
            raise TokenError(NOT_INSTALLED) from None
        try:
            token, until_ms = MSKAuthTokenProvider.generate_auth_token(self.region)
        except AttributeError:  # the signer asks nothing for its key
            raise TokenError("AWS' libraries find no credentials in this process") from None
        except Exception as error:  # noqa: BLE001 - whatever the identity's service answers
            # Its text may hold parts of requests.
            raise TokenError(f"no token could be signed: {type(error).__name__}") from None
        return str(token), until_ms / _MS


_SETTINGS = {TokenFile: "OAUTH_TOKEN_FILE", MskToken: "OAUTH_MSK_REGION"}


def token_source(security: SecuritySettings) -> TokenFile | MskToken | None:
    """Return the property ``oauth_cb`` of a client; None: it needs none."""
    if security.oauth_msk_region is not None:
        return MskToken(security.oauth_msk_region)
    return TokenFile(security.oauth_token_file) if security.oauth_token_file else None


def token_problem(properties: Mapping[str, Any]) -> str:
    """Return why; the client itself waits 10 s and raises no exception (confluent-kafka 2.16)."""
    if not isinstance(ask := properties.get("oauth_cb"), TokenFile | MskToken):
        return ""
    try:
        ask("")
    except TokenError as error:
        return f"HAPAX_KAFKA__SECURITY__{_SETTINGS[type(ask)]}: {error}"
    return ""


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

"""A schema registry, asked by confluent-kafka's client, and what each failure means.

Whatever is no answer of a registry (no connection, 5xx, 429, a page of a proxy) is an outage:
SchemasUnavailableError. 401, 403 and a certificate that one side does not trust are refusals, which
no waiting cures. UnknownSchemaError says that the registry answers, and does not know. Any other
4xx is a DeniedError: of one schema alone it means the same, where the registry gives others.

Each question has a client of its own, of one address: so it logs in with secrets and files as they
are now, keeps no answer, and the next address is asked after any outage. The client's retries are
off: what is missing is looked for again by the lookup.
"""

from __future__ import annotations

import base64
import math
import ssl
import threading
import time
from contextlib import closing
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from hapax.core.errors import SchemasUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka.schema_registry import SchemaRegistryClient

    from hapax.core.formats import RegistryOptions, Secret

    _Fetch = Callable[[SchemaRegistryClient, str | None], "_Found"]

_UNKNOWN: Final = {40401, 40402, 40403, 40404, 40406, 40408}
_DENIED: Final = set(range(400, 500)) - {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_REFUSED: Final = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_USED, _LIFE_S = 0.8, 300.0
"""Share of a token's life; and its life where its service does not say how long that is."""
_SERVICE: Final = "the token service of HAPAX_REGISTRY__OAUTH_TOKEN_URL"
_OURS_REFUSED: Final = ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""In the name of what ended a handshake: the registry does not accept the certificate."""


class UnknownSchemaError(Exception):
    """The registry answers that it does not know."""


class DeniedError(SchemasUnavailableError):
    """A registry, or a proxy before it, denies what was asked; ``refused``: with 401 or 403."""


class Referred(msgspec.Struct, frozen=True):
    """A schema that another one refers to by ``name``; ``serialized`` as in Schema."""

    name: str
    text: str
    serialized: str | None = None


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """One schema, with all that it refers to, what others need first.

    kind        AVRO, PROTOBUF or JSON
    serialized  of a Protobuf schema: its descriptor in Base64; None: the registry gives none
    """

    text: str
    kind: str = "AVRO"
    id: int | None = None
    guid: str | None = None
    references: tuple[Referred, ...] = ()
    serialized: str | None = None


class Registry:
    """Asks the registry; safe for threads. Raises as the module says."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._tokens = _Tokens(options)
        if any(url.startswith("http") for url in options.urls):
            # 0.3 s of imports, which no call that waits for its first schema has.
            import_module("confluent_kafka.schema_registry")

    def by_id(self, schema_id: int) -> Schema:
        return self._schema(
            f"schema {schema_id}",
            lambda client, form: _Found(client.get_schema(schema_id, fmt=form), schema_id),
        )

    def by_guid(self, guid: str) -> Schema:
        named = str(UUID(guid))
        return self._schema(
            f"schema {guid}",
            lambda client, form: _Found(client.get_schema_by_guid(named, fmt=form), guid=guid),
        )

    def gives(self, known: Schema | None) -> bool:
        """Return whether the registry gives a schema that it gave before; None: any subject."""
        try:
            if known is not None and known.id is not None:
                self.by_id(known.id)
            elif known is not None and known.guid is not None:
                self.by_guid(known.guid)
            else:
                self.ask("subjects", lambda client: client.get_subjects(limit=1))
        except (SchemasUnavailableError, UnknownSchemaError):
            return False
        return True

    def latest(self, subject: str) -> Schema:
        return self._version(subject, "latest")

    def registered(self, subject: str, text: str, kind: str) -> Schema:
        """Return the schema with this text as the subject has it; register it where that is due."""
        from confluent_kafka.schema_registry import Schema as Given

        given, what = Given(text, kind), f"a schema of {subject}"
        try:
            found = self.ask(what, lambda client: client.lookup_schema(subject, given))
        except UnknownSchemaError:
            if not self._options.auto_register:
                raise
            self.ask(what, lambda client: client.register_schema(subject, given))
            found = self.ask(what, lambda client: client.lookup_schema(subject, given))
        return self._version(subject, found.version or "latest")

    def compatibility(self, subject: str | None = None) -> str:
        """Return how versions must go together: BACKWARD, FULL, NONE and so on; None: of all."""
        what = "the compatibility"
        try:
            return str(self.ask(what, lambda client: client.get_compatibility(subject)))
        except UnknownSchemaError:
            return str(self.ask(what, lambda client: client.get_compatibility()))

    def ask(self, what: str, question: Callable[[SchemaRegistryClient], Any]) -> Any:
        """Return one answer, of the first address that gives any; raise as the module says."""
        failure: SchemasUnavailableError | None = None
        for url in self._options.urls:
            try:
                return self._asked(url.rstrip("/"), what, question)
            except SchemasUnavailableError as error:
                if error.refused:
                    raise
                failure = error
        raise failure or SchemasUnavailableError("HAPAX_REGISTRY__URL is unset")

    def _asked(self, url: str, what: str, question: Callable[[SchemaRegistryClient], Any]) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            with closing(self._client(url)) as client:
                return question(client)
        except (SchemasUnavailableError, UnknownSchemaError):
            raise
        except SchemaRegistryError as error:
            raise _failure(url, what, error) from None
        except Exception as error:
            if (problem := _distrust(error)) is not None:
                text = f"the schema registry {url}: {problem}"
                raise SchemasUnavailableError(text, refused=True) from None
            reason = str(error) or type(error).__name__
            text = f"the schema registry {url} does not answer about {what}: {reason}"
            raise SchemasUnavailableError(text) from None

    def _client(self, url: str) -> SchemaRegistryClient:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        options = self._options
        settings: dict[str, Any] = {
            "url": url,
            "timeout": options.timeout_ms / 1000,
            "max.retries": 0,
            "ssl.ca.location": False,
        }
        if options.token is not None or options.oauth_token_url is not None:
            settings["bearer.auth.credentials.source"] = "CUSTOM"
            settings["bearer.auth.custom.provider.function"] = self._tokens.fields
            settings["bearer.auth.custom.provider.config"] = {}
        elif options.user is not None and options.password is not None:
            settings["basic.auth.user.info"] = f"{options.user}:{current(options.password)}"
        if url.startswith("https:"):
            tls(options)  # names the file that cannot be used
            system = ssl.get_default_verify_paths()
            settings["ssl.ca.location"] = options.ca_file or system.cafile or system.capath
        if url.startswith("https:") and options.certificate_file is not None:
            settings["ssl.certificate.location"] = options.certificate_file
            settings["ssl.key.location"] = options.key_file
            settings["ssl.key.password"] = _password(options)
        return SchemaRegistryClient(settings)

    def _version(self, subject: str, version: int | str) -> Schema:
        return self._schema(f"{subject}, version {version}", partial(_version, subject, version))

    def _schema(self, what: str, fetch: _Fetch) -> Schema:
        made: Schema = self.ask(what, partial(_whole, fetch))
        return made


class _Tokens:
    """Bearer tokens as the settings say; one of a token service serves every client.

    The client's own way to a token service needs ``expires_in``, which RFC 6749 leaves out at will,
    and knows no timeout (findings/confluent-registry-tokens-need-expires-in.sh).
    """

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._asking = threading.Lock()
        self._token, self._until_s = "", -math.inf

    def fields(self, _config: dict[str, Any]) -> dict[str, str]:
        """Return what a request carries. Raises SchemasUnavailableError."""
        options = self._options
        made = {"bearer.auth.logical.cluster": options.logical_cluster or ""}
        if options.identity_pool is not None:
            made["bearer.auth.identity.pool.id"] = options.identity_pool
        if options.token is not None:
            return made | {"bearer.auth.token": current(options.token)}
        with self._asking:
            if time.monotonic() >= self._until_s:
                self._fetch()
            return made | {"bearer.auth.token": self._token}

    def _fetch(self) -> None:
        from authlib.integrations.httpx_client import OAuth2Client, OAuthError

        options = self._options
        url, secret = options.oauth_token_url, options.oauth_client_secret
        trusted = ssl.create_default_context()
        try:
            if options.ca_file is not None:
                trusted.load_verify_locations(options.ca_file)
            with OAuth2Client(
                options.oauth_client_id,
                "" if secret is None else current(secret),
                scope=options.oauth_scope,
                timeout=options.timeout_ms / 1000,
                verify=trusted,
            ) as client:
                given = client.fetch_token(url, grant_type="client_credentials")
            self._token = given["access_token"]
            self._until_s = time.monotonic() + _USED * float(given.get("expires_in", _LIFE_S))
        except OAuthError as error:
            text = f"{_SERVICE} refuses with {error.error}; check _OAUTH_CLIENT_ID, _SECRET, _SCOPE"
            raise SchemasUnavailableError(text, refused=True) from None
        except Exception as error:
            reason = str(error).partition(" for url")[0] or type(error).__name__
            raise SchemasUnavailableError(f"{_SERVICE} gives no token: {reason}") from None


class _Found:
    """One schema as the client returns it. Raises TypeError where it has no text."""

    def __init__(self, schema: Any, number: int | None = None, guid: str | None = None) -> None:
        if not isinstance(schema.schema_str, str):
            raise TypeError("it answers with what is no schema")
        self.text: str = schema.schema_str
        self.kind: str = schema.schema_type or "AVRO"
        self.references = schema.references or ()
        self.id, self.guid = number, guid


def _version(subject: str, version: Any, client: SchemaRegistryClient, form: str | None) -> _Found:
    found = client.get_version(subject, version, fmt=form)
    return _Found(found.schema, found.schema_id, found.guid)


def _whole(fetch: _Fetch, client: SchemaRegistryClient) -> Schema:
    found = fetch(client, None)
    return Schema(
        text=found.text,
        kind=found.kind,
        id=found.id,
        guid=None if found.guid is None else found.guid.replace("-", ""),
        references=tuple(_references(client, found, set())),
        serialized=_serialized(client, found.kind, fetch),
    )


def _references(client: SchemaRegistryClient, found: _Found, seen: set[str]) -> list[Referred]:
    """Return what a schema refers to, each after what it refers to itself."""
    made: list[Referred] = []
    for one in found.references:
        if one.name in seen:
            continue
        seen.add(one.name)
        fetch = partial(_version, one.subject, one.version)
        other = fetch(client, None)
        made += _references(client, other, seen)
        made.append(Referred(one.name, other.text, _serialized(client, found.kind, fetch)))
    return made


def _serialized(client: Any, kind: str, fetch: _Fetch) -> str | None:
    if kind != "PROTOBUF":
        return None
    client.clear_caches()  # they do not distinguish the forms of a schema
    text = fetch(client, "serialized").text
    client.clear_caches()
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return text or None


def tls(options: RegistryOptions) -> None:
    """Raise ValueError where a file of TLS cannot be used, with its name."""
    if not any(url.startswith("https:") for url in options.urls):
        return
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"HAPAX_REGISTRY__CA_FILE={options.ca_file}: {_why(error)}") from None
    if options.certificate_file is not None:
        try:
            context.load_cert_chain(options.certificate_file, options.key_file, _password(options))
        except (OSError, ValueError) as error:
            files = f"{options.certificate_file} with {options.key_file}"
            raise ValueError(f"HAPAX_REGISTRY__CERTIFICATE_FILE={files}: {_why(error)}") from None


def _password(options: RegistryOptions) -> str:
    # An empty one keeps the library from asking for it on the terminal.
    return "" if options.key_password is None else current(options.key_password)


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return f"it cannot be used: {reason or 'key or password is wrong'}"


def _failure(url: str, what: str, error: Any) -> Exception:
    status, message = error.http_status_code, error.error_message
    if status in _REFUSED:
        return DeniedError(
            f"the schema registry {url} refuses {what} with {status}: {message}; check"
            " HAPAX_REGISTRY__USER and _PASSWORD, _TOKEN or _OAUTH_CLIENT_ID, and the rights of"
            " that user",
            refused=True,
        )
    if status == HTTPStatus.NOT_FOUND and error.error_code in _UNKNOWN:
        return UnknownSchemaError(f"the schema registry {url} does not know {what}: {message}")
    kind = DeniedError if status in _DENIED else SchemasUnavailableError
    return kind(f"the schema registry {url} answers with {status} about {what}: {message}")


def _distrust(error: BaseException | None) -> str | None:
    """Return which certificate is not trusted; None: it is another failure."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted (HAPAX_REGISTRY__CA_FILE): {error}"
    if error is not None and any(word in str(error.reason) for word in _OURS_REFUSED):
        return f"it refuses the client certificate (HAPAX_REGISTRY__CERTIFICATE_FILE): {error}"
    return None


def current(secret: Secret) -> str:
    if secret.path is not None:
        try:
            return Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n") or secret.text
        except (OSError, ValueError):
            return secret.text
    return secret.text

"""The HTTP API of a schema registry: what is asked of it, and what each failure means.

Whatever is no answer of a registry (no connection, 5xx, 429, a page of a proxy) is an outage:
SchemasUnavailableError. 401, 403 and a certificate that one side does not trust are refusals, which
no waiting cures. UnknownSchemaError says that the registry answers, and does not know.
"""

from __future__ import annotations

import base64
import json
import ssl
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen
from uuid import UUID

import msgspec

from hapax.core.errors import SchemasUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.formats import RegistryOptions, Secret

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_UNKNOWN: Final = {40401, 40402, 40403}
_REFUSED: Final = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_ANSWER_BYTES_MAX: Final = 16 << 20
_OURS_REFUSED: Final = ("ALERT_CERTIFICATE", "ALERT_BAD_CERTIFICATE", "ALERT_UNKNOWN_CA")
"""In the name of what ended a handshake: the registry does not accept our certificate."""


class UnknownSchemaError(Exception):
    """The registry answers that it does not know."""


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


class Kept(msgspec.Struct):
    """A schema as it stands in a file, with what it was looked up by."""

    key: str
    schema: Schema


class Registry:
    """Asks the registry. One question at a time; safe for threads."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema of an id."""
        return self._whole(f"/schemas/ids/{schema_id}", {"id": schema_id})

    def by_guid(self, guid: str) -> Schema:
        """Return the schema of a GUID, given in hexadecimal."""
        return self._whole(f"/schemas/guids/{UUID(guid)}", {"guid": guid})

    def latest(self, subject: str) -> Schema:
        """Return the latest version of a subject."""
        return self._whole(f"/subjects/{quote(subject, safe='')}/versions/latest", {})

    def registered(self, subject: str, text: str, kind: str) -> Schema:
        """Return the schema with this text as the subject has it; register it where that is due."""
        path, body = f"/subjects/{quote(subject, safe='')}", {"schema": text, "schemaType": kind}
        if kind == "AVRO":
            del body["schemaType"]  # the default: registries of old know no other
        try:
            found = self.ask(path, body)
        except UnknownSchemaError:
            if not self._options.auto_register:
                raise
            self.ask(f"{path}/versions", body)
            found = self.ask(path, body)
        version = found.get("version", "latest")
        return self._made(found, {"schemaType": kind}, f"{path}/versions/{version}")

    def compatibility(self, subject: str) -> str:
        """Return how versions of a subject must go together: BACKWARD, FULL, NONE and so on."""
        try:
            found = self.ask(f"/config/{quote(subject, safe='')}?defaultToGlobal=true")
        except UnknownSchemaError:
            found = self.ask("/config")
        return str(found.get("compatibilityLevel", "unknown"))

    def ask(self, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return one answer, of the first address that gives any; raise as the module says."""
        failure: SchemasUnavailableError | None = None
        for url in self._options.urls:
            try:
                return self._asked(url.rstrip("/"), path, body)
            except SchemasUnavailableError as error:
                if error.refused:
                    raise
                failure = error
        raise failure or SchemasUnavailableError("HAPAX_REGISTRY__URL is unset")

    # -- one request ------------------------------------------------------------------------

    def _asked(self, url: str, path: str, body: Mapping[str, str] | None) -> dict[str, Any]:
        request = Request(
            url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": ACCEPT, "Content-Type": "application/json", **self._login()},
        )
        try:
            context = tls(self._options)
            with urlopen(request, timeout=self._options.timeout_s, context=context) as answer:
                content = answer.read(_ANSWER_BYTES_MAX)
            found = json.loads(content)
        except HTTPError as error:
            with error:
                raise self._failure(url, path, error) from None
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if (problem := _distrust(reason)) is not None:
                text = f"the schema registry {url}: {problem}: {reason}"
                raise SchemasUnavailableError(text, refused=True) from None
            text = f"the schema registry {url} does not answer {path}: {reason}"
            raise SchemasUnavailableError(text) from None
        if not isinstance(found, dict):
            text = f"the schema registry {url} answers {path} with what is none of a registry's"
            raise SchemasUnavailableError(text)
        return found

    def _failure(self, url: str, path: str, error: HTTPError) -> Exception:
        code, message = _told(error)
        if error.code in _REFUSED:
            return SchemasUnavailableError(
                f"the schema registry {url} refuses {path} with {error.code}: {message}; check"
                " HAPAX_REGISTRY__USER, HAPAX_REGISTRY__PASSWORD or HAPAX_REGISTRY__TOKEN, and"
                " the rights of that user",
                refused=True,
            )
        if error.code == HTTPStatus.NOT_FOUND and code in _UNKNOWN:
            return UnknownSchemaError(f"the schema registry {url} answers {path}: {message}")
        return SchemasUnavailableError(
            f"the schema registry {url} answers {path} with {error.code}: {message}"
        )

    def _login(self) -> dict[str, str]:
        options = self._options
        if options.token is not None:
            return {"Authorization": f"Bearer {current(options.token)}"}
        if options.user is None or options.password is None:
            return {}
        pair = f"{options.user}:{current(options.password)}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode()}

    # -- what belongs to a schema -------------------------------------------------------------

    def _whole(self, path: str, known: Mapping[str, Any]) -> Schema:
        return self._made(self.ask(path), known, path)

    def _made(self, found: Mapping[str, Any], known: Mapping[str, Any], path: str) -> Schema:
        answer = _answer({**found, **known}, path)
        protobuf = answer.schemaType == "PROTOBUF"
        return Schema(
            text=answer.schema,
            kind=answer.schemaType or "AVRO",
            id=answer.id,
            guid=None if answer.guid is None else answer.guid.replace("-", ""),
            references=tuple(self._references(answer, set(), protobuf=protobuf)),
            serialized=self._serialized(path) if protobuf else None,
        )

    def _references(self, answer: _Answer, seen: set[str], *, protobuf: bool) -> list[Referred]:
        """Return what a schema refers to, each after what it refers to itself."""
        made: list[Referred] = []
        for one in answer.references or ():
            if one.name in seen:
                continue
            seen.add(one.name)
            path = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}"
            found = _answer(self.ask(path), path)
            made += self._references(found, seen, protobuf=protobuf)
            serialized = self._serialized(path) if protobuf else None
            made.append(Referred(one.name, found.schema, serialized))
        return made

    def _serialized(self, path: str) -> str | None:
        """Return a Protobuf schema as a descriptor; None where the registry knows no such form."""
        text = _answer(self.ask(f"{path}?format=serialized"), path).schema
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            return None
        return text or None


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str | None = None
    id: int | None = None
    guid: str | None = None
    references: list[_Reference] | None = None


def _answer(found: Mapping[str, Any], path: str) -> _Answer:
    try:
        return msgspec.convert(found, _Answer)
    except msgspec.ValidationError as error:
        text = f"the schema registry answers {path} with what is no schema: {error}"
        raise SchemasUnavailableError(text) from None


def tls(options: RegistryOptions) -> ssl.SSLContext | None:
    """Return how TLS is spoken, by the files as they are now; None: by no address.

    Raises OSError or ValueError where one cannot be used, with its name.
    """
    if not any(url.startswith("https:") for url in options.urls):
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"HAPAX_REGISTRY__CA_FILE={options.ca_file}: {_why(error)}") from None
    if options.certificate_file is not None:
        # An empty password keeps the library from asking for one on the terminal.
        password = "" if options.key_password is None else current(options.key_password)
        try:
            context.load_cert_chain(options.certificate_file, options.key_file, password)
        except (OSError, ValueError) as error:
            files = f"{options.certificate_file} with {options.key_file}"
            text = f"HAPAX_REGISTRY__CERTIFICATE_FILE={files}: {_why(error)}"
            raise ValueError(text) from None
    return context


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return f"it cannot be used: {reason or 'key or password is wrong'}"


def _distrust(reason: object) -> str | None:
    """Return which certificate is not trusted; None: it is another failure."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "its certificate is not trusted (HAPAX_REGISTRY__CA_FILE)"
    name = str(getattr(reason, "reason", "")) if isinstance(reason, ssl.SSLError) else ""
    if any(word in name for word in _OURS_REFUSED):
        return "it refuses the client certificate (HAPAX_REGISTRY__CERTIFICATE_FILE)"
    return None


def current(secret: Secret) -> str:
    """Return a secret as its file has it now."""
    if secret.path is not None:
        try:
            return Path(secret.path).read_text(encoding="utf-8").rstrip("\r\n") or secret.text
        except (OSError, ValueError):
            return secret.text
    return secret.text


def _told(error: HTTPError) -> tuple[int, str]:
    """Return the code and the text of a failure, as far as it is a registry's."""
    try:
        found = json.loads(error.read(_ANSWER_BYTES_MAX))
        return int(found["error_code"]), str(found.get("message", ""))
    except (OSError, ValueError, TypeError, KeyError, HTTPException):
        return 0, error.reason

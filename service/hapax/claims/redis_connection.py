"""The way to Redis: one client from one URL and its certificates, and its errors in plain words.

Which server has an app's claims may change: sentinels name it, or nodes of a cluster. Each new
connection asks first, so that nothing has to be restarted after a failover.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AuthenticationError,
    ConnectionError as RedisConnectionError,
    MovedError,
    RedisError,
    ResponseError,
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from hapax.claims.redis_url import CLAIM_COMMANDS, PORT, SENTINEL_PORT, places_of, service_of
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

    from hapax.claims.kind import TlsFiles

PERMISSIONS = f"allow ~hapax* {' '.join(f'+{command}' for command in CLAIM_COMMANDS)}"

REASONS = (
    # What Redis says, and what that means here. The first line that is found decides. Redis 6.2
    # wraps an error inside a script into another one, so that the word may come anywhere.
    (r"WRONGPASS|NOAUTH|invalid password", "it refuses the configured user or password"),
    (
        r"NOPERM|ACL failure|can't run this command|can't access",
        f"the configured user lacks a permission: {PERMISSIONS}",
    ),
    (r"DB index is out of range", "the database number of the URL does not exist on this server"),
    (r"OOM", "its memory is full: raise maxmemory, or shorten the TTL"),
    (r"READONLY", "it is a replica, or is becoming one: the URL must lead to the primary"),
    (r"MASTERDOWN", "it is a replica without a primary"),
    (r"LOADING", "it is still loading its data"),
    (r"BUSY", "another script blocks it"),
    (r"MISCONF", "it cannot write its snapshots and therefore refuses writes"),
    (r"NOREPLICAS", "too few replicas follow it"),
    (
        r"MOVED|ASK|CROSSSLOT",
        "another node of its cluster has the keys of this app: begin the URL with redis+cluster://",
    ),
    (r"CLUSTERDOWN|TRYAGAIN", "the Redis cluster is incomplete: some hash slots have no node"),
    (r"max number of clients", "it has no free connection: raise maxclients"),
    (r"unknown command|Unknown Redis command", "it lacks a command that claims need"),
    (
        r"WRONGTYPE",
        "another program writes to the keys of this app: use another database or server",
    ),
)

PASSING = re.compile(
    r"\b(?:READONLY|MASTERDOWN|LOADING|BUSY|MISCONF|OOM|NOREPLICAS|CLUSTERDOWN|TRYAGAIN"
    r"|max number of clients)"
)
"""Refusals of a server that is on its way: a failover, a start, a full memory. They count as away,
at the start too: a worker that starts in the middle of a failover must not leave for it."""

URL_PROBLEM = (
    "The URL of Redis cannot be read: use redis://user:password@host:port/0, with special "
    "characters of the password percent-encoded."
)


def _tls_options(tls: TlsFiles) -> dict[str, object]:
    """Raise ConfigurationError now: at the first connection it would look like an outage."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        raise ConfigurationError(_unreadable("CA file", tls.ca_file, error)) from None
    options: dict[str, object] = {"ssl_ca_certs": tls.ca_file} if tls.ca_file else {}
    if tls.certificate_file is None:
        return options
    try:
        # An empty password keeps the library from asking for one on the terminal.
        password = tls.key_password or ""
        context.load_cert_chain(tls.certificate_file, tls.key_file, password)
    except (OSError, ValueError) as error:
        files = f"{tls.certificate_file} with {tls.key_file or 'the key in it'}"
        raise ConfigurationError(_unreadable("certificate", files, error)) from None
    return options | {
        "ssl_certfile": tls.certificate_file,
        "ssl_keyfile": tls.key_file or tls.certificate_file,
        "ssl_password": tls.key_password,
    }


def _unreadable(what: str, path: str | None, error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return f"The {what} for Redis cannot be used: {path}: {reason or 'key or password is wrong'}."


class CurrentLogin(CredentialProvider):
    """The login of an address, which each new connection asks for: a password may change."""

    def __init__(self, current: Callable[[], str]) -> None:
        self._current = current

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return user and password, or the password alone."""
        user, password = _login(self._current())
        return (user, password) if user else (password,)


def _login(url: str) -> tuple[str, str]:
    """Return user and password of an address, as the client finds them; empty: none."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return user or query.get("username", ""), password or query.get("password", "")


def _without_login(url: str) -> str:
    address, _, query = url.partition("?")
    login, at, hosts = urlsplit(url).netloc.rpartition("@")
    kept = [each for each in parse_qsl(query) if each[0] not in {"username", "password"}]
    address = address.replace(f"{login}{at}{hosts}", hosts, 1)
    return f"{address}?{urlencode(kept)}" if kept else address


def connect(
    url: str,
    *,
    key: bytes = b"",
    tls: TlsFiles | None = None,
    current: Callable[[], str] | None = None,
    connect_timeout_s: float = 1.0,
    answer_timeout_s: float = 2.0,
) -> Redis:
    """Return a client for an address of claims/redis_url.py; nothing is sent yet.

    It never repeats a call: an outage must be seen after one timeout, and the caller decides.
    ``key``: one of the app's, which says which node of a cluster is meant. ``current``: returns the
    address as it is now; its login may be another one. Raises ConfigurationError for a URL or files
    that cannot work; its text holds no part of the URL.
    """
    options: dict[str, object] = {}
    if tls is not None and any(tls):
        if not url.startswith("rediss"):
            raise ConfigurationError("Certificates for Redis need a URL that begins rediss://.")
        options = _tls_options(tls)
    options |= {
        "socket_connect_timeout": connect_timeout_s,
        "socket_timeout": answer_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        # No HELLO and no CLIENT SETINFO: each is a round trip that a strict ACL refuses.
        "protocol": 2,
        "driver_info": None,
    }
    if current is not None and any(_login(url)):
        url = _without_login(url)
        options["credential_provider"] = CurrentLogin(current)
    try:
        url, more = primary_of(url, key, options) or (url, {})
        _check_database(url)
        client = Redis.from_url(url, **options, **more)
        # Options of the URL's query are only read here.
        client.connection_pool.make_connection()
    except (ValueError, TypeError, RedisError):
        # The text of such an error can hold a part of the password.
        raise ConfigurationError(URL_PROBLEM) from None
    return client


def _check_database(url: str) -> None:
    # The client would silently take database 0 for a path that is no number.
    parts = urlsplit(url)
    if parts.scheme != "unix" and not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError


def place(client: Redis) -> str:
    """Name the server without its secrets: ``host:port/database``."""
    options = client.connection_pool.connection_kwargs
    if "primary" in options:
        return str(options["primary"].place())
    if "path" in options:
        return str(options["path"])
    host, port = options.get("host", "localhost"), options.get("port", 6379)
    return f"{host}:{port}/{options.get('db') or 0}"


def unavailable(client: Redis, error: Exception) -> ClaimsUnavailableError:
    """Return it without secrets; a demoted primary refuses writes, so ask again where it is."""
    if "primary" in client.connection_pool.connection_kwargs:
        client.connection_pool.disconnect(inuse_connections=False)
    return ClaimsUnavailableError(f"Redis at {place(client)} does not answer: {reason_of(error)}")


def is_away(error: BaseException) -> bool:
    """Whether waiting may help: not for a password, permission, certificate or unknown host."""
    if isinstance(error, AuthenticationError):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError | socket.gaierror):
            return False
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ResponseError):
        return PASSING.search(said(error)) is not None
    return isinstance(error, RedisConnectionError | RedisTimeoutError | OSError)


def said(error: Exception) -> str:
    """Return what the server said; the client cuts off the leading word of some refusals."""
    return f"{getattr(error, 'status_code', None) or ''} {error}"


def reason_of(error: Exception) -> str:
    """Return what is wrong, in a phrase without secrets."""
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return "it took too long"
    text = said(error)
    for pattern, reason in REASONS:
        if re.search(rf"\b(?:{pattern})", text):
            return reason
    if isinstance(error, AuthenticationError):
        return REASONS[0][1]
    if isinstance(error, ResponseError):
        # Only the leading code: the rest may quote the request.
        return f"it answers with the error {text.split(maxsplit=1)[0]}"
    return _network_reason(error)


def _network_reason(error: BaseException | None) -> str:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message})"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed ({error.reason})"
        if isinstance(error, socket.gaierror):
            return "its host name is unknown"
        if isinstance(error, OSError) and error.errno:
            return os.strerror(error.errno).lower()
        error = error.__cause__ or error.__context__
    return "the connection broke"


# -- Which server has an app's claims, where that changes ------------------------------------------


_LOGIN = ("sentinel_username", "sentinel_password")
"""Options of an address that sentinels are given: their users are not those of the server."""


class Primary:
    """Where the server is.

    name     of what was asked for, without secrets
    address  host and port of the last answer; None before the first
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.address: tuple[str, int] | None = None

    def ask(self) -> tuple[str, int]:
        """Return host and port, asked now. Raises RedisError or OSError when none answers."""
        self.address = self._asked()
        return self.address

    def place(self) -> str:
        return self.name if self.address is None else "{}:{} of {}".format(*self.address, self.name)

    def _asked(self) -> tuple[str, int]:
        raise NotImplementedError


class Named(Primary):
    """The primary of a service that sentinels watch."""

    def __init__(self, service: str, sentinels: Sentinel) -> None:
        super().__init__(f"the sentinels' {service}")
        self._service = service
        self._sentinels = sentinels

    def _asked(self) -> tuple[str, int]:
        host, port = self._sentinels.discover_master(self._service)  # type: ignore[no-untyped-call]
        return str(host), int(port)


class SlotOwner(Primary):
    """The node of a cluster that has the slot of a key.

    It is found by asking for the key, which needs no right that claims do not need anyway. The
    last answer is asked first, so a cluster that does not change costs one question.
    """

    def __init__(self, key: bytes, plain: Plain, options: Mapping[str, Any]) -> None:
        super().__init__(f"the cluster of {plain.places[0][0]}:{plain.places[0][1]}")
        self._key = key
        self._plain = plain
        self._options = options

    def _asked(self) -> tuple[str, int]:
        failed: Exception = RedisConnectionError("the address names no node")
        known = [] if self.address is None else [self.address]
        for place in dict.fromkeys((*known, *self._plain.places)):
            try:
                return self._owner(*place)
            except (RedisError, OSError) as error:
                failed = error
        raise failed

    def _owner(self, host: str, port: int) -> tuple[str, int]:
        """Return the node that this one names, which may be itself."""
        with Redis.from_url(self._plain.url(host, port), **self._options) as node:
            try:
                node.get(self._key)
            except MovedError as error:
                return error.host or host, error.port
        return host, port


class Plain(NamedTuple):
    """An address of several servers; ``tls``: whether all of them are reached by TLS."""

    parts: SplitResult
    places: tuple[tuple[str, int], ...]
    path: str
    tls: bool

    def url(self, host: str, port: int) -> str:
        """Return the address of one server, with the login and the options."""
        login, at, _hosts = self.parts.netloc.rpartition("@")
        options = [pair for pair in self._query() if pair[0] not in _LOGIN]
        named = f"[{host}]" if ":" in host else host
        scheme = "rediss" if self.tls else "redis"
        return urlunsplit((scheme, f"{login}{at}{named}:{port}", self.path, urlencode(options), ""))

    def sentinel_login(self) -> dict[str, str]:
        """Return the login of the sentinels; none: they need none."""
        prefix = len("sentinel_")
        return {name[prefix:]: value for name, value in self._query() if name in _LOGIN}

    def _query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.parts.query, keep_blank_values=True)


def primary_of(
    url: str, key: bytes, options: Mapping[str, Any]
) -> tuple[str, dict[str, Any]] | None:
    """Return what a client of this address is given; None for the address of one server.

    key      names the slot of a cluster
    options  of each connection

    Raises ValueError for an address that cannot be read.
    """
    parts = urlsplit(url)
    scheme, _, form = parts.scheme.partition("+")
    if not form:
        return None
    tls = scheme == "rediss"
    primary: Primary
    if form == "sentinel":
        database = parts.path.strip("/").partition("/")[2]
        plain = Plain(parts, places_of(parts, SENTINEL_PORT), f"/{database}", tls)
        ours = {name: value for name, value in options.items() if name != "credential_provider"}
        asked = {"ssl": tls, **ours, **plain.sentinel_login()}
        primary = Named(
            service_of(parts),
            Sentinel(plain.places, sentinel_kwargs=asked),  # type: ignore[no-untyped-call]
        )
    else:
        plain = Plain(parts, places_of(parts, PORT), "", tls)
        primary = SlotOwner(key, plain, options)
    more = {"connection_class": FollowingTls if tls else Following, "primary": primary}
    return plain.url(*plain.places[0]), more


class _Follows:
    """Of a connection: where it leads is asked each time that it is made."""

    host: str
    port: int

    def __init__(self, *, primary: Primary, **options: Any) -> None:
        self._primary = primary
        super().__init__(**options)

    def _connect(self) -> socket.socket:
        self.host, self.port = self._primary.ask()
        made: socket.socket = super()._connect()  # type: ignore[misc]
        return made


class Following(_Follows, Connection):
    """A connection to the primary."""


class FollowingTls(_Follows, SSLConnection):
    """A connection to the primary by TLS."""

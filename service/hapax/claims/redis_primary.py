"""Which server has an app's claims, where that changes: sentinels name it, or nodes of a cluster.

Each new connection asks first, so that nothing has to be restarted after a failover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis import Redis
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError, MovedError, RedisError
from redis.sentinel import Sentinel

from hapax.claims.redis_url import PORT, SENTINEL_PORT, places_of, service_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from urllib.parse import SplitResult

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

"""What the address of a Redis says, and what a pipeline needs there; the client stays unloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from hapax.claims.kind import StoreRights, Transport

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from hapax.claims.kind import StoreOptions
    from hapax.core.claim_store import ClaimStore

PORT: Final = 6379
SENTINEL_PORT: Final = 26379
CLAIM_COMMANDS: Final = (
    "ping",
    "info",
    "time",
    "evalsha",
    "script|load",
    "get",
    "set",
    "hget",
    "hmget",
    "hset",
    "hlen",
    "hdel",
    "unlink",
    "pexpireat",
)
"""What the claim store sends to Redis or calls in its script. ``select`` comes on top where the
database is another one than 0."""
_UNVERIFIED: Final = (
    ("ssl_cert_reqs", frozenset({"none", "optional"})),
    ("ssl_check_hostname", frozenset({"false", "no", "0", "f", "n"})),
)


_PASSED: Final = frozenset(
    {
        *("client_name", "db", "password", "sentinel_password", "sentinel_username", "username"),
        *("socket_keepalive", "ssl_ca_certs", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile"),
        *("ssl_check_hostname", "ssl_ciphers", "ssl_keyfile", "ssl_password"),
    }
)
"""Options of the query that leave the store's own alone, which the query would override."""
_TIMEOUT: Final = "it is set by HAPAX_DEDUP__TIMEOUT"
_OWN: Final = "the claim store sets it itself"
_REFUSED: Final = {
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout", "timeout"), _TIMEOUT),
    **dict.fromkeys(("protocol", "decode_responses", "encoding", "encoding_errors"), _OWN),
    **dict.fromkeys(("retry", "retry_on_timeout", "retry_on_error", "max_connections"), _OWN),
    **dict.fromkeys(("health_check_interval", "single_connection_client", "host", "port"), _OWN),
}


def _check_options(query: str) -> None:
    """Raise ValueError for options that do not pass. An unknown one may be part of a password."""
    for name in parse_qs(query, keep_blank_values=True):
        if name in _REFUSED:
            raise ValueError(f"the option {name} of its query: {_REFUSED[name]}")
        if name not in _PASSED:
            raise ValueError(
                "an option of its query is not known; those that pass are"
                f" {', '.join(sorted(_PASSED))}"
            )


class RedisKind:
    """Redis at ``redis://``, ``rediss://`` (TLS) or ``unix://``."""

    name = "Redis"
    example = "redis://host:6379/0, rediss:// for TLS or unix:///path"
    tls_scheme = "rediss"
    wanted = "write host, port and number of the database: redis://host:6379/0"

    def check(self, parts: SplitResult) -> None:
        _check_options(parts.query)
        if parts.scheme == "unix":
            if not parts.path:
                raise ValueError("the path of the socket is missing: unix:///run/redis.sock")
            return
        database = self.database(parts)
        if not all(host for host, _ in self.places(parts)) or not _is_database(database):
            raise ValueError(self.wanted)

    def places(self, parts: SplitResult) -> tuple[tuple[str, int], ...]:
        """Return host and port of the server; an empty host where none is named."""
        return () if parts.scheme == "unix" else places_of(parts, PORT)[:1]

    def database(self, parts: SplitResult) -> str:
        return "" if parts.scheme == "unix" else parts.path.strip("/")

    def transport(self, url: str) -> Transport:
        parts = urlsplit(url)
        query = {name: values[-1].lower() for name, values in parse_qs(parts.query).items()}
        wrong = (
            f"{name}={query[name]}" for name, values in _UNVERIFIED if query.get(name) in values
        )
        places = tuple((host or "localhost", port) for host, port in self.places(parts))
        return Transport(places, parts.scheme == self.tls_scheme, tuple(wrong) if places else ())

    def rights(self, url: str, app: str) -> StoreRights:
        """Return the user's line for the ACL file; ``PASSWORD`` in it stands for the password."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        database = query.get("db") or self.database(parts)
        commands = [*CLAIM_COMMANDS, *(["select"] if database not in {"", "0"} else [])]
        user = query.get("username") or unquote(parts.username or "") or app
        allowed = " ".join(f"+{command}" for command in commands)
        line = f"user {user} reset on >PASSWORD ~hapax:{{{app}}}:claims* {allowed}"
        return StoreRights("Redis, a line of its ACL file", line)

    def open(self, url: str, options: StoreOptions) -> ClaimStore:
        # Imported only where it is used: 140 ms that a restart without claims need not wait for.
        from hapax.claims.redis import RedisClaims

        return RedisClaims(url, options)


class SentinelKind(RedisKind):
    """The primary that sentinels name: ``redis+sentinel://host:26379,other:26379/service/0``."""

    example = "redis+sentinel://host:26379,other:26379/mymaster"
    tls_scheme = "rediss+sentinel"
    wanted = (
        "write host and port of every sentinel, and the name of the service that they watch: "
        "redis+sentinel://host:26379,other:26379/mymaster, with /0 after it for a database"
    )

    def check(self, parts: SplitResult) -> None:
        super().check(parts)
        if not service_of(parts):
            raise ValueError(self.wanted)

    def places(self, parts: SplitResult) -> tuple[tuple[str, int], ...]:
        return places_of(parts, SENTINEL_PORT)

    def database(self, parts: SplitResult) -> str:
        return parts.path.strip("/").partition("/")[2]


class ClusterKind(RedisKind):
    """The node of a cluster that holds an app's slot: ``redis+cluster://host:6379,other:6379``."""

    example = "redis+cluster://host:6379,other:6379"
    tls_scheme = "rediss+cluster"
    wanted = (
        "write host and port of some nodes, and no database, for a cluster has only 0: "
        "redis+cluster://host:6379,other:6379"
    )

    def check(self, parts: SplitResult) -> None:
        super().check(parts)
        if self.database(parts) not in {"", "0"}:
            raise ValueError(self.wanted)

    def places(self, parts: SplitResult) -> tuple[tuple[str, int], ...]:
        return places_of(parts, PORT)


def places_of(parts: SplitResult, port: int) -> tuple[tuple[str, int], ...]:
    """Return host and port of each server of an address, which commas separate.

    An empty host where none is named. Raises ValueError for a port that is no number.
    """
    hosts = parts.netloc.rpartition("@")[2]
    found = (urlsplit(f"//{host}") for host in hosts.split(","))
    return tuple((each.hostname or "", each.port or port) for each in found)


def service_of(parts: SplitResult) -> str:
    return unquote(parts.path.strip("/").partition("/")[0])


def _is_database(text: str) -> bool:
    return not text or text.isdecimal()

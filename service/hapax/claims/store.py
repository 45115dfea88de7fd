"""Which claim store an address names: the scheme selects it.

A further store is one file with its ``ClaimStore`` and its kind, which has what ``RedisKind`` has,
and one row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from hapax.claims.kind import StoreRights, Transport
from hapax.claims.redis_url import (
    CLAIM_COMMANDS,
    PORT,
    SENTINEL_PORT,
    UNVERIFIED,
    check_options,
    places_of,
    service_of,
)

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from hapax.claims.kind import StoreOptions
    from hapax.core.ports import ClaimStore


class RedisKind:
    """Redis at ``redis://``, ``rediss://`` (TLS) or ``unix://``.

    name        what people call it
    example     how its addresses are written, for error messages
    tls_scheme  scheme of an address with TLS
    """

    name = "Redis"
    example = "redis://host:6379/0, rediss:// for TLS or unix:///path"
    tls_scheme = "rediss"
    wanted = "write host, port and number of the database: redis://host:6379/0"

    def check(self, parts: SplitResult) -> None:
        """Raise ValueError for an address that cannot work; the text repeats nothing of it."""
        check_options(parts.query)
        if parts.scheme == "unix":
            if not parts.path:
                raise ValueError("the path of the socket is missing: unix:///run/redis.sock")
            return
        database = self.database(parts)
        named = all(host for host, _ in self.places(parts))
        if not named or (database and not database.isdecimal()):
            raise ValueError(self.wanted)

    def places(self, parts: SplitResult) -> tuple[tuple[str, int], ...]:
        """Return host and port of the server; an empty host where none is named."""
        return () if parts.scheme == "unix" else places_of(parts, PORT)[:1]

    def database(self, parts: SplitResult) -> str:
        return "" if parts.scheme == "unix" else parts.path.strip("/")

    def transport(self, url: str) -> Transport:
        """Return the way that the address describes."""
        parts = urlsplit(url)
        query = {name: values[-1].lower() for name, values in parse_qs(parts.query).items()}
        wrong = (f"{name}={query[name]}" for name, bad in UNVERIFIED if query.get(name) in bad)
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
        """Connect to nothing yet; raise ConfigurationError for an address that cannot work."""
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


KINDS: Final[dict[str, RedisKind]] = {
    **dict.fromkeys(("redis", "rediss", "unix"), RedisKind()),
    **dict.fromkeys(("redis+sentinel", "rediss+sentinel"), SentinelKind()),
    **dict.fromkeys(("redis+cluster", "rediss+cluster"), ClusterKind()),
}
"""By the scheme of the address."""


def kind_of(url: str) -> RedisKind:
    """Return the kind that the address names; raise ValueError for a scheme that none has."""
    try:
        return KINDS[urlsplit(url).scheme]
    except (KeyError, ValueError):
        known = ", ".join(f"{scheme}://" for scheme in KINDS)
        examples = "; ".join(dict.fromkeys(kind.example for kind in KINDS.values()))
        raise ValueError(
            f"the address of a claim store begins with one of {known}: write {examples}; special "
            "characters in a password are percent-encoded"
        ) from None

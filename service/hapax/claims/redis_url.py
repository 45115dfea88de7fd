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
CLAIM_COMMANDS: Final = (
    "ping",
    "info",
    "time",
    "evalsha",
    "script|load",
    "get",
    "set",
    "del",
    "hget",
    "hmget",
    "hgetall",
    "hset",
    "hsetnx",
    "hdel",
    "hincrby",
    "pexpireat",
)
"""What the claim store sends to Redis or calls in its script. ``select`` comes on top where the
database is another one than 0."""
_UNVERIFIED: Final = (
    ("ssl_cert_reqs", frozenset({"none", "optional"})),
    ("ssl_check_hostname", frozenset({"false", "no", "0", "f", "n"})),
)


class RedisKind:
    """Redis behind ``redis://``, ``rediss://`` (TLS) or ``unix://``."""

    name = "Redis"
    example = "redis://host:6379/0, rediss:// for TLS or unix:///path"
    tls_scheme = "rediss"

    def check(self, parts: SplitResult) -> None:
        """Raise ValueError for an address without a host or with a database that is no number."""
        if parts.scheme == "unix":
            if not parts.path:
                raise ValueError("the path of the socket is missing: unix:///run/redis.sock")
            return
        database = parts.path.strip("/")
        if not parts.hostname or (database and not database.isdecimal()):
            raise ValueError("write host, port and number of the database: redis://host:6379/0")

    def transport(self, url: str) -> Transport:
        """Return the way that the address describes."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return Transport(None)
        query = {name: values[-1].lower() for name, values in parse_qs(parts.query).items()}
        wrong = (
            f"{name}={query[name]}" for name, values in _UNVERIFIED if query.get(name) in values
        )
        encrypted = parts.scheme == self.tls_scheme
        return Transport(parts.hostname or "localhost", parts.port or PORT, encrypted, tuple(wrong))

    def rights(self, url: str, app: str) -> StoreRights:
        """Return the user's line for the ACL file; ``PASSWORD`` in it stands for the password."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        database = query.get("db") or ("" if parts.scheme == "unix" else parts.path.strip("/"))
        commands = [*CLAIM_COMMANDS, *(["select"] if database not in {"", "0"} else [])]
        user = query.get("username") or unquote(parts.username or "") or app
        allowed = " ".join(f"+{command}" for command in commands)
        line = f"user {user} reset on >PASSWORD ~hapax:{{{app}}}:claims* ~hapax{{{app}}}* {allowed}"
        return StoreRights("Redis, a line of its ACL file", line)

    def open(self, url: str, options: StoreOptions) -> ClaimStore:
        """Return the store; connect to nothing yet."""
        # Imported only where it is used: 140 ms that a restart without claims need not wait for.
        from hapax.claims.redis import RedisClaims

        return RedisClaims(url, options)

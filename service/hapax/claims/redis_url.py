"""What the address of a Redis says, and what a pipeline needs there; without the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

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
UNVERIFIED: Final = (
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


def check_options(query: str) -> None:
    """Raise ValueError for options that do not pass. An unknown one may be part of a password."""
    for name in parse_qs(query, keep_blank_values=True):
        if name in _REFUSED:
            raise ValueError(f"the option {name} of its query: {_REFUSED[name]}")
        if name not in _PASSED:
            raise ValueError(
                "an option of its query is not known; those that pass are"
                f" {', '.join(sorted(_PASSED))}"
            )


def places_of(parts: SplitResult, port: int) -> tuple[tuple[str, int], ...]:
    """Return host and port of each server of an address, which commas separate.

    An empty host where none is named. Raises ValueError for a port that is no number.
    """
    hosts = parts.netloc.rpartition("@")[2]
    found = (urlsplit(f"//{host}") for host in hosts.split(","))
    return tuple((each.hostname or "", each.port or port) for each in found)


def service_of(parts: SplitResult) -> str:
    return unquote(parts.path.strip("/").partition("/")[0])

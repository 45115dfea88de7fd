"""Which claim store an address names: the scheme selects it.

A further store is one file with its ``StoreKind`` and ``ClaimStore``, and one row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hapax.claims.redis_url import ClusterKind, RedisKind, SentinelKind

if TYPE_CHECKING:
    from hapax.claims.kind import StoreKind

_REDIS: Final = RedisKind()
_SENTINEL: Final = SentinelKind()
_CLUSTER: Final = ClusterKind()
KINDS: Final[dict[str, StoreKind]] = {
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+sentinel": _SENTINEL,
    "rediss+sentinel": _SENTINEL,
    "redis+cluster": _CLUSTER,
    "rediss+cluster": _CLUSTER,
}
"""By the scheme of the address."""


def kind_of(url: str) -> StoreKind:
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

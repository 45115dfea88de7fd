"""Whether a Redis deletes keys where its memory is full, and with them claims, without a word.

Looked at while the service runs: both the policy and the memory can be changed at any time. Each
look is one INFO, which managed servers allow where they forbid CONFIG.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redis import Redis

KEEPS = "noeviction"


class Eviction:
    """What the server does where its memory is full, as the last look found it."""

    def __init__(self, client: Redis, on_look: Callable[[str, int], None] | None) -> None:
        """Ask nothing yet. ``on_look`` gets the problem, and keys evicted since the last look."""
        self._client = client
        self._on_look = on_look
        self._seen: tuple[object, int] = ("", 0)
        self.problem = ""

    def look(self, place: str) -> None:
        """Ask once; raises RedisError, and ClaimsUnavailableError where claims may be deleted."""
        try:
            info = self._client.info()
        except ResponseError:
            self._client.ping()  # whether it is INFO that is refused, or everything
            info = {}
        policy = str(info.get("maxmemory_policy", KEEPS))
        # A server that does not say is taken at its word that it answers, as at the start.
        self.problem = "" if policy == KEEPS else f"Redis at {place} {evicts(policy)}"
        evicted = self._evicted(info)
        if self._on_look is not None:
            self._on_look(self.problem, evicted)
        self.vouch()

    def vouch(self) -> None:
        """Raise ClaimsUnavailableError where the last look found that claims may be deleted."""
        if self.problem:
            raise ClaimsUnavailableError(self.problem)

    def _evicted(self, info: Mapping[str, Any]) -> int:
        """Return how many keys were evicted since the last look at the same server."""
        before, self._seen = self._seen, (info.get("run_id"), evicted_keys(info))
        return self._seen[1] - before[1] if before[0] == self._seen[0] else 0


def evicts(policy: str) -> str:
    """Return what is wrong with a policy, as the rest of a sentence."""
    return f"evicts keys (maxmemory-policy {policy}) and would delete claims silently: set {KEEPS}"


def evicted_keys(info: Mapping[str, Any]) -> int:
    """Return how many keys a server has evicted since it started, as far as it says."""
    text = str(info.get("evicted_keys", ""))
    return int(text) if text.isdecimal() else 0

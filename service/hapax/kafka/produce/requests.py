"""Transactional requests as the native part counts them."""

from __future__ import annotations

from typing import Any, cast


class NativeRequests:
    """Those of one client.

    fast    hapax_fast
    client  what it captured when the client was built
    """

    def __init__(self, fast: Any, client: object) -> None:
        self._fast = fast
        self._client = client

    def lost(self) -> list[str]:
        """Return those that were sent and will never be answered, each once."""
        return cast("list[str]", self._fast.requests_lost(self._client))

    def unanswered(self) -> list[str]:
        """Return those that were sent and have no answer yet."""
        return cast("list[str]", self._fast.requests_unanswered(self._client))

    def disconnects(self) -> int:
        """Return how many connections, or attempts at one, have ended since the client's start."""
        return int(self._fast.requests_disconnects(self._client))

"""A second claim store, as a stranger would add it: one file, and one row in the table."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from hapax.claims.kind import StoreRights, Transport
from hapax.claims.store import KINDS
from hapax.testing.claims import MemoryClaims

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

    from hapax.claims.kind import StoreOptions
    from hapax.core.ports import Clock


class MemoryKind:
    """``memory://<name>``: one store for each name and app, as long as this object lives."""

    name = "Memory"
    example = "memory://name"
    tls_scheme = ""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.opened: dict[tuple[str, str], MemoryClaims] = {}

    def check(self, parts: SplitResult) -> None:
        if not parts.hostname:
            raise ValueError("write memory://name")

    def transport(self, url: str) -> Transport:
        return Transport()

    def rights(self, url: str, app: str) -> StoreRights:
        return StoreRights("Memory, nothing to grant", f"{url} {app}")

    def open(self, url: str, options: StoreOptions) -> MemoryClaims:
        first = self.opened.setdefault(
            (url, options.app), MemoryClaims(clock=self._clock, ttl_ms=options.ttl_ms)
        )
        return first.seen_by(cluster_id=options.cluster_id)


@contextmanager
def registered(clock: Clock) -> Iterator[MemoryKind]:
    """Give ``memory://`` its row for a while."""
    kind = MemoryKind(clock)
    with patch.dict(KINDS, memory=kind):
        yield kind

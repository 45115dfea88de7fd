"""A claim that is asked in one format of the store, and again when it turns out to be the other.

Called by claims/redis.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.claims.redis_buckets import OtherFormatError
from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from hapax.claims.redis_claim import IdBatch
    from hapax.core.ports import Asked
    from hapax.core.records import Coordinates

    class Formats(Protocol):
        """The store, which knows the format it was found in last."""

        def begin(self, batch: IdBatch) -> Asked:
            """Send a batch in that format."""

        def changed_format(self, error: Exception) -> bool:
            """Whether this error came of the other format; the next batch is sent in that."""


class AskedInEither:
    """``ports.Asked``; the request of the first format is sent at once."""

    def __init__(self, store: Formats, batch: IdBatch) -> None:
        self._store = store
        self._batch = batch
        self._asked = store.begin(batch) if batch.digests else None

    def answer(self) -> Mapping[int, Coordinates]:
        """Wait for the answer; see ``ports.Asked``."""
        if self._asked is None:
            return {}
        try:
            return self._asked.answer()
        except (OtherFormatError, ClaimsUnavailableError) as error:
            if not self._store.changed_format(error):
                raise
        self._asked = self._store.begin(self._batch)
        return self._asked.answer()

    def drop(self) -> None:
        """Give the answer up."""
        if self._asked is not None:
            self._asked.drop()

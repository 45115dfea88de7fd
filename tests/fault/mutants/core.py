"""Mutants of what the service decides: progress, rewinds, fences, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.claims.redis import RedisClaims
from hapax.core.records import Coordinates
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.testing.claims import AskedBefore
from tests.kit import mutants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.ports import Asked
    from hapax.core.records import Record


def no_rewind() -> None:
    """Go on behind a batch that was aborted."""
    mutants.no_rewind(setattr)


def no_fence_on_doubt() -> None:
    """Keep the producer although a request of it may still be on its way."""
    begin = KafkaTransaction.begin

    def careless(self: KafkaTransaction) -> None:
        self.doubts = []
        begin(self)

    mutants.no_fence_on_doubt(setattr)
    KafkaTransaction.begin = careless  # type: ignore[method-assign]


def progress_one_too_far() -> None:
    """Commit the offset behind the next record."""
    mutants.progress_by(1, setattr)


def progress_one_too_short() -> None:
    """Commit the offset of the last record, not the one behind it."""
    mutants.progress_by(-1, setattr)


def claim_then_drop() -> None:
    """Claim as ``SET NX`` does: an id that is there already is a duplicate, whoever owns it."""

    def claim(
        self: RedisClaims,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        pipeline: Any = self._redis.pipeline(transaction=False)
        for each in ids:
            pipeline.set(self._store.base + b":" + each, 1, nx=True)
        known = [index for index, new in enumerate(pipeline.execute()) if not new]
        return {index: Coordinates("", -1, -1) for index in known}

    def ask(
        self: RedisClaims,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
    ) -> Asked:
        return AskedBefore(claim(self, ids, records, replays))

    RedisClaims.claim = claim  # type: ignore[method-assign]
    RedisClaims.ask = ask  # type: ignore[method-assign]

"""The claim store in memory, for tests and the simulator: the same port, no server, given time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import ClaimsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.records import Coordinates, Record


class MemoryClaims:
    """Claims in a dict. An id is remembered for exactly ``ttl_ms`` from its first sighting.

    outage      while it is set, every call raises ClaimsUnavailableError with this reason
    lost_answers  so many next calls claim and then raise, as when an answer is lost on its way
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ttl_ms: int,
        topic_ids: Mapping[str, str] | None = None,
        on_emptied: Callable[[], None] | None = None,
    ) -> None:
        """Begin empty; ``topic_ids`` and ``on_emptied`` as for RedisClaims."""
        self.outage: str | None = None
        self.lost_answers = 0
        self.topic_ids = topic_ids or {}
        self._clock = clock
        self._ttl_s = ttl_ms / 1000
        self._on_emptied = on_emptied
        self._emptied = False
        self._claims: dict[bytes, tuple[float, str | None, Coordinates]] = {}

    def claim(
        self,
        ids: Sequence[bytes],
        records: Sequence[Record],
        replays: Mapping[int, Coordinates],
        gone: Sequence[Coordinates] = (),
    ) -> Mapping[int, Coordinates]:
        """Claim all ids; see ``ports.Claims``."""
        if len(ids) != len(records):
            raise ValueError(f"{len(ids)} ids for {len(records)} records")
        if gone and len(gone) != len(ids):
            raise ValueError(f"{len(ids)} ids for {len(gone)} owners")
        self.ping()
        if not ids:
            return {}
        self._notice()
        foreign = {}
        now_s = self._clock.monotonic()
        for index, (each, record) in enumerate(zip(ids, records, strict=True)):
            owner = replays.get(index) or record.coordinates
            topic_id = self.topic_ids.get(owner.topic)
            found = self._claims.get(each)
            released = found is not None and bool(gone) and found[2] == gone[index]
            if found is None or found[0] <= now_s or released:
                self._claims[each] = (now_s + self._ttl_s, topic_id, owner)
            elif found[1:] != (topic_id, owner):
                foreign[index] = found[2]
        if self.lost_answers:
            self.lost_answers -= 1
            raise ClaimsUnavailableError("the answer was lost")
        return foreign

    def seen_by(self, topic_ids: Mapping[str, str]) -> MemoryClaims:
        """Return the same claims as another worker sees them, with its own faults."""
        other = MemoryClaims(
            clock=self._clock, ttl_ms=round(self._ttl_s * 1000), topic_ids=topic_ids
        )
        other._claims = self._claims
        return other

    def ping(self) -> None:
        """Return when the store answers; raise ClaimsUnavailableError when it does not."""
        if self.outage is not None:
            raise ClaimsUnavailableError(self.outage)

    def close(self) -> None:
        """Nothing is held."""

    def empty(self) -> None:
        """Forget everything, as FLUSHALL does; the next claim notices."""
        self._claims.clear()
        self._emptied = True

    def _notice(self) -> None:
        emptied, self._emptied = self._emptied, False
        if emptied and self._on_emptied is not None:
            self._on_emptied()

"""The claim store and the look-up of owners in memory: the same ports, no server, given time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core import errors
from hapax.core.ports import Claims, Owned, Preflight, StoreHealth
from hapax.core.record_path import Batch
from hapax.core.records import Coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.record_path import ClaimRequest
    from hapax.core.records import TopicPartition
    from hapax.testing.broker import MemoryBroker


class AskedBefore:
    """What a claim answered when it was asked: ``ports.Asked`` for stores without a wire."""

    def __init__(self, answer: Mapping[int, Coordinates] | Exception) -> None:
        self._answer = answer

    def answer(self) -> Mapping[int, Coordinates]:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def drop(self) -> None: ...


class _Kept(msgspec.Struct):
    """What all workers see: generations of claims, the newest first, and facts of the whole.

    ahead_s  by which the store's clock is ahead of the given one
    """

    generations: list[tuple[float, dict[bytes, Coordinates]]] = []
    meta: dict[str, str] = {}
    ahead_s: float = 0.0


class MemoryClaims(Claims):
    """Claims in dicts: an id is remembered for one to one and a half times ``ttl_ms``, as in Redis.

    Ids of half that time are a generation, which ends as a whole.

    outage      while it is set, every call raises ClaimsUnavailableError with this reason
    lost_answers  so many next calls claim and then raise, as when an answer is lost on its way
    """

    def __init__(
        self,
        *,
        clock: Clock,
        ttl_ms: int,
        on_emptied: Callable[[], None] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.outage: str | None = None
        self.lost_answers = 0
        self._clock = clock
        self._ttl_s = ttl_ms / 1000
        self._on_emptied = on_emptied
        self._emptied = False
        self.cluster_id = cluster_id
        self.fresh = False
        self._called = False
        self._kept = _Kept()

    def ask(self, wanted: ClaimRequest) -> AskedBefore:
        """Claim now, as a request that arrives at once; what it raises is its answer."""
        try:
            return AskedBefore(self._claimed(wanted))
        except (errors.ClaimsUnavailableError, errors.OtherClusterError) as error:
            return AskedBefore(error)

    def _claimed(self, wanted: ClaimRequest) -> Mapping[int, Coordinates]:
        wanted.require_pairs()
        self.ping()
        if not wanted.ids:
            return {}
        self._begin()
        emptied, self._emptied = self._emptied, False
        if emptied and self._on_emptied is not None:
            self._on_emptied()
        foreign = {}
        newest = self._newest()
        gone = wanted.gone
        for index, (each, at) in enumerate(zip(wanted.ids, wanted.owners(), strict=True)):
            owner = Coordinates(at.topic, at.partition, at.offset)
            found = self._found(each)
            if found is not None and gone and found == gone[index]:
                self._drop(each)
                found = None
            if found is None:
                newest[each] = owner
            elif found != owner:
                foreign[index] = found
        if self.lost_answers:
            self.lost_answers -= 1
            raise errors.ClaimsUnavailableError("the answer was lost")
        return foreign

    def seen_by(self, *, cluster_id: str | None = None) -> MemoryClaims:
        """Return the same claims as another worker sees them, with its own faults."""
        ttl_ms = round(self._ttl_s * 1000)
        other = MemoryClaims(clock=self._clock, ttl_ms=ttl_ms, cluster_id=cluster_id)
        other._kept = self._kept
        return other

    def check(self) -> Preflight:
        self.ping()
        try:
            self._begin()
        except errors.OtherClusterError as error:
            return Preflight([str(error)], [])
        return Preflight([], [])

    def owner(self, claim: bytes) -> Owned | None:
        self.ping()
        for start_s, claims in self._living():
            if claim in claims:
                life_s = start_s + 1.5 * self._ttl_s - self._now_s()
                return Owned(claims[claim], round(life_s * 1000))
        return None

    def forget(self, claim: bytes) -> bool:
        was = self.owner(claim) is not None
        self._drop(claim)
        return was

    def release(self, owned: Sequence[tuple[bytes, Coordinates]]) -> int:
        return sum(
            self.forget(claim)
            for claim, at in owned
            if (found := self.owner(claim)) is not None and found.owner == at
        )

    def cluster(self) -> str | None:
        self.ping()
        return self._kept.meta.get("cluster")

    def adopt(self) -> str | None:
        before = self.cluster()
        self._kept.meta["cluster"] = self.cluster_id or ""
        return before

    def health(self) -> StoreHealth:
        return StoreHealth(
            name="Memory",
            place="this process",
            problem=self.outage,
            claimed=bool(self._kept.generations),
            cluster_id=self._kept.meta.get("cluster"),
        )

    def ping(self) -> None:
        if self.outage is not None:
            raise errors.ClaimsUnavailableError(self.outage)

    def close(self) -> None: ...

    def empty(self) -> None:
        """Forget everything, as FLUSHALL does; the next claim notices."""
        self._kept.generations.clear()
        self._emptied = True

    def _now_s(self) -> float:
        return self._clock.monotonic() + self._kept.ahead_s

    def _living(self) -> list[tuple[float, dict[bytes, Coordinates]]]:
        """Return generations that are not over; those of the future begin now."""
        now_s = self._now_s()
        self._kept.generations[:] = [
            (min(start_s, now_s), claims)
            for start_s, claims in self._kept.generations
            if now_s - start_s < 1.5 * self._ttl_s
        ]
        return self._kept.generations

    def _newest(self) -> dict[bytes, Coordinates]:
        """Return the claims of the generation that takes new ones."""
        living = self._living()
        if not living or self._now_s() - living[0][0] >= self._ttl_s / 2:
            living.insert(0, (self._now_s(), {}))
        return living[0][1]

    def _found(self, claim: bytes) -> Coordinates | None:
        for _, claims in self._kept.generations:
            if claim in claims:
                return claims[claim]
        return None

    def _drop(self, claim: bytes) -> None:
        for _, claims in self._kept.generations:
            claims.pop(claim, None)

    def _begin(self) -> None:
        """Compare clusters; on the first call find out whether there were claims before."""
        here = self.cluster_id
        there = self._kept.meta.setdefault("cluster", here) if here else ""
        if here and there and here != there:
            raise errors.OtherClusterError(errors.other_cluster("the claims", there, here))
        if not self._called:
            self._called, self.fresh = True, not self._kept.generations


class MemoryOwners:
    """Asks the memory broker for the owners of claims.

    asked  calls so far, by name
    wait   spends the seconds of an answer that does not come
    """

    def __init__(self, broker: MemoryBroker, *, wait: Callable[[float], object]) -> None:
        self.asked, self.in_turns = {"committed": 0, "records": 0}, True
        self._broker = broker
        self._wait = wait

    def committed(
        self, partitions: Iterable[TopicPartition], within_s: float, *, stable: bool
    ) -> dict[TopicPartition, int | None]:
        self.asked["committed"] += 1
        wanted = list(partitions)
        if stable and any(self._broker.pending(where) for where in wanted):
            self._wait(within_s)
            raise errors.BatchAbortedError("owners: UNSTABLE_OFFSET_COMMIT")
        return {where: self._broker.committed.get(where) for where in wanted}

    def records(self, owners: Collection[Coordinates]) -> Batch:
        self.asked["records"] += 1
        logs, inputs = self._broker.logs, set(self._broker.inputs)
        places = [(owner, (owner.topic, owner.partition)) for owner in owners]
        found = [logs[where].at(owner.offset) for owner, where in places if where in inputs]
        return Batch([record for record in found if record is not None], {}, {})

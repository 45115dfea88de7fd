"""The rulebook's memory side: the memory broker with the groups of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from hapax.core.errors import ProducerDeadError
from hapax.testing.broker import MemoryBroker
from hapax.testing.source import MemorySource
from hapax.testing.transaction import MemoryTransaction
from tests.kit.committing import Committing
from tests.kit.doubles import Ticking
from tests.kit.rulebook import ACCEPTED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PARTITIONS
from tests.simulation.classic import ClassicGroup
from tests.simulation.clients import Timing
from tests.simulation.kip848 import ConsumerGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.ports import Source
    from hapax.core.records import Progress, Record
    from tests.kit.rulebook import Claim

GroupKind = Literal["classic", "static", "consumer"]
TIMEOUT_S = 8.0


class MemoryLate:
    """A request that its sender has sent again, as the simulator keeps it."""

    def __init__(self) -> None:
        self.deliver: Callable[[], None] | None = None

    def release(self) -> int:
        assert self.deliver is not None, "nothing was held"
        try:
            self.deliver()
        except ProducerDeadError as error:
            return INVALID_PRODUCER_EPOCH if error.fenced else INVALID_TXN_STATE
        return ACCEPTED


class MemoryUpstream:
    """An open transaction in the log."""

    def __init__(self, end: Callable[[bool], object]) -> None:
        self._end = end

    def end(self, *, commit: bool) -> None:
        self._end(commit)


class MemoryTopics:
    """An input and an output in this process; ``facts`` of the broker."""

    def __init__(self, **facts: float) -> None:
        self.topic, self.target = "in", "out"
        self._clock = Ticking()
        self.broker = MemoryBroker(
            {"in": PARTITIONS, "out": 1}, inputs=["in"], clock=self._clock, **facts
        )

    def write(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.broker.write(self.topic, value, key=b"key", partition=partition)

    def outputs(self) -> list[Record]:
        return self.broker.records(self.target)

    def committed(self) -> Progress:
        return dict(self.broker.committed)

    def close(self) -> None:
        """Nothing is held."""


class MemoryRulebook(MemoryTopics):
    """All in this process. ``timeout_s``: of a transaction."""

    def __init__(self, kind: GroupKind, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(timeout_s=timeout_s, scan_s=1.0)
        self._held: dict[str, MemoryLate] = {}
        self._clients = 0
        timing = Timing(session_s=60.0, poll_max_s=600.0)
        if kind == "consumer":
            self.broker.group = ConsumerGroup(self.broker.inputs, self._clock, timing)
        else:

            def instance_of(name: str) -> str | None:
                return name.rpartition(".")[0] if kind == "static" else None

            self.broker.group = ClassicGroup(self.broker.inputs, self._clock, timing, instance_of)

    def member(self, instance: str) -> MemorySource:
        self._clients += 1
        return MemorySource(self.broker, f"{instance}.{self._clients}", wait=self._clock.wait)

    def leave(self, source: Source) -> None:
        cast("MemorySource", source).close()

    def producer(self, source: Source | Claim, instance: str = "w") -> Committing:
        transaction = MemoryTransaction(
            self.broker, f"app-{instance}", clock=self._clock, wire=self._carry
        )
        return Committing(transaction, source)

    def upstream(self, *values: bytes) -> MemoryUpstream:
        self._clients += 1
        log, name = self.broker.logs[(self.topic, 0)], f"upstream-{self._clients}"
        for value in values:
            log.append(value, key=None, headers=(), timestamp_ms=0, producer=name)
        return MemoryUpstream(lambda commit: log.mark(name, commit=commit))

    def hold(self, api: str) -> MemoryLate:
        late = self._held[api] = MemoryLate()
        return late

    def ends(self) -> tuple[int, int]:
        self.broker.expire()
        log = self.broker.logs[(self.target, 0)]
        return log.stable_end, log.end

    def identity(self, metadata: bytes) -> tuple[str, int]:
        member_id, _, generation = metadata.decode().rpartition(":")
        return member_id, int(generation)

    def metadata(self, member_id: str, generation: int, like: bytes | None = None) -> bytes:
        del like  # there is nothing else in it
        return f"{member_id}:{generation}".encode()

    def wait(self, seconds: float) -> None:
        self._clock.wait(seconds)

    def _carry(self, api: str, deliver: Callable[[], None], again: Callable[[], None]) -> None:
        late = self._held.pop(api, None)
        if late is not None:
            late.deliver = deliver
            again()
        deliver()

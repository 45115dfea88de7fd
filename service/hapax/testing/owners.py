"""The OwnerLookup port in memory, for tests and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.errors import BatchAbortedError
from hapax.core.ports import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.testing.broker import MemoryBroker


class MemoryOwners:
    """Asks the memory broker; ``wait`` spends the seconds of an answer that does not come.

    asked  calls so far, by name
    """

    def __init__(self, broker: MemoryBroker, *, wait: Callable[[float], object]) -> None:
        self.asked = {"committed": 0, "records": 0}
        self._broker = broker
        self._wait = wait

    def committed(
        self, partitions: Iterable[TopicPartition], within_s: float, *, stable: bool
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets."""
        self.asked["committed"] += 1
        wanted = list(partitions)
        if stable and any(self._broker.pending(where) for where in wanted):
            self._wait(within_s)
            raise BatchAbortedError("owners: UNSTABLE_OFFSET_COMMIT")
        return {where: self._broker.committed.get(where) for where in wanted}

    def records(self, owners: Collection[Coordinates]) -> Batch:
        """Return those that a reader of the input topics finds."""
        self.asked["records"] += 1
        logs, inputs = self._broker.logs, set(self._broker.inputs)
        places = [(owner, (owner.topic, owner.partition)) for owner in owners]
        found = [logs[where].at(owner.offset) for owner, where in places if where in inputs]
        return Batch([record for record in found if record is not None], {}, {})

"""A Kafka broker in memory: logs, one consumer group, transactions, and requests that come late.

What the ports in testing/source.py talk to; tests and the simulator look inside. It keeps the rules
that the promise rests on: epochs fence producers, the group fences members, outputs and offsets
of a transaction appear together, readers stop at the last stable offset, and a request sent twice
is believed as long as the epoch is the same (KAFKA-17754). The contract suite holds each of these
rules against a real broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from hapax.testing.coordinator import MemoryCoordinator
from hapax.testing.group import InstantGroup, MemoryGroup
from hapax.testing.log import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hapax.core.ports import Clock, Message
    from hapax.core.records import Headers, Progress, Record, TopicPartition
    from hapax.testing.group import Shift

    Place = TopicPartition | str
    Name = tuple[str, int]


class MemoryBroker(MemoryCoordinator):
    """Topics by name and number of partitions; ``inputs`` are what the group subscribes to.

    group      who may commit offsets
    rejects    a message for which this is true makes the commit of its transaction fail
    bytes_max  a larger value is refused when it is sent
    clock, timeout_s, scan_s: see MemoryCoordinator
    """

    def __init__(
        self,
        topics: Mapping[str, int],
        *,
        inputs: Iterable[str],
        clock: Clock | None = None,
        timeout_s: float = 10.0,
        scan_s: float = 0.0,
    ) -> None:
        logs = {
            (topic, number): MemoryLog((topic, number))
            for topic, count in topics.items()
            for number in range(count)
        }
        topics_in = set(inputs)
        self.inputs = [where for where in logs if where[0] in topics_in]
        group: MemoryGroup = InstantGroup(self.inputs)
        super().__init__(logs, group, clock=clock, timeout_s=timeout_s, scan_s=scan_s)
        self.rejects: Callable[[Message], bool] = lambda _message: False
        self.bytes_max: int | None = None
        self._partitions = dict(topics)

    # -- logs -----------------------------------------------------------------------------

    def write(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int = 0,
    ) -> int:
        """Append a record from outside; return its offset."""
        return self.logs[(topic, partition)].append(
            value, key=key, headers=headers, timestamp_ms=timestamp_ms
        )

    def hide(self, where: TopicPartition, count: int = 1) -> None:
        """Append offsets that no reader sees: control records and aborted data."""
        self.logs[where].hide(count)

    def fetch(self, where: TopicPartition, offset: int, records_max: int) -> list[Record]:
        """Return visible records from ``offset`` on."""
        self.expire()
        return self.logs[where].fetch(offset, records_max)

    def records(self, topic: str) -> list[Record]:
        """Return all that a ``read_committed`` reader of a topic sees, by partition, in order."""
        self.expire()
        logs = [log for where, log in self.logs.items() if where[0] == topic]
        return [record for log in logs for record in log.fetch(0, log.end)]

    def ends(self) -> Progress:
        """Return the ends of all input partitions, as a ``read_committed`` reader sees them."""
        self.expire()
        return {where: self.logs[where].stable_end for where in self.inputs}

    # -- group ----------------------------------------------------------------------------

    def join(self, name: str) -> None:
        """Add a member that has only a name."""
        self.group.join(name)

    def expel(self, name: str) -> None:
        """Drop a member, as a missed session timeout does."""
        self.group.expel(name)

    def shift(self, name: str, owned: frozenset[TopicPartition]) -> Shift:
        """Return what a member gives up and what it gets: only what no other member still holds."""
        return self.group.shift(name, owned)

    def pending(self, where: TopicPartition) -> bool:
        """Whether an open transaction holds an offset here: then there is no stable answer."""
        self.expire()
        return any(where in producer.offsets for producer in self._producers.values())

    def by_partition(self, messages: Iterable[Message]) -> dict[TopicPartition, list[Message]]:
        """Return messages by the partition that the partitioner gives them."""
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            partition = message.partition
            if partition < 0:
                partition = crc32(message.key or b"") % self._partitions[message.topic]
            found.setdefault((message.topic, partition), []).append(message)
        return found

"""Sets of records that the client cannot decode: damaged, of an unknown codec, too large unpacked.

Measured with librdkafka 2.16: the client hands out one error event with the offset of the set's
first record, fetches the set again, and so on without end; after a checksum that does not match it
may also continue with what comes after the set, which would be a silent loss. So the partition is
paused at the first event, records beyond the set are dropped, and it is tried again now and then:
another leader may have the set whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from hapax.core.ports import Stuck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where

UNDECODABLE = {
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError._UNDERFLOW,
    KafkaError._CRIT_SYS_RESOURCE,
    KafkaError.INVALID_MSG,
}
RETRY_S = 5.0


class StuckPartitions:
    """What is known of partitions that are held up. Any thread may read ``known``."""

    def __init__(self, clock: Clock) -> None:
        self.known: dict[Where, Stuck] = {}
        self._clock = clock
        self._due_s: dict[Where, float] = {}

    def meet(self, where: Where, offset: int, reason: str, retry_s: float = RETRY_S) -> None:
        """Take note of a set. Later reports of the same partition come from beyond it."""
        if where in self._due_s:
            return
        self.known = self.known | {where: Stuck(offset, reason)}
        self._due_s[where] = self._clock.monotonic() + retry_s

    def holds(self, where: Where) -> bool:
        """Whether records of a partition lie beyond such a set; false while it is tried again."""
        return where in self._due_s

    def retry(self, again: Callable[[Where, int], None]) -> None:
        """Try again those whose time has come: ``again`` gets partition and offset."""
        now_s = self._clock.monotonic()
        for where in [where for where, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[where]
            again(where, self.known[where].offset)

    def forget(self, partitions: Iterable[Where]) -> None:
        left = set(partitions)
        self.known = {where: each for where, each in self.known.items() if where not in left}
        for where in left:
            self._due_s.pop(where, None)

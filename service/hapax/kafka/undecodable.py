"""Sets of records that the client cannot decode: damaged, of an unknown codec, too large unpacked.

Measured with librdkafka 2.16: the client hands out one error event with the offset of the set's
first record, fetches the set again, and so on without end; after a checksum that does not match it
may also continue with what comes after the set, which would be a silent loss. So the partition is
paused at the first event, records beyond the set are dropped, and it is tried again now and then:
another leader may have the set whole.

A response larger than ``receive.message.max.bytes`` the client never takes: a broker sends the
first set of a fetch whole, however large (KIP-74). librdkafka 2.16 then closes the connection,
connects again and fetches the same, once a second, without an event: nothing but a line of its log
says so, and that names no partition. Other partitions of the broker get hardly anything meanwhile.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.ports import Clock, Stuck
from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
WITHIN_S = 2.0
_LINE = re.compile(r"Invalid response size (\d+) \(0\.\.(\d+)\)")


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


class TooLarge:
    """A client's ``logger``. ``reason``: of the last such response; empty: none was heard of."""

    def __init__(self) -> None:
        self.reason = ""

    def log(self, _level: int, _form: str, *parts: object) -> None:
        if parts and (found := _LINE.search(str(parts[-1]))) is not None:
            self.reason = (
                f"its response has {found[1]} bytes, more than receive.message.max.bytes="
                f"{found[2]} allows: set a larger one in HAPAX_KAFKA__PROPERTIES and restart"
            )


def too_large(properties: Mapping[str, Any], where: Where, offset: int) -> str:
    """Return why; empty: it is not, or nothing came in 2 s. ``properties``: without a group."""
    heard = TooLarge()
    alone = {**properties, "enable.partition.eof": True, "queued.min.messages": 1, "log_level": 3}
    until_s = time.monotonic() + WITHIN_S
    with closing(build(Consumer, alone, heard)) as consumer:
        consumer.assign([TopicPartition(*where, offset)])
        while not heard.reason and time.monotonic() < until_s:
            message = consumer.poll(0.05)
            error = None if message is None else message.error()
            if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
                break
    return heard.reason

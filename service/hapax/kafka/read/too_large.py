"""Responses larger than ``receive.message.max.bytes``, which the client never takes.

A broker sends the first set of a fetch whole, however large (KIP-74). librdkafka 2.16 then closes
the connection, connects again and fetches the same, once a second, without an event: nothing but a
line of its log says so, and that names no partition. Other partitions of the broker get hardly
anything meanwhile.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.kafka.properties import build

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import TopicPartition as Where

WITHIN_S = 2.0
_LINE = re.compile(r"Invalid response size (\d+) \(0\.\.(\d+)\)")


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

"""The control: a transactional loop as one would write it by hand, with nothing around it.

    python -m bench.baseline --help

It does the same work on the wire as the worker: key, value and headers go through, the same two
headers are added, offsets travel in the transaction. With ``--headers 0`` only key and value go
through, with ``--at-least-once`` there are no transactions. It has none of the rest: no claims, no
dead letters, no recovery (an error ends it), no metrics, no logs. It even knows where the id
stands among the headers. So it is a lower bound for Python, not a rival.
"""

import argparse
import signal
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS_MAX = 50_000
CALL_TIMEOUT_S = 10.0


class Loop:
    """Consume, produce, commit; one transaction for each batch."""

    def __init__(
        self, servers: str, group: str, source: str, target: str, *, headers: bool, weaker: bool
    ) -> None:
        self.copy = self.copy_with_headers if headers else self.copy_bare
        self.weaker = weaker
        # What both sides set, so that settings are not what is compared (adapters/kafka_clients).
        common = {"bootstrap.servers": servers, "socket.nagle.disable": True}
        self.consumer = Consumer(
            common
            | {
                "group.id": group,
                "group.instance.id": group,
                "session.timeout.ms": 15_000,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "fetch.queue.backoff.ms": 10,
                "fetch.wait.max.ms": 100,
            }
        )
        self.producer = Producer(
            common
            | ({"enable.idempotence": True} if weaker else {"transactional.id": group})
            | {
                "transaction.timeout.ms": 10_000,
                "retry.backoff.ms": 5,
                "linger.ms": 1,
                "batch.size": 1 << 20,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1 << 20,
                "partitioner": "murmur2_random",
            }
        )
        self.source = source
        self.target = target
        self.next_offsets: dict[int, int] = {}
        self.stopping = False

    def ends(self) -> dict[int, int]:
        metadata = self.consumer.list_topics(self.source, timeout=CALL_TIMEOUT_S)
        return {
            number: self.consumer.get_watermark_offsets(TopicPartition(self.source, number))[1]
            for number in metadata.topics[self.source].partitions
        }

    def run(self, *, at_end: bool, wait_ms: int) -> None:
        """``wait_ms``: how long a batch gathers; 0 takes what is there behind the first record."""
        if not self.weaker:
            self.producer.init_transactions(CALL_TIMEOUT_S)
        self.consumer.subscribe([self.source])
        ends = self.ends() if at_end else {}
        while not self.stopping:
            if at_end and all(self.next_offsets.get(n, 0) >= end for n, end in ends.items()):
                break
            if wait_ms:
                messages = self.consumer.consume(RECORDS_MAX, wait_ms / 1000)
            else:
                first = self.consumer.poll(0.1)
                if first is None:
                    continue
                messages = [first, *self.consumer.consume(RECORDS_MAX - 1, 0)]
            if messages:
                self.transact(messages)
        self.consumer.close()

    def transact(self, messages: list[Any]) -> None:
        """One batch: outputs, then offsets, in one transaction or one after the other."""
        if self.weaker:
            self.copy(messages)
            if self.producer.flush(CALL_TIMEOUT_S):
                raise TimeoutError("outputs could not be written")
            self.consumer.commit(offsets=self.offsets(), asynchronous=False)
            return
        self.producer.begin_transaction()
        self.copy(messages)
        self.producer.send_offsets_to_transaction(
            self.offsets(), self.consumer.consumer_group_metadata(), CALL_TIMEOUT_S
        )
        self.producer.commit_transaction(CALL_TIMEOUT_S)

    def offsets(self) -> list[TopicPartition]:
        return [TopicPartition(self.source, *where) for where in self.next_offsets.items()]

    def copy_bare(self, messages: list[Any]) -> None:
        """Key and value alone go through: the least that such a loop can do."""
        produce, target, next_offsets = self.producer.produce, self.target, self.next_offsets
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            produce(target, message.value(), message.key())
            next_offsets[message.partition()] = message.offset() + 1

    def copy_with_headers(self, messages: list[Any]) -> None:
        produce, target, next_offsets = self.producer.produce, self.target, self.next_offsets
        for message in messages:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset()
            headers = message.headers()
            source = f"{self.source}/{partition}/{offset}".encode()
            headers += [("hapax-id", headers[0][1]), ("hapax-source", source)]
            # By position: keywords make this call a third slower.
            produce(target, message.value(), message.key(), -1, None, None, 0, headers)
            next_offsets[partition] = offset + 1

    def stop(self, *_: object) -> None:
        self.stopping = True


def main() -> None:
    parser = argparse.ArgumentParser(description="A plain transactional loop.")
    for name in ("servers", "group", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--at-end", action="store_true")
    parser.add_argument("--wait-ms", type=int, default=100)
    parser.add_argument("--headers", type=int, default=1)
    parser.add_argument("--at-least-once", action="store_true")
    asked = parser.parse_args()
    names = (asked.servers, asked.group, asked.source, asked.target)
    loop = Loop(*names, headers=bool(asked.headers), weaker=asked.at_least_once)
    signal.signal(signal.SIGTERM, loop.stop)
    loop.run(at_end=asked.at_end, wait_ms=asked.wait_ms)


if __name__ == "__main__":
    main()

"""aiokafka with transactions written by hand: records go through, two headers are added.

Runs in its own environment: see bench/peers.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDS_MAX = 50_000


async def copy(
    consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, asked: argparse.Namespace
) -> None:
    """One transaction for each batch, until all records are done or SIGTERM comes."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    done = 0
    while not stopping.is_set() and (not asked.records or done < asked.records):
        batches: dict[TopicPartition, Sequence[Any]] = await consumer.getmany(
            timeout_ms=asked.interval_ms, max_records=RECORDS_MAX
        )
        if not batches:
            continue
        async with producer.transaction():
            for batch in batches.values():
                for record in batch:
                    headers = list(record.headers)
                    if asked.headers:
                        source = f"{record.topic}/{record.partition}/{record.offset}".encode()
                        headers += [("hapax-id", headers[0][1]), ("hapax-source", source)]
                    await producer.send(asked.target, record.value, key=record.key, headers=headers)
            offsets = {where: batch[-1].offset + 1 for where, batch in batches.items()}
            await producer.send_offsets_to_transaction(offsets, asked.group)
        done += sum(len(batch) for batch in batches.values())


async def run(asked: argparse.Namespace) -> None:
    """Connect, copy, leave."""
    consumer = AIOKafkaConsumer(
        asked.source,
        bootstrap_servers=asked.servers,
        group_id=asked.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=100,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=asked.servers,
        transactional_id=asked.group,
        linger_ms=1,
        max_batch_size=1 << 20,
    )
    await producer.start()
    await consumer.start()
    try:
        await copy(consumer, producer, asked)
    finally:
        await consumer.stop()
        await producer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "group", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("records", "headers", "interval-ms"):
        parser.add_argument(f"--{name}", type=int, required=True)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()

"""aiokafka's consume-process-produce loop as its manual shows it. In an environment of its own.

The offsets go into the transaction with the name of the group only: the library has no way to send
the generation of the member with them.
"""

import asyncio
import signal
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.fault.controls.contract import Contract, effects

RECORDS_MAX = 500
POLL_MS = 100


def run(ours: Contract) -> None:
    asyncio.run(_run(ours))


async def _run(ours: Contract) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        ours.source,
        bootstrap_servers=ours.bootstrap,
        client_id=ours.name,
        group_id=ours.app,
        session_timeout_ms=ours.session_ms,
        heartbeat_interval_ms=max(100, ours.session_ms // 5),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=ours.bootstrap,
        client_id=ours.name,
        transactional_id=ours.name,
        transaction_timeout_ms=10_000,
    )
    async with producer, consumer:
        while not stopping.is_set():
            taken = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
            if taken:
                await _process(ours, producer, taken)


async def _process(ours: Contract, producer: Any, taken: dict[Any, list[Any]]) -> None:
    async with producer.transaction():
        progress = {}
        for place, records in taken.items():
            for record in records:
                where = (record.topic, record.partition, record.offset)
                for effect in effects(ours, where, record.value, record.headers):
                    await producer.send(
                        effect.topic,
                        effect.value,
                        key=record.key,
                        headers=[(name, value or b"") for name, value in effect.headers],
                    )
            progress[place] = records[-1].offset + 1
        await producer.send_offsets_to_transaction(progress, ours.app)

"""What the spool of hapax.publish costs, and what it is worth next to a plain producer.

accept    records of 200 B accepted per second, each acknowledged after its sync
latency   what acceptance adds at 1,000 records/s, one call each
drain     a full spool to Kafka, next to a plain transactional producer, in pairs
"""

import statistics
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka import Producer

from hapax.core.records import Message
from hapax.publish import Publisher
from hapax.publish.publisher import publish_settings
from hapax.sandbox import Sandbox
from hapax.settings import Settings

VALUE, KEY = b"v" * 200, b"customer-7"
CHUNK = 500


def settings_for(servers: str, app: str) -> Settings:
    return publish_settings({"HAPAX_APP": app, "HAPAX_KAFKA__BOOTSTRAP_SERVERS": servers})


def chunk(topic: str) -> list[Message]:
    return [Message(topic, VALUE, KEY, -1, 0, []) for _ in range(CHUNK)]


def accept(publisher: Publisher, topic: str, records: int, threads: int) -> float:
    """Return records accepted per second by so many threads."""
    messages = chunk(topic)

    def work() -> None:
        for _ in range(records // CHUNK // threads):
            publisher.publish_many(messages)

    began_s = time.perf_counter()
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return records / (time.perf_counter() - began_s)


def latency(publisher: Publisher, topic: str, seconds: float) -> tuple[float, float]:
    """Return median and 99th percentile of a call, in ms, at 1,000 calls a second."""
    taken, due_s = [], time.perf_counter()
    for _ in range(int(seconds * 1000)):
        due_s += 0.001
        time.sleep(max(0.0, due_s - time.perf_counter()))
        began_s = time.perf_counter()
        publisher.publish(topic, VALUE, key=KEY)
        taken.append((time.perf_counter() - began_s) * 1000)
    cuts = statistics.quantiles(taken, n=100)
    return cuts[49], cuts[98]


def plain(servers: str, topic: str, records: int) -> float:
    """Return records per second of a transactional producer with the drainer's properties."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"plain-{uuid.uuid4().hex}",
            "linger.ms": 1,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(30)
    began_s = time.perf_counter()
    for first in range(0, records, 10_000):
        producer.begin_transaction()
        for number in range(first, min(first + 10_000, records)):
            producer.produce(topic, VALUE, KEY, headers=[("message-id", b"%d" % number)])
        producer.commit_transaction(30)
    return records / (time.perf_counter() - began_s)


def main(records: int) -> None:
    with Sandbox() as sandbox, tempfile.TemporaryDirectory() as folder:
        servers = sandbox.bootstrap_servers
        for name in ("warm", "bench"):
            sandbox.create_topic(name, 3)
        away = settings_for("127.0.0.1:1", "away")
        publisher = Publisher(Path(folder) / "away", away, disk_max_bytes=4 << 30)
        publisher.publish("bench", b"first")  # asks brokers about the topic, in vain
        for threads in (1, 4):
            rate = accept(publisher, "bench", records, threads)
            print(f"accept, {threads} threads, {CHUNK} per call: {rate:,.0f} records/s")
        middle, high = latency(publisher, "bench", 10)
        print(f"latency at 1,000/s without brokers: p50 {middle:.2f} ms, p99 {high:.2f} ms")
        publisher.close(0)
        live = settings_for(servers, "live")
        with Publisher(Path(folder) / "live", live) as publisher:
            publisher.publish("warm", b"first")
            publisher.flush(30)
            middle, high = latency(publisher, "bench", 10)
            print(f"latency at 1,000/s while it drains: p50 {middle:.2f} ms, p99 {high:.2f} ms")
        ratios = []
        for turn in range(5):
            app = f"drain-{turn}"
            path = Path(folder) / app
            publisher = Publisher(path, settings_for("127.0.0.1:1", app))
            accept(publisher, "bench", records, 1)
            publisher.close(0)
            before = plain(servers, "bench", records)
            publisher = Publisher(path, settings_for(servers, app))
            began_s = time.perf_counter()
            publisher.flush(300)
            rate = records / (time.perf_counter() - began_s)
            publisher.close()
            ratios.append(rate / before)
            print(f"drain {rate:,.0f} records/s, plain {before:,.0f}: {ratios[-1]:.2f}")
        print(f"drain / plain, median of {len(ratios)} pairs: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)

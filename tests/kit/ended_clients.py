"""Ends producers with requests in flight while another thread reads; run by a test, sanitized.

``python ended_clients.py FOLDER``: where a package hapax_fast was built. The brokers are
librdkafka's own mock, which answers late.
"""

import gc
import sys
import threading
from typing import Any

from confluent_kafka import Producer

ROUNDS = 4


def one(fast: Any, number: int) -> int:
    """Return how many calls came after the client's last one."""
    properties = {
        "bootstrap.servers": "mock",
        "test.mock.num.brokers": 1,
        "test.mock.broker.rtt": 100,
        "transactional.id": f"ended-{number}",
        "plugin.library.paths": fast.PLUGIN,
        "linger.ms": 0,
        "log_level": 0,
    }
    producer = Producer(properties)
    client = fast.captured()
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(number):
        producer.produce("topic", b"x" * 100)
    producer.poll(0.1 * (number % 4))
    ended = threading.Event()
    readers = [threading.Thread(target=read, args=(fast, client, ended)) for _ in range(2)]
    for reader in readers:
        reader.start()
    before = fast.requests_disconnects(client)
    producer.purge()
    del producer
    gc.collect()
    ended.set()
    for reader in readers:
        reader.join()
    fast.requests_lost(client)
    assert fast.requests_unanswered(client) == []
    return int(fast.requests_disconnects(client)) - int(before)


def read(fast: Any, client: object, ended: threading.Event) -> None:
    while not ended.is_set():
        fast.requests_lost(client)
        fast.requests_unanswered(client)
        fast.requests_disconnects(client)


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import hapax_fast

    assert hapax_fast.PLUGIN.startswith(sys.argv[1])
    assert all(one(hapax_fast, number) > 0 for number in range(ROUNDS))
    sys.stdout.write("clean\n")

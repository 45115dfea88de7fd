"""How many round trips a transaction waits for: a broker that answers late, and a stop watch.

    python -m bench.round_trips

The broker is the mock inside of the client. Where each of its answers takes 40 ms, what the machine
does otherwise does not matter: the time of a transaction over 40 ms is the number of answers that
are waited for one after another. It says nothing about what a broker does meanwhile. Answers of
2 ms and at once show what timers of the client add.
"""

import time
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

RTTS_MS = (40, 2, 0)
ROUNDS = {40: 15, 2: 100, 0: 200}


class Form(NamedTuple):
    """A way to send a transaction. ``changed``: what differs from the service's settings."""

    name: str
    changed: dict[str, Any]
    partitions: int = 1
    flush: bool = False


FORMS = (
    Form("as the service sends", {}),
    Form("`linger.ms=0`", {"linger.ms": 0}),
    Form("`linger.ms=5`", {"linger.ms": 5}),
    Form("into 4 partitions", {}, partitions=4),
    Form("with a `flush()` before the offsets", {}, flush=True),
)


def transaction(producer: Producer, member: object, form: Form) -> float:
    began_s = time.perf_counter()
    producer.begin_transaction()
    for number in range(form.partitions):
        producer.produce("out", b"value", partition=number)
    if form.flush:
        producer.flush()
    producer.send_offsets_to_transaction([TopicPartition("in", 0, 1)], member)
    producer.commit_transaction()
    return 1000 * (time.perf_counter() - began_s)


def least_ms(form: Form, rtt_ms: int) -> float:
    """Return the milliseconds of the shortest of some transactions; the machine adds to others."""
    broker = {"test.mock.num.brokers": 1, "test.mock.broker.rtt": rtt_ms, "log_level": 0}
    settings = {"linger.ms": 1, "retry.backoff.ms": 2, **form.changed}
    producer = Producer({**broker, **settings, "transactional.id": "bench"})
    with closing(Consumer({**broker, "group.id": "bench"})) as consumer:
        for topic in ("in", "out"):
            producer.list_topics(topic, timeout=10)  # the mock makes what is asked for
        producer.init_transactions()
        member = consumer.consumer_group_metadata()
        transaction(producer, member, form)  # the first one looks things up
        return min(transaction(producer, member, form) for _ in range(ROUNDS[rtt_ms]))


def main() -> None:
    late, soon, at_once = RTTS_MS
    print(f"| |round trips|ms, answers of {soon} ms|ms, answers at once|\n|---|--:|--:|--:|")
    for form in FORMS:
        cells = [f"{least_ms(form, late) / late:.2f}", f"{least_ms(form, soon):.1f}"]
        print(f"|{form.name}|{'|'.join(cells)}|{least_ms(form, at_once):.1f}|", flush=True)


if __name__ == "__main__":
    main()

"""Ways in which a process ends while native records are held.

``python -m tests.kit.native_endings WAY`` plays one.

Each prints ``held`` first. Whatever is open in a client makes librdkafka wait for ever when the
client is closed, so each of these hung until all of it was released when the client ends.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.interrupt import Interrupt
from hapax.core.records import Output
from tests.kit.native import Raw, Stage


class Held:
    """A consumer with a route, a native batch in hand, one in the queue, and ids of the former.

    ``stage`` is not closed: what is open in it is open when the process ends.
    """

    def __init__(self) -> None:
        self.stage = stage = Stage()
        stage.play([Raw(b"k", b"v")] * 5, [])
        self.consumer = Consumer(stage.path.plug_in(stage.properties()))
        self.intake = stage.path.module.Intake(stage.path.captured(), [("key", "", b"key\0")])
        self.intake.route(stage.topic, 0)
        self.consumer.assign([TopicPartition(stage.topic, 0, 0)])
        self.batch: Any = None
        while self.batch is None:
            self.batch = self.intake.take(1, 500)
        self.kept = [self.batch.ids, self.batch.claims, self.batch[0]]
        # A producer with outputs that were not delivered, and a batch that met its full queue.
        properties = {"queue.buffering.max.messages": 1, "linger.ms": 60_000}
        self.producer, client = stage.native_producer(**properties)
        self.second: Any = None
        while self.second is None:
            self.second = self.intake.take(2, 500)
        sent = stage.path.module.send(client, "out", self.second, [Output(b"x"), Output(b"y")], 0)
        assert sent == (1, KafkaError._QUEUE_FULL)
        print("held", flush=True)  # noqa: T201 - the test waits for it


def close(held: Held) -> None:
    before = held.stage.path.module.held()
    held.consumer.close()
    assert held.stage.path.module.held() == before - 2
    try:
        held.batch[0]
    except RuntimeError:
        return
    raise AssertionError("records of a client that has ended can be read")


def destructor(held: Held) -> None:
    """Drop the consumer without closing it."""
    before = held.stage.path.module.held()
    del held.consumer
    gc.collect()
    assert held.stage.path.module.held() == before - 2


def renew(held: Held) -> None:
    """Put another client in its place, as for a member that was fenced."""
    held.intake.close()
    held.consumer = Consumer(held.stage.path.plug_in(held.stage.properties()))
    held.stage.path.captured()
    gc.collect()


def producer(held: Held) -> None:
    held.producer.purge()
    del held.producer
    gc.collect()


def falls_off(_held: Held) -> None:
    """Come to the end of the program."""


def in_a_thread(held: Held) -> None:
    """End while another thread waits for records."""
    threading.Thread(target=lambda: held.intake.take(10, 1_000_000), daemon=True).start()


def raises(_held: Held) -> None:
    raise ValueError("the end")


def in_mid_batch(held: Held) -> None:
    """End with an error of business code, which keeps the frames that hold the records."""

    def business(_record: object) -> None:
        raise KeyboardInterrupt

    def judge(_record: object, _answer: object, error: BaseException) -> None:
        raise error

    held.batch.apply(business, judge, Interrupt(), {})


WAYS: dict[str, tuple[Callable[[Held], object], int]] = {
    "close": (close, 0),
    "destructor": (destructor, 0),
    "renew": (renew, 0),
    "producer": (producer, 0),
    "falls off": (falls_off, 0),
    "in a thread": (in_a_thread, 0),
    "raises": (raises, 1),
    "in mid-batch": (in_mid_batch, -signal.SIGINT),
    "sys.exit": (lambda _held: sys.exit(5), 5),
    "os._exit": (lambda _held: os._exit(6), 6),
    "SIGTERM": (lambda _held: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
}
"""What is done, and the exit code of the process."""

if __name__ == "__main__":
    KEPT = Held()
    """Of the module, so that it is there until the interpreter ends."""
    WAYS[sys.argv[1]][0](KEPT)

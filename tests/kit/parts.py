"""The service's own parts on a real broker, driven step by step in the test's thread."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Self, TypeVar

from hapax.core.record_path import Batch, Outputs
from hapax.core.records import Message, Record
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.native import record_path
from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import consumer_properties, producer_properties
from hapax.settings import Settings, load_settings
from tests.kit.committing import Committing
from tests.kit.managed_process import required


class Quiet:
    """A logger for clients whose lines nobody reads."""

    def log(self, *_line: object) -> None: ...


Source = TypeVar("Source", bound=KafkaSource)


def settings_of(bootstrap: str, source: str, target: str, app: str, **more: str) -> Settings:
    """Return what a service called ``test`` would run with; ``more`` with ``HAPAX_``.

    Records take the native path where it is installed, as there.
    """
    return load_settings(
        required(
            app=app,
            servers=bootstrap,
            source=source,
            target=target,
            INSTANCE="test",
            TRANSACTION__TIMEOUT="8s",
        )
        | more
    )


def source_of(settings: Settings, kind: type[Source], start: str = "") -> Source:
    """Return a client of the group that has not subscribed yet."""
    return kind(
        consumer_properties(settings),
        settings.input.topics,
        start=start or settings.input.start,
        logger=Quiet(),
        clock=time,
        watch=lambda _call: nullcontext(),
        native=record_path(settings).path,
    )


def transaction_of(
    settings: Settings,
    met: KafkaSource | None = None,
    forward: Callable[..., None] = lambda *_line: None,
) -> KafkaTransaction:
    """Return a producer that is not open yet; it must find the cluster that the source has met."""
    return KafkaTransaction(
        ProducerConfig(
            properties=producer_properties(settings),
            deadline_s=8.0,
            native=record_path(settings).path,
        ),
        clock=time,
        forward=forward,
        watch=lambda _call: nullcontext(),
        **({} if met is None else {"meet_cluster": met.meet_cluster}),
    )


class Parts:
    """One member of the group and one producer, as ``hapax run`` would make them.

    ``HAPAX_FAST="on"``: the producer's requests are counted by the native part.
    """

    def __init__(self, bootstrap: str, source: str, target: str, app: str, **more: str) -> None:
        self.settings = settings_of(bootstrap, source, target, app, **{"HAPAX_FAST": "off"} | more)
        self.target = target
        self.lines: list[str] = []
        self.source = source_of(self.settings, KafkaSource)
        transaction = transaction_of(
            self.settings,
            self.source,
            lambda _client, _level, facility, text: self.lines.append(f"{facility}: {text}"),
        )
        self.transaction = Committing(transaction, self.source)

    def __enter__(self) -> Self:
        self.transaction.open()
        self.source.subscribe()
        return self

    def __exit__(self, *_error: object) -> None:
        self.transaction.close()
        self.source.close()

    def take(self, count: int) -> Batch:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            batch = self.source.take(count, 0.1)
            if batch.records:
                assert len(batch.records) == count, "the first intake was smaller than the input"
                return batch
        raise AssertionError("no records within 60 s")

    def begin(self, batch: Batch) -> None:
        self.transaction.begin()
        self.transaction.send(Outputs([self.copy(record) for record in batch.records]))

    def process(self, batch: Batch) -> None:
        self.begin(batch)
        self.transaction.send_offsets(batch.next)
        self.transaction.commit()
        self.source.mark_processed(batch.next)

    def copy(self, record: Record) -> Message:
        return Message(self.target, record.value, record.key, -1, record.timestamp_ms, [])

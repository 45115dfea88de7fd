"""Pipelines whose every record a test writes itself, and the audit of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from hapax.kafka.read.offset_client import Marks
from hapax.operations.audit.run import AuditOptions, AuditTopics
from hapax.operations.audit.spark_run import run
from hapax.settings import load_settings
from tests.kit.topics import Given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hapax.core.records import Headers
    from hapax.operations.audit.result import Audit


class Pipeline(NamedTuple):
    """Topics of one pipeline whose every record the test writes itself."""

    bootstrap: str
    environment: dict[str, str]
    app: str

    @property
    def source(self) -> str:
        return f"{self.app}-in"

    @property
    def target(self) -> str:
        return f"{self.app}-out"

    @property
    def dead(self) -> str:
        return f"{self.app}-dead"

    def commit(self, *offsets: int) -> None:
        """Set the group's offsets, from partition 0 on."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app})
        progress = [TopicPartition(self.source, at, offset) for at, offset in enumerate(offsets)]
        consumer.commit(offsets=progress, asynchronous=False)
        consumer.close()

    def effect(self, partition: int, offset: int, value: bytes, part: str = "") -> Given:
        headers: Headers = (("hapax-source", f"{self.source}/{partition}/{offset}".encode()),)
        if part:
            headers = (*headers, ("hapax-part", part.encode()))
        return Given(value, b"k", headers, 0)


def audited(spark: SparkSession, environment: dict[str, str], **options: object) -> Audit:
    """Run the audit on the session that is open, with the settings of the service."""
    settings = load_settings(
        {name: text for name, text in environment.items() if name.startswith("HAPAX_")}
    )
    marks = Marks(settings)
    try:
        topics = AuditTopics(settings, AuditOptions(**options), marks, lambda *_told: None)  # type: ignore[arg-type]
        return run(spark, topics, lambda *_told: None, examples_max=3)
    finally:
        marks.close()

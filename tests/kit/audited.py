"""Pipelines whose every record a test writes itself, and the audit of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.operations.audit.judgement import EFFECTS, INPUTS, LocalAudit, judge
from hapax.operations.audit.result import Compare, Scope
from hapax.operations.audit.spark import SparkAudit
from hapax.operations.audit.topics import AuditOptions, AuditTopics
from hapax.settings import load_settings
from tests.kit.topics import Given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from hapax.core.records import Headers
    from hapax.operations.audit.result import Audit, InputBounds, InputFindings, OutputBounds
    from hapax.settings import Settings

    Row = tuple[Any, ...]


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
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app})
        progress = [TopicPartition(self.source, at, offset) for at, offset in enumerate(offsets)]
        consumer.commit(offsets=progress, asynchronous=False)
        consumer.close()

    def effect(self, partition: int, offset: int, value: bytes, part: str = "") -> Given:
        headers: Headers = (("hapax-source", f"{self.source}/{partition}/{offset}".encode()),)
        if part:
            headers = (*headers, ("hapax-part", part.encode()))
        return Given(value, b"k", headers, 0)


def scope_of(inputs: list[InputBounds], outputs: list[OutputBounds], **other: Any) -> Scope:
    usual: dict[str, Any] = {
        "claimed": True,
        "known": True,
        "compare": Compare.VALUES,
        "examples_max": 3,
    }
    return Scope(app="a", inputs=inputs, outputs=outputs, **usual | other)


def audited(spark: SparkSession, environment: dict[str, str], **options: object) -> Audit:
    """Run the audit on both engines with the settings of the service; they must agree."""
    settings = load_settings(
        {name: text for name, text in environment.items() if name.startswith("HAPAX_")}
    )
    on_spark = _run(SparkAudit(spark, _silent), settings, options)
    with LocalAudit.opened(_silent) as engine:
        here = _run(engine, settings, options)
    if all(one.bounds.committed == two.bounds.committed for one, two in _pairs(here, on_spark)):
        check_equal(here, on_spark)
    return here


def _run(engine: LocalAudit | SparkAudit, settings: Settings, options: dict[str, object]) -> Audit:
    client = BlockingOffsets(settings)
    try:
        given = AuditOptions(examples_max=3, **options)  # type: ignore[arg-type]
        return AuditTopics(settings, given, client, _silent).judged(engine)
    finally:
        client.close()


def _pairs(one: Audit, other: Audit) -> Iterator[tuple[InputFindings, InputFindings]]:
    return zip(one.inputs, other.inputs, strict=True)


def check_equal(one: Audit, other: Audit) -> None:
    for here, there in _pairs(one, other):
        assert here.counts == there.counts, here.bounds
    assert one == other


def judged_rows(spark: SparkSession, inputs: list[Row], effects: list[Row], scope: Scope) -> Audit:
    there = SparkAudit(spark, _silent)
    there.load("inputs", INPUTS, inputs)
    there.load("effects", EFFECTS, effects)
    here = judged_here(inputs, effects, scope)
    check_equal(here, judge(there, scope))
    return here


def judged_here(inputs: list[Row], effects: list[Row], scope: Scope) -> Audit:
    with LocalAudit.opened(_silent) as engine:
        engine.add("inputs", inputs)
        engine.add("effects", effects)
        return judge(engine, scope)


def _silent(*_report: object) -> None:
    """Take progress reports."""

"""From a judgement on Spark to the result: counts by partition, and examples of each anomaly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from hapax.operations.audit.result import (
    Audit,
    IncompleteError,
    Offence,
    OutputFindings,
    audit_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from hapax.operations.audit.spark import AuditJudgement, Tables


def result(judgement: AuditJudgement, tables: Tables) -> Audit:
    """Collect counts and examples."""
    scope = tables.scope
    audit = audit_of(scope, judgement.counts(), _outputs(tables))
    if audit.anomalies and scope.examples_max:
        odd = judgement.odd().persist()  # each class reads it again
        for name in audit.anomalies:
            rows = _offenders(judgement, odd, name).limit(scope.examples_max).collect()
            audit.examples[name] = [_offence(row).sentence(name, scope) for row in rows]
        odd.unpersist()
    return audit


def check_complete(frame: DataFrame, stretches: int) -> None:
    """Raise unless every stretch was read to its end. This is also what reads them all."""
    ended = frame.where("read is not null").count()
    if ended != stretches:
        raise IncompleteError(f"{ended} of {stretches} stretches were read to their end")


def named_topics(inputs: DataFrame) -> set[str]:
    """Return the topics that the transform chose itself."""
    rows = inputs.where("topics is not null").select(f.explode("topics").alias("topic"))
    return {row["topic"] for row in rows.distinct().collect()}


def first_named(effects: DataFrame, lanes: list[int]) -> dict[int, int]:
    """Return by place of input the highest of the first offsets that these lanes name."""
    rows = (
        effects.where(f.col("lane").isin(lanes) & (f.col("place") >= 0))
        .groupBy("place", "lane")
        .agg(f.min("offset").alias("first"))
        .groupBy("place")
        .agg(f.max("first").alias("first"))
        .collect()
    )
    return {row["place"]: row["first"] for row in rows}


def _outputs(tables: Tables) -> list[OutputFindings]:
    found = [OutputFindings(bounds=one) for one in tables.scope.outputs]
    sums = [f.sum(name).alias(name) for name in ("read", "foreign", "hidden")]
    ended = tables.effects.where("read is not null")
    for row in ended.groupBy("lane").agg(*sums).collect():
        one = found[row["lane"]]
        one.records, one.foreign, one.hidden = row["read"], row["foreign"], row["hidden"]
    return found


def _offenders(judgement: AuditJudgement, odd: DataFrame, name: str) -> DataFrame:
    order = ("place", "offset", "lane", "at")
    if name == "out_of_order":
        return judgement.disordered().orderBy("lane", "at")
    if name == "ahead":
        return judgement.effects.where("where_ = 'ahead'").orderBy(*order)
    rows = odd.where(f.col(name) > 0)
    if name == "orphaned":
        columns = ["place", "offset", "lane", "at"]
        nowhere = judgement.effects.where("where_ = 'nowhere'").select(*columns)
        rows = rows.select(*columns).unionByName(nowhere)
    return rows.orderBy(*order)


def _offence(row: Row) -> Offence:
    fields = row.asDict()
    return Offence(
        fields["place"],
        fields["offset"],
        fields["lane"],
        fields["at"],
        fields.get("effects", 0),
        fields.get("due"),
        fields["last"]["offset"] if "last" in fields else None,
    )

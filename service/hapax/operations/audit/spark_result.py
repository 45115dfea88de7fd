"""From a judgement to the result: counts by partition, and a few examples of each anomaly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from hapax.core.errors import HapaxError
from hapax.operations.audit.result import (
    Audit,
    InputFindings,
    OutputFindings,
    total,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from hapax.operations.audit.result import OutputBounds
    from hapax.operations.audit.spark import Judgement, Tables


class IncompleteError(HapaxError):
    """Less was read than was asked for: nothing is concluded."""


def result(judgement: Judgement, tables: Tables, *, app: str, examples_max: int) -> Audit:
    """Ask the judgement everything and return it."""
    counts = judgement.counts()
    inputs = [
        InputFindings(bounds=bounds, counts={"records": 0} | counts.get(place, {}))
        for place, bounds in enumerate(tables.input_bounds)
    ]
    nowhere: dict[str, int] = {}
    for place, found in counts.items():
        if place < 0:
            nowhere = {name: nowhere.get(name, 0) + count for name, count in found.items()}
    audit = Audit(
        app=app,
        compare=tables.compare.value if tables.known else "nothing",
        inputs=inputs,
        outputs=_outputs(tables.effects, tables.output_bounds),
        totals=total(inputs, nowhere),
        examples={},
        remarks=[],
    )
    if audit.anomalies and examples_max:
        odd = judgement.odd().persist()  # each class asks it again
        for name in audit.anomalies:
            rows = _offenders(judgement, odd, name).limit(examples_max).collect()
            audit.examples[name] = [_sentence(name, row, tables) for row in rows]
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


def trimmed_starts(effects: DataFrame, bounds: list[OutputBounds]) -> dict[int, int]:
    """Return by place of input the first record whose effects retention cannot have taken.

    Effects of one input partition keep their order in an output partition. So where the oldest
    outputs are gone, everything behind the first record that is named there is still complete.
    """
    trimmed = [lane for lane, one in enumerate(bounds) if one.low > 0]
    if not trimmed:
        return {}
    rows = (
        effects.where(f.col("lane").isin(trimmed) & (f.col("place") >= 0))
        .groupBy("place", "lane")
        .agg(f.min("offset").alias("first"))
        .groupBy("place")
        .agg(f.max("first").alias("first"))
        .collect()
    )
    return {row["place"]: row["first"] + 1 for row in rows}


def _outputs(effects: DataFrame, bounds: list[OutputBounds]) -> list[OutputFindings]:
    found = [OutputFindings(bounds=one) for one in bounds]
    sums = [f.sum(name).alias(name) for name in ("read", "foreign", "hidden")]
    for row in effects.where("read is not null").groupBy("lane").agg(*sums).collect():
        one = found[row["lane"]]
        one.records, one.foreign, one.hidden = row["read"], row["foreign"], row["hidden"]
    return found


def _offenders(judgement: Judgement, odd: DataFrame, name: str) -> DataFrame:
    if name == "out_of_order":
        return judgement.disordered().orderBy("lane", "at")
    if name == "ahead":
        return judgement.effects.where("where_ = 'ahead'").orderBy("place", "offset")
    rows = odd.where(f.col(name) > 0)
    if name == "orphaned":
        columns = ["place", "offset", "lane", "at"]
        nowhere = judgement.effects.where("where_ = 'nowhere'").select(*columns)
        rows = rows.select(*columns).unionByName(nowhere)
    return rows.orderBy("place", "offset")


def _sentence(name: str, row: Row, tables: Tables) -> str:
    """Return where it is: the record, and one of its effects."""
    if row["place"] < 0:
        source = "a record that cannot be told"
    else:
        one = tables.input_bounds[row["place"]]
        source = f"{one.topic}/{one.partition}/{row['offset']}"
    if row["at"] is None:
        return source
    lane = tables.output_bounds[row["lane"]]
    effect = f"{lane.topic}/{lane.partition}/{row['at']}"
    if name == "out_of_order":
        return f"{source} at {effect}, after {row['last']['offset']}"
    if name in {"doubled", "torn", "wrong"}:
        due = "" if row["due"] is None or row["due"] < 0 else f", {row['due']} due"
        return f"{source}: {row['effects']} effects{due}, the last at {effect}"
    return f"{source} at {effect}"

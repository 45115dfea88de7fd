"""The audit on Spark, for large topics: tasks read ranges, DataFrames judge.

Only counts and a few examples come to the driver. The tables are those of spark_frames, wherever
their rows are from; places and lanes are indexes into the bounds.

1. place    effects of records that are not judged are set aside: before the start, after the end,
            or at or above the committed offset although they were visible before it was asked
2. gather   effects of one record become one row: which slots, how often, with what content
3. match    full outer join with the inputs by (place, offset)
4. ids      records that share an id: one owner has the effects
5. decide   one row for each record: what it came to, and which anomalies it is
6. order    effects of one input partition in one output partition: a running maximum in chunks of
            offsets, and the maximum of all chunks before
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as f

from hapax.core.errors import HapaxError
from hapax.engines.spark.executors import code_of, named, ship
from hapax.engines.spark.jvm import cause
from hapax.engines.spark.session import SparkOptions, open_session
from hapax.operations.audit.result import (
    ACCOUNTS,
    NAMES,
    Audit,
    IncompleteError,
    Offence,
    OutputFindings,
    audit_of,
)
from hapax.operations.audit.spark_frames import (
    EFFECTS,
    INPUTS,
    counted,
    differs,
    gathered,
    read_frame,
    reporting,
    rows_frame,
    slots_of,
    true,
    with_ids,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, Row, SparkSession

    from hapax.operations.audit.result import Scope
    from hapax.operations.audit.topics import ReadEffects, ReadInputs, Report
    from hapax.settings import Settings

CHUNK_OFFSETS = 1 << 18
"""Offsets of one output partition that are sorted by one task."""
_BOUNDS = "place int, start long, until long, committed long, compacted boolean"
_LANES = "lane int, settled long"
_COUNTED = ("outputs", "hidden", "gone", "unchecked", "unexpected_dead")
SHUFFLE_OFFSETS, SHUFFLE_MIN = 250_000, 2
CAUSE_CHARS_MAX = 300
_SHUFFLES = "spark.sql.shuffle.partitions"


class Tables(msgspec.Struct, frozen=True):
    """What is judged, and by which rules."""

    inputs: DataFrame
    effects: DataFrame
    scope: Scope


class AuditJudgement:
    """One audit: lazy tables, and what is asked of them."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._tables = tables
        bounds = [
            (
                place,
                one.start,
                one.until,
                0 if one.committed is None else one.committed,
                one.compacted,
            )
            for place, one in enumerate(tables.scope.inputs)
        ]
        lanes = [(lane, one.settled) for lane, one in enumerate(tables.scope.outputs)]
        self._bounds = f.broadcast(rows_frame(spark, bounds, _BOUNDS))
        self._lanes = f.broadcast(rows_frame(spark, lanes, _LANES))
        self.effects = self._placed()
        self.judged = self.effects.where("where_ = 'judged'")
        self.slots = slots_of(self.judged)
        self.records = self._decided(self._matched())

    # -- what the driver asks -------------------------------------------------------------

    def counts(self) -> dict[int, dict[str, int]]:
        names = ("records", *ACCOUNTS, *NAMES, *_COUNTED)
        sums = [f.sum(name).alias(name) for name in names if name not in {"out_of_order", "ahead"}]
        found: dict[int, dict[str, int]] = {}
        for row in self.records.groupBy("place").agg(*sums).collect():
            found[row["place"]] = {
                name: count for name, count in row.asDict().items() if name != "place" and count
            }
        for row in self.effects.groupBy("place", "where_").count().collect():
            if row["where_"] != "judged":
                name = "orphaned" if row["where_"] == "nowhere" else row["where_"]
                found.setdefault(row["place"], {})[name] = row["count"]
        if not self._behind().isEmpty():
            for row in self.disordered().groupBy("place").count().collect():
                found.setdefault(row["place"], {})["out_of_order"] = row["count"]
        return found

    def odd(self) -> DataFrame:
        """Return the records with anomalies, those of order and offsets left out."""
        flags = [f.col(name) for name in NAMES if name in self.records.columns]
        return self.records.where(f.greatest(*flags) > 0)

    def disordered(self) -> DataFrame:
        once = self.slots.where("times = 1").select("place", "offset", "slot", "parts")
        there = self.records.where("records = 1").select("place", "offset")
        return (
            self._behind()
            .join(once, once.columns, "left_semi")
            .join(there, there.columns, "left_semi")
        )

    # -- steps ----------------------------------------------------------------------------

    def _behind(self) -> DataFrame:
        lane = ("lane", "place")
        rank = f.struct("offset", "slot")
        chunked = self.judged.withColumn("chunk", f.expr(f"at div {CHUNK_OFFSETS}"))
        within = Window.partitionBy(*lane, "chunk").orderBy("at")
        before = within.rowsBetween(Window.unboundedPreceding, -1)
        ranked = chunked.select("*", rank.alias("rank"), f.max(rank).over(before).alias("last"))
        chunks = chunked.groupBy(*lane, "chunk").agg(f.max(rank).alias("top"))
        earlier = Window.partitionBy(*lane).orderBy("chunk")
        tops = chunks.select(
            *lane,
            "chunk",
            f.max("top").over(earlier.rowsBetween(Window.unboundedPreceding, -1)).alias("floor"),
        )
        return (
            ranked.join(f.broadcast(tops), [*lane, "chunk"])
            .withColumn("last", f.greatest("last", "floor"))
            .where(f.col("rank") < f.col("last"))
            .select("lane", "at", "place", "offset", "slot", "parts", "last")
        )

    def _placed(self) -> DataFrame:
        where = (
            f.when(f.col("place") < 0, "nowhere")
            .when(f.col("offset") < f.col("start"), "before")
            .when(f.col("offset") < f.col("until"), "judged")
            .when(
                (f.col("offset") >= f.col("committed")) & (f.col("at") < f.col("settled")), "ahead"
            )
            .otherwise("later")
        )
        effects = self._tables.effects.where("read is null")
        placed = effects.join(self._bounds, "place", "left").join(self._lanes, "lane", "left")
        return placed.select(*effects.columns, where.alias("where_"))

    def _matched(self) -> DataFrame:
        inputs = self._tables.inputs.where("read is null").drop("topics", "read")
        placed = inputs.join(self._bounds.drop("committed", "compacted"), "place")
        told = placed.withColumn("judged", f.expr("offset >= start and offset < until"))
        found = gathered(self.slots)
        matched = told.drop("start", "until").join(found, ["place", "offset"], "full")
        compacted = self._bounds.select("place", "compacted")
        matched = matched.join(compacted, "place", "left")
        for name in ("effects", "extra", "outs", "dead"):
            matched = matched.withColumn(name, f.coalesce(name, f.lit(0)))
        return matched.withColumn("has", f.col("effects") > 0)

    def _decided(self, matched: DataFrame) -> DataFrame:
        tables = self._tables
        real = f.expr("visible and judged")
        if tables.scope.claimed:
            matched = with_ids(matched, self.effects)
        else:
            matched = matched.select(
                "*", f.expr("false").alias("again"), f.lit("alone").alias("event")
            )
        torn = f.expr("outs > 0 and (least_parts <> most_parts or outs <> most_parts)")
        none = ~f.col("has") & ~f.col("outputs").eqNullSafe(0)
        wrong = f.col("has") & ~torn & differs(tables.scope.compare)
        unknown = f.col("outputs").isNull()
        flags = {
            "records": real,
            "with_outputs": real & (f.col("outs") > 0),
            "dead_letters": real & (f.col("outs") == 0) & (f.col("dead") > 0),
            "filtered": real & ~f.col("has") & f.col("outputs").eqNullSafe(0),
            "duplicates": real & none & (f.col("event") == "elsewhere"),
            "unexplained": real & none & (f.col("event") != "elsewhere") & unknown,
            "missing": real & none & (f.col("event") == "alone") & ~unknown,
            "dedup_loss": real & none & (f.col("event") == "lost") & ~unknown,
            "repeated": real & f.col("has") & f.col("again") & ~f.col("unchecked_"),
            "unchecked": real & f.col("has") & f.col("unchecked_"),
            "torn": real & torn,
            "wrong": real & wrong,
            "hidden": f.expr("not visible and judged"),
            "unexpected_dead": real & f.expr("dead > 0 and outs = 0 and outputs >= 0"),
        }
        effects = {
            "orphaned": f.expr("visible is null and not compacted"),
            "gone": f.expr("visible is null and compacted"),
            "from_aborted": f.expr("not visible and judged"),
        }
        both = f.expr("extra + if(outs > 0 and dead > 0, 1, 0)")
        matched = matched.withColumn("unchecked_", true("unchecked"))
        return matched.select(
            "place",
            "offset",
            "lane",
            "at",
            "parts",
            f.col("outputs").alias("due"),
            f.col("effects"),
            *[counted(flag).alias(name) for name, flag in flags.items()],
            *[(counted(flag) * f.col("effects")).alias(name) for name, flag in effects.items()],
            (counted(real) * both).alias("doubled"),
            (counted(real) * f.col("outs")).alias("outputs"),
        )


# -- Result ------------------------------------------------------------------------------------


def result(judgement: AuditJudgement, tables: Tables) -> Audit:
    scope = tables.scope
    audit = audit_of(scope, judgement.counts(), _outputs(tables))
    if audit.anomalies and scope.examples_max:
        odd = judgement.odd().persist()  # each class reads it again
        for name in audit.anomalies:
            rows = _offenders(judgement, odd, name).limit(scope.examples_max).collect()
            audit.examples[name] = [_offence(row).sentence(name, scope) for row in rows]
        odd.unpersist()
    return audit


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


# -- Engine ------------------------------------------------------------------------------------


@contextmanager
def opened(settings: Settings, report: Report) -> Iterator[SparkAudit]:
    report("starting Spark", 0, 0)
    options = msgspec.structs.replace(SparkOptions.of(settings), app=f"{settings.app}-audit")
    wares = [] if options.local else [*code_of(settings.transform), *named(options.ship)]
    spark = open_session(options)
    try:
        with tempfile.TemporaryDirectory(prefix="hapax-ship-") as folder:
            ship(spark.sparkContext, wares, Path(folder))
            yield SparkAudit(spark, report)
    except HapaxError:
        raise
    except Exception as error:  # a task that failed comes in many disguises, none of them short
        why = cause(error)[:CAUSE_CHARS_MAX]
        raise IncompleteError(f"Spark did not finish: {why}") from error
    finally:
        spark.stop()


class SparkAudit:
    """Reads and judges on a session that is open; see hapax.operations.audit.topics.Engine."""

    def __init__(self, spark: SparkSession, report: Report) -> None:
        self._spark = spark
        self._report = report
        self._inputs: list[DataFrame] = []
        self._effects: list[DataFrame] = []
        self.cores = spark.sparkContext.defaultParallelism

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        self._inputs.append(self._read(task, INPUTS, what))

    def read_effects(self, task: ReadEffects, what: str) -> None:
        self._effects.append(self._read(task, EFFECTS, what))

    def named_topics(self) -> set[str]:
        found: set[str] = set()
        for frame in self._inputs:
            rows = frame.where("topics is not null").select(f.explode("topics").alias("topic"))
            found |= {row["topic"] for row in rows.distinct().collect()}
        return found

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        rows = (
            self._effects[0]
            .where(f.col("lane").isin(lanes) & (f.col("place") >= 0))
            .groupBy("place", "lane")
            .agg(f.min("offset").alias("first"))
            .groupBy("place")
            .agg(f.max("first").alias("first"))
            .collect()
        )
        return {row["place"]: row["first"] for row in rows}

    def judge(self, scope: Scope) -> Audit:
        inputs = self._inputs[0]
        for frame in self._inputs[1:]:
            inputs = inputs.unionByName(frame)
        tables = Tables(inputs, self._effects[0], scope)
        _size_shuffles(self._spark, scope)
        with reporting(self._spark, "judging", self._report):
            found = result(AuditJudgement(self._spark, tables), tables)
        for frame in (*self._inputs, *self._effects):
            frame.unpersist()
        return found

    def _read(self, task: ReadInputs | ReadEffects, columns: str, what: str) -> DataFrame:
        ranges = len(task.stretches)
        frame = read_frame(self._spark, task, ranges, columns)
        with reporting(self._spark, what, self._report):
            ended = frame.where("read is not null").count()  # this also reads them all
        if ended != ranges:
            raise IncompleteError(f"{ended} of {ranges} stretches were read to their end")
        return frame


def _size_shuffles(spark: SparkSession, scope: Scope) -> None:
    """Choose the number of shuffle partitions by what was read: a small audit is quick."""
    offsets = sum(one.end - one.low for one in scope.inputs)
    offsets += sum(one.end - one.low for one in scope.outputs)
    cores = spark.sparkContext.defaultParallelism
    wanted = max(SHUFFLE_MIN, cores, offsets // SHUFFLE_OFFSETS)
    spark.conf.set(_SHUFFLES, str(min(wanted, 10_000)))

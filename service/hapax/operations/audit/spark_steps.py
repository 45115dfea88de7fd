"""Steps of the judgement: effects to slots to records, and what records of one id say.

Columns are those of spark_audit_frames; spark_audit puts the steps together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from hapax.operations.audit.result import Compare
from hapax.operations.audit.rows import DEAD_SLOT, POISON

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def true(flag: Column | str) -> Column:
    """Whether it is true; null is not."""
    return f.coalesce(flag, f.expr("false"))


def counted(flag: Column) -> Column:
    """Return 1 where it is true, so that a sum counts."""
    return true(flag).cast("int")


def slots_of(judged: DataFrame) -> DataFrame:
    """Effects that mean the same: one row for each slot of each record."""
    return judged.groupBy("place", "offset", "slot", "parts").agg(
        f.count("*").alias("times"),
        f.min("content").alias("content"),
        f.max("content").alias("content_"),
        f.bool_and("unchecked").alias("unchecked"),
        f.max(f.struct("lane", "at")).alias("spot"),
    )


def gathered(slots: DataFrame) -> DataFrame:
    """One row for each record that has effects."""
    output = f.col("slot") > DEAD_SLOT
    return (
        slots.groupBy("place", "offset")
        .agg(
            f.sum("times").alias("effects"),
            f.sum(f.col("times") - 1).alias("extra"),
            f.count_if(output).alias("outs"),
            f.count_if(~output).alias("dead"),
            f.min(f.when(output, f.col("parts"))).alias("least_parts"),
            f.max(f.when(output, f.col("parts"))).alias("most_parts"),
            f.bit_xor(f.when(output, f.col("content"))).alias("found"),
            f.max(f.when(~output, f.col("content"))).alias("found_dead"),
            f.bool_or(f.col("content") != f.col("content_")).alias("mixed"),
            f.bool_and("unchecked").alias("unchecked"),
            f.max("spot").alias("spot"),
            f.max("parts").alias("parts"),
        )
        .select("*", "spot.lane", "spot.at")
        .drop("spot")
    )


def differs(compare: Compare) -> Column:
    """Whether the outputs of a whole record are not those that are due."""
    if compare is Compare.NONE:
        return f.expr("false")
    count = f.expr(f"outs > 0 and (outputs = {POISON} or outputs <> outs)")
    if compare is Compare.COUNTS:
        return true(count)
    content = f.expr(
        f"(outs > 0 and content <> found) or mixed"
        f" or (outputs = {POISON} and dead > 0 and outs = 0 and content <> found_dead)"
    )
    return true(count) | true(content)


def with_ids(matched: DataFrame, effects: DataFrame) -> DataFrame:
    """Add what the other records of an id say.

    event  alone      no other record has the id, or the record is its owner
           elsewhere  another record had or will have the effect, or was filtered
           lost       the first of several, and none of them has an effect
    again  its effects come after those of another owner of the id
    """
    owner = f.struct("owner_place", "owner_offset")
    counts = f.col("has") & ~true("unchecked")
    shared = (
        matched.where("visible and id is not null")
        .groupBy("id")
        .agg(
            f.count("*").alias("copies"),
            f.min(f.when(counts, owner)).alias("first_owner"),
            f.bool_or(f.expr("has or not judged or coalesce(outputs = 0, false)")).alias("told"),
            f.min(f.when(f.col("judged"), f.struct("place", "offset"))).alias("first"),
        )
        .where("copies > 1")
    )
    gone = effects.where("id is not null").select(f.col("id").alias("old")).distinct()
    joined = matched.join(shared, "id", "left").join(
        gone, f.substring("id", 1, 16) == f.col("old"), "left"
    )
    here = f.struct("place", "offset")
    event = (
        f.when(true(owner == f.col("first_owner")), "alone")
        .when(f.col("old").isNotNull() | true("told"), "elsewhere")
        .when(f.col("copies").isNull(), "alone")
        .when(here == f.col("first"), "lost")
        .otherwise("elsewhere")
    )
    again = true(counts & (owner != f.col("first_owner")))
    return joined.select(*matched.columns, again.alias("again"), event.alias("event"))

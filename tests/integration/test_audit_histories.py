"""The judgement of hapax audit: what is right passes, each planted anomaly is called by its name.

No broker; one Spark job judges many histories, and SQLite must come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from hapax.operations.audit.result import NAMES, Audit, Compare, InputFindings, Scope, total
from tests.fault.checking import checker_anomalies as anomalies
from tests.fault.checking.checker_histories import PARTITIONS, due, right
from tests.kit import histories
from tests.kit.audited import judged_rows
from tests.kit.histories import PLANTED, planted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from tests.fault.checking.checker_anomalies import Plant
    from tests.fault.checking.checker_histories import World

CLEAN = 200
EACH = 6
PLANTS = [plant for plants in PLANTED.values() for plant in plants]


def judged(
    spark: SparkSession,
    found: list[World],
    *,
    claimed: bool = True,
    known: bool = True,
    compare: Compare = Compare.VALUES,
) -> Audit:
    inputs, effects, input_bounds, output_bounds = histories.rows(found, known=known)
    scope = Scope(
        app="a",
        inputs=input_bounds,
        outputs=output_bounds,
        claimed=claimed,
        known=known,
        compare=compare,
        examples_max=3,
    )
    return judged_rows(spark, inputs, effects, scope)


def found_in(audit: Audit, number: int) -> dict[str, int]:
    """Return what was found in the history with this number."""
    found: dict[str, int] = {}
    for one in audit.inputs[number * PARTITIONS : (number + 1) * PARTITIONS]:
        for name in NAMES:
            if one.counts.get(name):
                found[name] = found.get(name, 0) + one.counts[name]
    return found


class Judged(NamedTuple):
    """Histories that were judged in one job: those that are right first, then the planted ones."""

    right: list[World]
    planted: list[tuple[Plant, int]]
    audit: Audit


@pytest.fixture(scope="module")
def all_judged(spark):
    kept = [right(seed, whole=False) for seed in range(CLEAN)]
    cases = [(plant, *case) for plant in PLANTS for case in planted(plant, EACH)]
    audit = judged(spark, [*kept, *(history for _plant, history, _count in cases)])
    return Judged(kept, [(plant, count) for plant, _history, count in cases], audit)


def check_accounts(found: Iterable[InputFindings], kept: list[World], *, claimed: bool) -> None:
    totals = total(list(found), {})
    assert {name: totals[name] for name in NAMES if totals[name]} == {}
    assert totals["records"] == sum(len(history.done()) for history in kept)
    fates = ("with_outputs", "dead_letters", "filtered", "duplicates")
    assert totals["records"] == sum(totals[name] for name in fates)
    assert min(totals["with_outputs"], totals["dead_letters"], totals["filtered"]) > 100
    assert (totals["duplicates"] > 100) == claimed


def test_random_histories_that_kept_the_promise_are_clean(all_judged):
    found = all_judged.audit.inputs[: CLEAN * PARTITIONS]
    check_accounts(found, all_judged.right, claimed=True)


def test_without_claims_every_record_of_an_event_must_have_its_effect(spark):
    kept = [right(seed, claims=False, whole=False) for seed in range(CLEAN)]
    lossy, _count = planted(anomalies.dedup_loss, 1)[0]
    audit = judged(spark, [*kept, lossy], claimed=False)
    check_accounts(audit.inputs[: CLEAN * PARTITIONS], kept, claimed=False)
    assert found_in(audit, CLEAN).keys() == {"missing"}


@pytest.mark.parametrize(
    ("name", "plant"),
    [(name, plant) for name, plants in PLANTED.items() for plant in plants],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_one_anomaly_is_found_by_its_name_and_nothing_else_is(all_judged, name, plant):
    cases = [
        (found_in(all_judged.audit, number), count)
        for number, (planted_, count) in enumerate(all_judged.planted, start=CLEAN)
        if planted_ is plant
    ]
    assert len(cases) == EACH
    assert [found for found, _count in cases] == [{name: count} for _found, count in cases]


def test_without_a_transform_a_record_without_effect_is_told_and_not_judged(spark):
    cases = [planted(plant, 1)[0] for plant in (anomalies.lost, anomalies.torn_txn)]
    audit = judged(spark, [history for history, _count in cases], known=False)
    assert audit.anomalies == {"torn": 1}
    filtered = sum(not due(one) for history, _count in cases for one in history.done())
    assert 1 <= audit.totals["unexplained"] <= filtered + 1
    assert audit.totals["filtered"] == 0

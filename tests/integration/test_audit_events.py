"""What hapax audit makes of records that share an id, one situation in each input partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from hapax.operations.audit.result import (
    ACCOUNTS,
    NAMES,
    Audit,
    Compare,
    InputBounds,
    OutputBounds,
    Scope,
)
from hapax.operations.audit.rows import (
    DEAD_SLOT,
    POISON,
    VISIBLE,
    WAITING,
    InputRow,
    id_hash,
    number_of,
)
from tests.kit.audited import judged_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTED, END = 10, 20


class In(NamedTuple):
    """An input record of the event; every one of a situation has the same id."""

    offset: int
    due: int = 1
    replay_of: int | None = None


class Out(NamedTuple):
    """An effect of the record at ``offset``."""

    offset: int
    slot: int = 1
    unchecked: bool = False


class Situation(NamedTuple):
    inputs: list[In]
    effects: list[Out]
    found: dict[str, int]
    start: int = 0
    compacted: bool = False


SITUATIONS = {
    "the owner need not be the first": Situation(
        [In(1), In(2)], [Out(2)], {"with_outputs": 1, "duplicates": 1}
    ),
    "two owners": Situation([In(1), In(2)], [Out(1), Out(2)], {"with_outputs": 2, "repeated": 1}),
    "three owners": Situation(
        [In(1), In(2), In(3)], [Out(1), Out(2), Out(3)], {"with_outputs": 3, "repeated": 2}
    ),
    "passed while the claim store was away": Situation(
        [In(1), In(2)],
        [Out(1), Out(2, unchecked=True)],
        {"with_outputs": 2},
    ),
    "first unchecked, then claimed": Situation(
        [In(1), In(2)],
        [Out(1, unchecked=True), Out(2)],
        {"with_outputs": 2},
    ),
    "all dropped": Situation([In(1), In(2)], [], {"dedup_loss": 1, "duplicates": 1}),
    "alone and dropped": Situation([In(1)], [], {"missing": 1}),
    "the owner is not committed yet": Situation([In(1), In(12)], [], {"duplicates": 1}),
    "the owner was filtered": Situation(
        [In(1, due=0), In(2)], [], {"filtered": 1, "duplicates": 1}
    ),
    "the owner is a dead letter": Situation(
        [In(1, due=POISON), In(2)],
        [Out(1, slot=DEAD_SLOT)],
        {"dead_letters": 1, "duplicates": 1},
    ),
    "the dead letter was replayed": Situation(
        [In(1, due=POISON), In(2, due=POISON), In(3, replay_of=1)],
        [Out(1, slot=DEAD_SLOT), Out(3)],
        {"dead_letters": 1, "duplicates": 1, "with_outputs": 1},
    ),
    "the replay was dropped": Situation(
        [In(1, due=POISON), In(3, replay_of=1)],
        [Out(1, slot=DEAD_SLOT)],
        {"dead_letters": 1, "missing": 1},
    ),
    "the owner is gone, its output is not": Situation(
        [In(5)], [Out(2)], {"duplicates": 1}, start=4
    ),
    "the owner is gone with its output": Situation([In(5)], [], {"missing": 1}, start=4),
    "the owner stands before the part that is judged": Situation(
        [In(2), In(5)], [], {"duplicates": 1}, start=4
    ),
    "a record is gone by compaction": Situation([], [Out(3)], {}, compacted=True),
    "it waits for a later try": Situation([In(1)], [Out(1, slot=WAITING)], {}),
    "the owner waits": Situation([In(1), In(2)], [Out(1, slot=WAITING)], {"duplicates": 1}),
    "a dead letter that would be an output today": Situation(
        [In(1)], [Out(1, slot=DEAD_SLOT)], {"dead_letters": 1}
    ),
}
REMARKED = {
    "passed while the claim store was away": ("unchecked", 1),
    "first unchecked, then claimed": ("unchecked", 1),
    "the owner is gone, its output is not": ("before", 1),
    "a record is gone by compaction": ("gone", 1),
    "it waits for a later try": ("waiting", 1),
    "the owner waits": ("waiting", 1),
    "a dead letter that would be an output today": ("unexpected_dead", 1),
}


@pytest.fixture(scope="module")
def audit(spark):
    return judged(spark)


def judged(spark: SparkSession) -> Audit:
    inputs, effects, bounds, lanes = [], [], [], []
    for place, (name, one) in enumerate(SITUATIONS.items()):
        event = id_hash(name.encode())
        for given in one.inputs:
            owner = given.offset if given.replay_of is None else given.replay_of
            row = InputRow(
                given.offset, VISIBLE, number_of(place, owner), event + b"\0", given.due, None, None
            )
            inputs.append((place, *row, None))
        for at, out in enumerate(one.effects):
            gone = event if out.offset < one.start else None
            effect = (place, at, place, out.offset, out.slot, 1, 0, out.unchecked, gone)
            effects.append((*effect, None, None, None))
        bounds.append(
            InputBounds(
                topic="in",
                partition=place,
                low=0,
                start=one.start,
                until=COMMITTED,
                committed=COMMITTED,
                end=END,
                compacted=one.compacted,
            )
        )
        lanes.append(
            OutputBounds(topic="out", partition=place, low=0, settled=END, end=END, high=END)
        )
    scope = Scope(
        app="a",
        inputs=bounds,
        outputs=lanes,
        claimed=True,
        known=True,
        compare=Compare.COUNTS,
        examples_max=2,
    )
    return judged_rows(spark, inputs, effects, scope)


@pytest.mark.parametrize("name", SITUATIONS)
def test_records_of_one_event_have_one_owner(audit, name):
    counts = audit.inputs[list(SITUATIONS).index(name)].counts
    fates = {key: counts[key] for key in (*ACCOUNTS, *NAMES) if counts.get(key)}
    assert fates == SITUATIONS[name].found
    if name in REMARKED:
        remark, count = REMARKED[name]
        assert counts[remark] == count


def test_examples_name_records_and_effects(audit):
    alone = list(SITUATIONS).index("alone and dropped")
    assert audit.examples["missing"][0] == f"in/{alone}/1"
    two = list(SITUATIONS).index("two owners")
    assert audit.examples["repeated"][0] == f"in/{two}/2 at out/{two}/1"
    assert len(audit.examples["repeated"]) == 2

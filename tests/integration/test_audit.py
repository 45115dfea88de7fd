"""``hapax audit``: the worker's output is clean, what others leave is not."""

import json
import sys
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from hapax.operations.audit.result import (
    ACCOUNTS,
    NAMES,
    Audit,
    Compare,
    InputBounds,
    InputFindings,
    OutputBounds,
    total,
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
from hapax.sandbox import SandboxTopic
from tests.fault.checking import checker_anomalies as anomalies
from tests.fault.checking.checker_anomalies import Plant
from tests.fault.checking.checker_histories import PARTITIONS, World, due, right
from tests.kit import histories
from tests.kit.at_work import at_work
from tests.kit.audited import Pipeline, audited, judged_rows, scope_of
from tests.kit.commands import run_captured
from tests.kit.flow import Flow
from tests.kit.histories import PLANTED, planted
from tests.kit.orders import told
from tests.kit.proof import at_length
from tests.kit.topics import Given, ends, produce, produce_aborted, produce_committed, produce_open

# -- On a real broker ----------------------------------------------------------------------


@pytest.fixture
def pipeline(sandbox, unique):
    def made(partitions: int = 1, **settings: str) -> Pipeline:
        app = unique("audit")
        named = (("in", partitions), ("out", 1), ("dead", 1))
        sandbox.create_topics(*(SandboxTopic(f"{app}-{name}", count) for name, count in named))
        environment = {
            **sandbox.environment(),
            "HAPAX_APP": app,
            "HAPAX_INPUT__TOPICS": f"{app}-in",
            "HAPAX_OUTPUT__TOPIC": f"{app}-out",
            "HAPAX_DEAD_LETTER__TOPIC": f"{app}-dead",
            "HAPAX_TRANSACTION__TIMEOUT": "4s",
            **settings,
        }
        if "HAPAX_DEDUP__REDIS_URL" not in settings:
            environment.pop("HAPAX_DEDUP__REDIS_URL", None)
        return Pipeline(sandbox.bootstrap_servers, environment, app)

    return made


@pytest.mark.long
@pytest.mark.timeout(600)  # two audits and two kills, on a machine that may be busy
def test_output_of_workers_that_were_killed_is_clean(spark, sandbox, unique, tmp_path):
    flow = Flow(sandbox, tmp_path, GROUP__SESSION_TIMEOUT="6s", TRANSACTION__TIMEOUT="4s")
    try:
        flow.feed_beside(200)
        worker = flow.worker("w-0")
        for _kill in range(2):
            at_work(worker, 4)
            worker.kill()
            worker.start()
        # The audit takes as long as the machine is busy: at the full pace there were ever more
        # records to audit, and the machine was ever busier.
        flow.feed_beside(50)
        live = audited(spark, flow.environment())
        judgement = flow.finish()
        audit = audited(spark, flow.environment())
    finally:
        flow.close()
    assert judgement.anomalies == {}
    assert live.anomalies == {}, live.examples
    assert 0 < live.totals["records"] < audit.totals["records"]
    assert audit.anomalies == {}, audit.examples
    assert audit.totals["outputs"] == judgement.counts.outputs
    assert audit.totals["dead_letters"] == judgement.counts.dead_letters
    assert sum(one.hidden for one in audit.outputs) == judgement.counts.hidden_out
    assert audit.totals["duplicates"] > 10
    assert audit.totals["hidden"] > 10  # aborted input
    fates = ("with_outputs", "dead_letters", "filtered", "duplicates")
    assert sum(audit.totals[name] for name in fates) == audit.totals["records"]
    assert audit.remarks == []


@pytest.mark.long
def test_each_anomaly_on_a_broker_is_found_in_its_partition(spark, pipeline):
    p = pipeline(9, HAPAX_TRANSFORM="tests.kit.orders:obey")
    two = told({"value": "a"}, {"value": "b"})
    for partition in range(9):
        ordered = (two,) if partition in {3, 8} else ()
        values = [Given(b"%d" % at, b"k", ordered, partition) for at in range(3)]
        produce_aborted(p.bootstrap, p.source, Given(b"no", b"k", (), partition))  # 0, marker 1
        produce_committed(p.bootstrap, p.source, *values)  # 2 to 4, marker 5
        produce_aborted(p.bootstrap, p.source, Given(b"no", b"k", (), partition))  # 6, marker 7
    e = p.effect
    written = [
        *(e(0, at, b"%d" % (at - 2)) for at in (2, 4)),  # missing
        *(e(1, at, b"%d" % (at - 2)) for at in (2, 3, 4, 3)),  # doubled
        *(e(2, at, b"%d" % (at - 2)) for at in (2, 4, 3)),  # out of order
        e(3, 2, b"a", "1/2"),
        e(3, 2, b"b", "2/2"),
        e(3, 3, b"b", "2/2"),  # torn
        e(3, 4, b"a", "1/2"),
        e(3, 4, b"b", "2/2"),
        *(e(4, at, b"%d" % (at - 2)) for at in (2, 3, 4)),
        e(4, 1, b"?"),
        e(4, 5, b"?"),  # orphaned
        e(5, 0, b"no"),
        *(e(5, at, b"%d" % (at - 2)) for at in (2, 3, 4)),  # from aborted
        *(e(6, at, b"%d" % (at - 2)) for at in (2, 3, 4)),  # ahead
        e(7, 2, b"0"),
        e(7, 3, b"other"),
        e(7, 4, b"2"),  # wrong
        *(
            e(8, at, value, part)
            for at in (2, 3, 4)
            for value, part in ((b"a", "1/2"), (b"b", "2/2"))
        ),
    ]
    produce_aborted(p.bootstrap, p.target, e(0, 3, b"1"))  # does not count
    produce_committed(p.bootstrap, p.target, *written)
    produce(
        p.bootstrap,
        p.target,
        Given(b"not ours"),
        Given(b"x", headers=(("hapax-source", b"else/0/1"),)),
    )
    p.commit(8, 8, 8, 8, 8, 8, 4, 8, 8)
    audit = audited(spark, p.environment)
    found = [
        {name: one.counts[name] for name in NAMES if one.counts.get(name)} for one in audit.inputs
    ]
    assert found == [
        {"missing": 1}, {"doubled": 1}, {"out_of_order": 1}, {"torn": 1}, {"orphaned": 2},
        {"from_aborted": 1}, {"ahead": 1}, {"wrong": 1}, {},
    ]  # fmt: skip
    assert audit.examples["missing"] == [f"{p.source}/0/3"]
    assert audit.examples["out_of_order"] == [f"{p.source}/2/3 at {p.target}/0/10, after 4"]
    assert {one.bounds.topic: (one.foreign, one.hidden) for one in audit.outputs} == {
        p.target: (2, 1),
        p.dead: (0, 0),
    }
    assert audit.totals["records"] == 26


def test_what_retention_took_is_not_judged(spark, pipeline):
    p = pipeline(2)
    values = [Given(b"%d" % at, b"k", (), partition) for at in range(10) for partition in (0, 1)]
    produce(p.bootstrap, p.source, *values)
    effects = [p.effect(part, at, b"%d" % at) for at in range(10) for part in (0, 1)]
    produce(p.bootstrap, p.target, *effects)
    p.commit(10, 10)
    admin = AdminClient({"bootstrap.servers": p.bootstrap})
    for topic, partition, offset in ((p.source, 0, 4), (p.target, 0, 12)):
        where = TopicPartition(topic, partition, offset)
        for answer in admin.delete_records([where]).values():
            answer.result(30)
    audit = audited(spark, p.environment)
    assert audit.anomalies == {}, audit.examples
    assert [(one.bounds.start, one.counts["records"]) for one in audit.inputs] == [(7, 3), (7, 3)]
    assert len(audit.remarks) == 3
    assert f"the first records of {p.source}/0 were deleted: not judged" in audit.remarks
    p.commit(2, 10)
    lost = f"{p.source}/0: records 2 to 3 were deleted before the group read them"
    assert lost in audited(spark, p.environment).remarks


def test_an_open_transaction_in_the_output_is_remarked(spark, pipeline, monkeypatch):
    monkeypatch.setattr("hapax.operations.reading.MARGIN_S", -4.0)
    p = pipeline()
    produce(p.bootstrap, p.source, Given(b"0", b"k"), Given(b"1", b"k"))
    produce(p.bootstrap, p.target, p.effect(0, 0, b"0"))
    p.commit(2)
    with produce_open(p.bootstrap, p.target, p.effect(0, 1, b"1")):
        audit = audited(spark, p.environment)
    assert audit.anomalies == {"missing": 1}
    assert len(audit.remarks) == 1
    assert "a transaction is open at 1" in audit.remarks[0]


@pytest.mark.rounds
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="local"),
        pytest.param(["--engine", "spark", "--master", "local[2]"], id="spark", marks=at_length),
    ],
)
def test_the_command_tells_a_broken_pipeline_by_its_exit_code(pipeline, options):
    p = pipeline()
    produce(p.bootstrap, p.source, Given(b"0", b"k"), Given(b"1", b"k"))
    produce(p.bootstrap, p.target, p.effect(0, 1, b"1"))
    p.commit(ends(p.bootstrap, p.source)[0])
    command = [sys.executable, "-m", "hapax", "audit", "--json", *options]
    done = run_captured(command, env=p.environment, timeout=120)
    assert done.returncode == 1, done.stderr
    told_ = json.loads(done.stdout)
    assert told_["anomalies"] == {"missing": 1}
    assert told_["examples"]["missing"] == [f"{p.source}/0/0"]
    assert options or not done.stderr, "progress of short work"


# -- What hapax audit makes of records that share an id, one situation in each input partition.


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
        [In(1), In(2)], [Out(1), Out(2, unchecked=True)], {"with_outputs": 2}
    ),
    "first unchecked, then claimed": Situation(
        [In(1), In(2)], [Out(1, unchecked=True), Out(2)], {"with_outputs": 2}
    ),
    "all dropped": Situation([In(1), In(2)], [], {"dedup_loss": 1, "duplicates": 1}),
    "alone and dropped": Situation([In(1)], [], {"missing": 1}),
    "the owner is not committed yet": Situation([In(1), In(12)], [], {"duplicates": 1}),
    "the owner was filtered": Situation(
        [In(1, due=0), In(2)], [], {"filtered": 1, "duplicates": 1}
    ),
    "the owner is a dead letter": Situation(
        [In(1, due=POISON), In(2)], [Out(1, slot=DEAD_SLOT)], {"dead_letters": 1, "duplicates": 1}
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
def of_events(spark):
    return judged_events(spark)


def judged_events(spark: SparkSession) -> Audit:
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
    scope = scope_of(bounds, lanes, compare=Compare.COUNTS, examples_max=2)
    return judged_rows(spark, inputs, effects, scope)


@pytest.mark.parametrize("name", SITUATIONS)
def test_records_of_one_event_have_one_owner(of_events, name):
    counts = of_events.inputs[list(SITUATIONS).index(name)].counts
    fates = {key: counts[key] for key in (*ACCOUNTS, *NAMES) if counts.get(key)}
    assert fates == SITUATIONS[name].found
    if name in REMARKED:
        remark, count = REMARKED[name]
        assert counts[remark] == count


def test_examples_name_records_and_effects(of_events):
    alone = list(SITUATIONS).index("alone and dropped")
    assert of_events.examples["missing"][0] == f"in/{alone}/1"
    two = list(SITUATIONS).index("two owners")
    assert of_events.examples["repeated"][0] == f"in/{two}/2 at out/{two}/1"
    assert len(of_events.examples["repeated"]) == 2


# -- Its judges: what is right passes, each planted anomaly is called by its name
# No broker; one Spark job judges many histories, and SQLite must come to the same.


CLEAN = 200
EACH = 6
PLANTS = [plant for plants in PLANTED.values() for plant in plants]


def judged(
    spark: SparkSession, found: list[World], *, claimed: bool = True, known: bool = True
) -> Audit:
    inputs, effects, reads, writes = histories.rows(found, known=known)
    scope = scope_of(reads, writes, claimed=claimed, known=known)
    return judged_rows(spark, inputs, effects, scope)


def found_in(audit: Audit, number: int) -> dict[str, int]:
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
    check_accounts(all_judged.audit.inputs[: CLEAN * PARTITIONS], all_judged.right, claimed=True)


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

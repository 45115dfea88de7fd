"""hapax audit on a real broker: the worker's output is clean, what others leave is not."""

import json
import sys

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.operations.audit.result import NAMES
from hapax.sandbox import SandboxTopic
from tests.kit.audited import Pipeline, audited
from tests.kit.commands import run_captured
from tests.kit.flow import Flow
from tests.kit.naive import AtLeastOnce, PlainTransactions, Route, SetNxThenProcess, WithoutRewind
from tests.kit.orders import told
from tests.kit.proof import at_length
from tests.kit.topics import (
    Given,
    ends,
    produce,
    produce_aborted,
    produce_committed,
    produce_open,
)
from tests.kit.waiting import await_


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
    flow = Flow(
        sandbox,
        tmp_path,
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
    )
    try:
        flow.feed_beside(200)
        worker = flow.worker("w-0")
        for _kill in range(2):
            settled = len(worker.lines("transaction_committed"))
            await_(
                lambda settled=settled: len(worker.lines("transaction_committed")) > settled + 3,  # type: ignore[misc]
                60,
                worker.text,
            )
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
    assert len(audit.remarks) == 2


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


@pytest.mark.long
def test_loops_that_double_or_lose_are_caught(spark, pipeline, redis_url):
    pipelines = [pipeline() for _ in range(4)]
    routes = [Route(p.bootstrap, p.source, p.target, p.app) for p in pipelines]
    for p in pipelines:
        produce(p.bootstrap, p.source, *(Given(b"%d" % at, b"k") for at in range(10)))

    crashed: AtLeastOnce = AtLeastOnce(routes[0])
    next(crashed.batch(crashed.take(10)))
    crashed.close()
    again = AtLeastOnce(routes[0])
    again.process(again.take(10))
    again.close()

    crashed = SetNxThenProcess(routes[1], redis_url)
    next(crashed.batch(crashed.take(10)))
    crashed.close()
    again = SetNxThenProcess(routes[1], redis_url)
    again.process(again.take(10))
    again.close()

    for loop, route in ((WithoutRewind, routes[2]), (PlainTransactions, routes[3])):
        walking = loop(route)
        walking.abort(walking.take(4))
        walking.process(walking.take(6 if loop is WithoutRewind else 10))
        walking.close()

    found = [audited(spark, p.environment) for p in pipelines]
    assert [one.anomalies for one in found] == [
        {"doubled": 10},
        {"missing": 10},
        {"missing": 4},
        {},
    ]
    assert [one.outputs[0].hidden for one in found] == [0, 0, 4, 4]


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
    assert "judging" in done.stderr

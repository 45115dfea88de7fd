"""Bounded runs whose input has an open transaction of another producer."""

import json
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import cast

import pytest
from confluent_kafka import Producer

from hapax.cluster.partition_offsets import HeldBack
from hapax.core.errors import StopError
from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle, Process
from hapax.engines.spark.dataframe import query
from hapax.engines.spark.dataframe.query import QueryRun
from hapax.kafka.read.offsets_client import input_logs
from hapax.settings import load_settings
from hapax.telemetry.events import Events
from tests.kit import topics
from tests.kit.commands import run_captured
from tests.kit.doubles import Told
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import await_

WORDS = [b"word %02d" % number for number in range(35)]
BEFORE, OPEN, BEHIND = WORDS[:10], WORDS[10:15], WORDS[15:]
ABORTED, MARKED = [b"aborted"], [b"marked"]
"""Of two partitions that end in an aborted record and its marker, and in a marker."""
AT_END = {"STOP_AFTER__AT_END": "true"}
LEAVE = {"STOP_AFTER__OPEN": "leave"}
FORMS = ["worker", "records", "dataframe"]
WITHIN_S = 240


def given(values: Iterable[bytes], partition: int = 0) -> list[topics.Given]:
    return [topics.Given(value, partition=partition) for value in values]


@pytest.fixture
def route_of(route_of, tmp_path):
    """Return what makes a route whose partition 0 has ten records."""

    def make(form: str = "worker", **settings: str | None) -> PipelineUnderTest:
        if form == "dataframe":
            settings |= {
                "DEAD_LETTER__TOPIC": None,
                "SPARK__DATAFRAME": "tests.kit.pipeline_process:unchanged",
                "SPARK__CHECKPOINT": str(tmp_path / "checkpoint"),
            }
        kind = WorkerProcess if form == "worker" else SparkProcess
        settings = {"TRANSFORM": None, **settings}
        route: PipelineUnderTest = route_of(3, kind=kind, **settings)
        route.write(*given(BEFORE))
        topics.produce_aborted(route.bootstrap, route.source, *given(ABORTED, 1))
        topics.produce_committed(route.bootstrap, route.source, *given(MARKED, 2))
        await_(lambda: topics.ends(route.bootstrap, route.source) == {0: 10, 1: 2, 2: 2}, 10)
        return route

    return make


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return sorted((record.value for record in route.outputs()), key=lambda value: value or b"")


def waiting(route: PipelineUnderTest) -> str:
    return f"25 offsets wait for open transactions ({route.source}/0 from 10 to 35)"


def held(route: PipelineUnderTest, worker: WorkerProcess, event: str) -> None:
    """Assert that one line says what waits: 25 offsets of one partition."""
    [line] = worker.lines(event)
    assert line["reason"] == waiting(route)


def opened(route: PipelineUnderTest) -> AbstractContextManager[Producer]:
    """Write five records in a transaction that outlives the start of any Spark."""
    return topics.produce_open(route.bootstrap, route.source, *given(OPEN), timeout_ms=600_000)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_to_the_end_waits_for_an_open_transaction_and_ends_behind_its_last_marker(
    route_of, form
):
    route = route_of(form)
    with opened(route) as producer:
        route.write(*given(BEHIND))
        worker = route.worker(**AT_END)
        await_(lambda: worker.lines("open_transactions_awaited"), WITHIN_S, worker.text)
        held(route, worker, "open_transactions_awaited")
        assert values(route) == MARKED + BEFORE
        assert worker.running
        producer.commit_transaction(30)
        worker.ends_with(0)
    assert values(route) == MARKED + WORDS
    if form != "dataframe":
        assert route.committed() == {0: 36, 1: 2, 2: 2}


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_run_may_leave_what_is_behind_it_and_says_how_much(route_of, form):
    route = route_of(form, **LEAVE)
    with opened(route):
        route.write(*given(BEHIND))
        worker = route.worker(**AT_END)
        worker.ends_with(0)
        held(route, worker, "open_transactions_left")
        assert values(route) == MARKED + BEFORE


@pytest.mark.parametrize(
    ("options", "starts", "left"),
    [(LEAVE, 1, 25), ({}, 2, 0), ({"STOP_AFTER__OPEN_TIMEOUT": "3s"}, 1, 25)],
    ids=["leave", "wait", "limit"],
)
def test_a_query_is_started_again_when_more_is_decided_and_never_for_nothing(
    route_of, spark, options, starts, left
):
    route = route_of("dataframe", ENGINE="spark", **AT_END, **options)
    settings = load_settings(route.environment(INSTANCE="w-0"))
    records = query.read_input(spark, settings).select("key", "value")
    told, lifecycle = Told(), Lifecycle(time, Interrupt(), timeout_s=10)
    process = Process(cast("Events", told), time, lifecycle)
    limit = pytest.raises(StopError, match="25 offsets wait for open transactions")
    with opened(route) as producer:
        route.write(*given(BEHIND))
        if not left:
            told.on["open_transactions_awaited"] = lambda: end_once(producer, told)
        start, logs = partial(query.start, records, settings), partial(input_logs, settings)
        with limit if "STOP_AFTER__OPEN_TIMEOUT" in options else nullcontext():
            QueryRun(process, start, settings, lambda: None, logs).run()
        assert values(route) == MARKED + (BEFORE if left else WORDS)
    assert len(told.of("query_started")) == starts
    held = {"held": {(route.source, 0): HeldBack(10, 35)}}
    assert told.of("open_transactions_left") == ([held] if options == LEAVE else [])


def end_once(producer: Producer, told: Told) -> None:
    if told.of("open_transactions_awaited")[-1]["held"]:
        producer.commit_transaction(30)


def test_a_transaction_that_the_brokers_end_in_the_place_of_its_producer_ends_the_wait(route_of):
    route = route_of()
    with topics.transaction(route.bootstrap, timeout_ms=5000) as producer:
        producer.produce(route.source, OPEN[0], partition=0)
        assert producer.flush(30) == 0
        route.run_to_end()
    assert route.committed() == {0: 12, 1: 2, 2: 2}


def test_a_wait_has_a_limit_and_the_next_run_continues(route_of):
    route = route_of(STOP_AFTER__OPEN_TIMEOUT="3s")
    with opened(route) as producer:
        route.write(*given(BEHIND))
        worker = route.worker(**AT_END)
        worker.ends_with(1)
        [line] = worker.lines("service_stopped")
        assert str(line["reason"]).startswith(waiting(route))
        assert "hapax transactions list" in str(line["reason"])
        assert topics.unmarked(route.bootstrap, route.app, route.source), (
            "or it would count as a death"
        )
        assert values(route) == MARKED + BEFORE
        producer.commit_transaction(30)
    route.run_to_end()
    assert values(route) == MARKED + WORDS


@pytest.mark.parametrize("end", ["latest", "time"])
def test_members_of_one_span_all_wait_for_what_was_open_when_it_began(route_of, end):
    route = route_of()
    more = {"GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s", "INPUT__END": "latest"}
    with opened(route) as producer:
        route.write(*given(BEHIND[:-1]))
        if end == "time":
            more["INPUT__END"] = "1s"
            time.sleep(1.5)
        members = [route.worker(f"b-{number}", **more) for number in range(2)]
        for each in members:
            await_(partial(each.lines, "open_transactions_awaited"), 60, each.text)
        route.write(*given(BEHIND[-1:]))  # beyond the end
        producer.commit_transaction(30)
        for each in members:
            each.ends_with(0)
    assert values(route) == MARKED + WORDS[:-1]
    assert route.committed() == {0: 34, 1: 2, 2: 2}


def test_a_backfill_may_leave_what_is_behind_it_and_the_same_command_continues(route_of):
    route = route_of()
    with opened(route):
        route.write(*given(BEHIND))
        code, out, err = backfill(route, **LEAVE)
        assert (code, json.loads(out.splitlines()[-1])["state"]) == (0, "left"), err
        assert waiting(route) in err
    code, out, err = backfill(route)
    assert (code, json.loads(out.splitlines()[-1])["state"]) == (0, "done"), err
    assert values(route) == MARKED + BEFORE + BEHIND
    assert route.committed() == {0: 35, 1: 2, 2: 2}


def backfill(route: PipelineUnderTest, **settings: str) -> tuple[int, str, str]:
    done = run_captured(
        [sys.executable, "-m", "hapax", "backfill", "--json"],
        env={**route.environment(**settings), "HAPAX_INSTANCE": "b-0"},
        timeout=WITHIN_S,
    )
    return done.returncode, done.stdout, done.stderr

"""Intake that an operator has paused: nothing is taken, the membership is kept."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hapax.core.errors import SchemasUnavailableError
from hapax.engines.membership import ASK_S, SchemaHold
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline
from tests.kit.spark_driver import P0, P1, done, played

TURNS = 20


def after_turns(pipeline: Pipeline, act: Callable[[], None]) -> None:
    watch = pipeline._watch

    def then() -> None:
        watch()
        if pipeline.turns == TURNS:
            act()

    pipeline._watch = then  # type: ignore[method-assign]


def test_a_paused_worker_takes_nothing_and_goes_on_where_it_was_once_resumed():
    pipeline = Pipeline(2, batch_max=2)
    pipeline.write(b"a", b"b", b"c", b"d")
    pipeline.write(b"x", partition=1)
    pipeline.lifecycle.pause()

    def resume() -> None:
        assert pipeline.outputs() == []
        assert pipeline.source.paused == pipeline.source.assignment()
        pipeline.lifecycle.resume()

    after_turns(pipeline, resume)
    pipeline.run_judged()
    assert pipeline.told.names().count("intake_paused") == 1
    assert pipeline.told.names().count("intake_resumed") == 1
    assert not pipeline.source.paused


def test_a_worker_that_is_told_to_stop_while_it_is_paused_leaves():
    pipeline = Pipeline()
    pipeline.write(b"a")
    pipeline.lifecycle.pause()
    after_turns(pipeline, lambda: pipeline.lifecycle.stop("SIGTERM"))
    pipeline.run()
    assert pipeline.outputs() == []
    assert pipeline.lifecycle.reason == "SIGTERM"


def test_what_goes_wrong_while_nothing_is_taken_ends_no_pause():
    faults = Script(attend=[None, InjectedFault("aborted"), None, InjectedFault("fenced")])
    pipeline = Pipeline(faults=faults)
    pipeline.write(b"a")
    pipeline.lifecycle.pause()

    def resume() -> None:
        assert pipeline.outputs() == []
        pipeline.lifecycle.resume()

    after_turns(pipeline, resume)
    pipeline.run_judged()
    assert not faults.unplayed


@played(lanes=2)
def test_a_paused_driver_hands_out_no_range_and_collects_those_that_run(driver):
    yield from driver.working({P0: 100, P1: 100}, p0=0, p1=0)
    driver.lifecycle.pause()
    for lane in list(driver.jobs.running):
        driver.jobs.end(lane, **done((P0, P1)[lane], 0, 4))
    planned = len(driver.jobs.plans)
    yield from driver.turns(TURNS)
    assert len(driver.jobs.plans) == planned
    driver.lifecycle.resume()
    yield from driver.until(lambda: len(driver.jobs.plans) > planned)
    driver.lifecycle.stop("enough")
    while not (yield):
        for lane in list(driver.jobs.running):
            driver.jobs.end(lane)
    assert driver.told.names().count("intake_paused") == 1
    assert driver.told.names().count("intake_resumed") == 1


def test_a_partition_that_waits_for_a_schema_is_looked_at_again_after_a_while_only():
    now_s = 100.0
    asked: list[str] = []
    held: list[bool] = []
    schemas: Any = SimpleNamespace(want=lambda _key: None, missing=asked.append)
    clock = SimpleNamespace(monotonic=lambda: now_s)
    source: Any = SimpleNamespace(hold=lambda *_, **how: held.append(how["held"]))
    events = SimpleNamespace(schemas_unavailable=lambda *_: None, schemas_recovered=held.clear)
    hold = SchemaHold(SimpleNamespace(events=events, clock=clock), schemas)  # type: ignore[arg-type]
    error = SchemasUnavailableError("away", key="schema 5")
    error.where = P0
    hold.add(error)
    hold.attend(source)
    assert (asked, held) == ([], [True])
    now_s += ASK_S
    hold.attend(source)
    assert (asked, held) == (["schema 5"], [])


EVICTS = "Redis at cache:6379/0 evicts keys (maxmemory-policy allkeys-lru)"


def at_seconds(pipeline: Pipeline, steps: dict[float, Callable[[], None]]) -> None:
    began_s = pipeline.clock.now_s
    left = sorted(steps.items())

    def then() -> None:
        while left and pipeline.clock.now_s >= began_s + left[0][0]:
            left.pop(0)[1]()
        if not left:
            pipeline.lifecycle.stop("done")

    pipeline._watch = then  # type: ignore[method-assign]


def outage(pipeline: Pipeline, reason: str | None) -> Callable[[], None]:
    def begin() -> None:
        pipeline.claims.outage = reason

    return begin


def test_an_idle_worker_holds_within_a_minute_and_goes_on_by_itself():
    pipeline = Pipeline()
    seen: list[bool] = []
    at_seconds(
        pipeline,
        {
            1.0: outage(pipeline, EVICTS),
            62.0: lambda: seen.append(pipeline.source.paused == pipeline.source.assignment()),
            63.0: outage(pipeline, None),
            64.0: lambda: pipeline.write(b"later"),
            66.0: lambda: seen.append(pipeline.drained()),
        },
    )
    pipeline.run()
    assert seen == [True, True]
    assert pipeline.told.of("claims_unavailable") == [{"reason": EVICTS, "policy": "pause"}]
    assert pipeline.told.names().count("claims_recovered") == 1


def test_under_pass_an_idle_worker_names_it_and_takes_records():
    pipeline = Pipeline(pass_on_outage=True)
    seen: list[bool] = []
    at_seconds(
        pipeline,
        {
            1.0: outage(pipeline, EVICTS),
            62.0: lambda: pipeline.write(b"meanwhile"),
            64.0: lambda: seen.append(pipeline.drained()),
            65.0: outage(pipeline, None),
            130.0: lambda: None,
        },
    )
    pipeline.run()
    assert seen == [True]
    assert {"reason": EVICTS, "policy": "pass"} in pipeline.told.of("claims_unavailable")
    assert pipeline.told.names().count("claims_recovered") == 1


def test_a_reason_that_changes_while_it_holds_is_told():
    pipeline = Pipeline()
    at_seconds(
        pipeline,
        {
            1.0: outage(pipeline, "connection refused"),
            62.0: outage(pipeline, EVICTS),
            63.0: outage(pipeline, None),
            64.0: lambda: None,
        },
    )
    pipeline.run()
    told = [one["reason"] for one in pipeline.told.of("claims_unavailable")]
    assert told == ["connection refused", EVICTS]


def test_it_is_asked_once_a_minute_and_not_for_each_batch():
    pipeline = Pipeline(batch_max=1)
    pings: list[float] = []
    pipeline.claims.ping = lambda: pings.append(pipeline.clock.now_s)
    at_seconds(pipeline, {179.0: lambda: None})
    pipeline.run()
    assert len(pings) == 3


@played(lanes=1)
def test_a_driver_plans_nothing_while_claims_may_be_deleted(driver):
    yield from driver.working({P0: 100}, p0=0)
    driver.jobs.end(0, **done(P0, 0, 100))
    driver.claims.outage = EVICTS
    began_s = driver.clock.now_s
    while driver.clock.now_s < began_s + 61.0:
        yield
    driver.member.logs[P0] = 200
    yield from driver.turns(100)
    assert len(driver.jobs.plans) == 1
    driver.claims.outage = None
    yield from driver.started(0)
    yield from driver.ended(0)
    assert driver.told.of("claims_unavailable")[0] == {"reason": EVICTS, "policy": "pause"}
    assert driver.told.names().count("claims_recovered") == 1

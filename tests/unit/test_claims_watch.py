"""The claim store is looked at once a minute, also while nothing is claimed."""

from collections.abc import Callable

from tests.kit.pipeline import Pipeline
from tests.kit.spark_driver import P0, STOP, done, played

EVICTS = "Redis at cache:6379/0 evicts keys (maxmemory-policy allkeys-lru)"


def at_seconds(pipeline: Pipeline, steps: dict[float, Callable[[], None]]) -> None:
    """Do something at times after the start; the last of them ends the run."""
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
        assert pipeline.claims is not None
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
    assert pipeline.claims is not None
    pipeline.claims.ping = lambda: pings.append(pipeline.clock.now_s)  # type: ignore[method-assign]
    at_seconds(pipeline, {179.0: lambda: None})
    pipeline.run()
    assert len(pings) == 3


@played(lanes=1)
def test_a_driver_plans_nothing_while_claims_may_be_deleted(driver):
    driver.assign({P0: 100}, p0=0)
    yield from driver.started(0)
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
    driver.jobs.end(0)
    yield STOP
    assert driver.told.of("claims_unavailable")[0] == {"reason": EVICTS, "policy": "pause"}
    assert driver.told.names().count("claims_recovered") == 1

"""Pipelines with state, as in examples/spark_stateful: killed, started again, each result once."""

import random

import pytest

from hapax.sandbox import Sandbox
from tests.kit.proof import at_length, rounds
from tests.kit.stateful import SHAPES
from tests.kit.stateful_runs import WITHIN_S, NaiveProcess, Route, await_growth, driver_of
from tests.kit.waiting import await_

EVENTS = 800
TRIES = 5


@pytest.mark.row("SP2", "SP5")
@pytest.mark.long
@pytest.mark.rounds
@at_length
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_state_is_recovered_and_each_result_comes_out_once_through_kills(
    sandbox, unique, tmp_path, shape, proof
):
    route = Route(sandbox, shape, unique("state"), tmp_path, rounds(EVENTS, 4 * EVENTS))
    with driver_of(route) as driver:
        driver.kill_workers(random.Random(shape.name))
        for number in range(rounds(1, 6)):
            # The driver alone, or with all that it has started: either first.
            driver.kill_in_a_micro_batch(alone=(number + SHAPES.index(shape)) % 2 == 0)
        driver.finish()
        # What comes after all windows are closed is dropped, and counted.
        route.write(route.feed.late)
        await_(lambda: driver.late() > 0, 60, driver.process.text)
        assert driver.process.terminate() == 0
    proof.note(struck=driver.kills + driver.workers, note=str(driver))
    assert route.found() == route.feed.expected
    assert driver.late() == 1
    assert driver.remembers()


@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_sparks_own_sink_doubles_results_of_each_shape_when_it_is_killed_while_it_writes(
    sandbox, unique, tmp_path
):
    stem = unique("naive")
    shapes = SHAPES[: rounds(1, len(SHAPES))]
    routes = [Route(sandbox, shape, stem, tmp_path, EVENTS) for shape in shapes]
    process = NaiveProcess(routes, tmp_path / "naive.log")
    try:
        for route in routes:
            # A kill that comes after the end of the micro-batch is none; mostly the first is one.
            for _ in range(TRIES):
                await_growth(route, process.keep_up)
                process.kill()
                if route.under_way():
                    break
            else:
                pytest.fail(f"{route.shape.name}: {TRIES} kills came too late")
        process.start()
        process.finish(WITHIN_S)
    finally:
        process.close()
    for route in routes:
        found, expected = route.found(), route.feed.expected
        assert found - expected, f"{route.shape.name}: nothing is doubled"
        assert not expected - found, route.shape.name


@pytest.mark.row("SP2")
@pytest.mark.long
@pytest.mark.rounds
@at_length
def test_state_is_recovered_when_executors_of_a_cluster_are_killed_one_and_all(
    unique, tmp_path, proof
):
    shape = SHAPES[-1]
    with Sandbox(redis=False).with_spark(2) as sandbox:
        route = Route(sandbox, shape, unique("cluster"), tmp_path, EVENTS)
        with driver_of(route, settings=route.on_cluster()) as driver:
            driver.kill_executors(1)
            driver.kill_executors(2)
            driver.finish()
            assert driver.process.terminate() == 0
        assert route.found() == route.feed.expected
    assert driver.remembers()
    assert driver.starts == 1, "the driver died with its executors"
    proof.note(struck=driver.kills, note=f"{driver}, on a cluster")

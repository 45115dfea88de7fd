"""What stops a Spark driver for good, and what it does not even start with."""

from typing import NamedTuple

import pytest

from hapax.sandbox import Sandbox
from tests.kit.at_work import left, refused, untouched
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, source, values
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given

TEN = [b"%d" % number for number in range(10)]
LEAVES_WITHIN_S = 90


class Stopping(NamedTuple):
    """A driver that must leave by itself, and its route."""

    route: PipelineUnderTest
    driver: SparkProcess


@pytest.fixture(scope="module")
def stopping(sandbox, tmp_path_factory):
    """All of them at once: most of the time a driver waits for its JVM, or for its next attempt."""
    routes: list[PipelineUnderTest] = []

    def route_of(partitions: int = 1) -> PipelineUnderTest:
        folder = tmp_path_factory.mktemp("stopping")
        routes.append(PipelineUnderTest(sandbox, folder, partitions=partitions, kind=SparkProcess))
        routes[-1].create()
        return routes[-1]

    def stops(route: PipelineUnderTest, **settings: str | None) -> Stopping:
        return Stopping(route, route.start(SparkProcess, "s-0", **settings))

    try:
        found = {"refuse": stops(_with_ten(route_of()), INPUT__START="refuse")}
        found["poison"] = stops(
            _with_ten(route_of()), DEAD_LETTER__TOPIC=None, TRANSFORM="tests.kit.orders:poison"
        )
        found["rate"] = stops(
            _with_ill(route_of()), TRANSACTION__RECORDS_MAX="400", RETRY__BACKOFF="0ms"
        )
        found["position"] = stops(_with_gap(route_of(), sandbox))
        yield found
    finally:
        for route in routes:
            route.close()


def _with_ten(route: PipelineUnderTest) -> PipelineUnderTest:
    route.write(*TEN)
    return route


def _with_ill(route: PipelineUnderTest) -> PipelineUnderTest:
    ill = (("raise", b""),)
    route.write(
        *(Given(b"%d" % number, headers=() if number % 5 else ill) for number in range(4000))
    )
    return route


def _with_gap(route: PipelineUnderTest, sandbox: Sandbox) -> PipelineUnderTest:
    """Ten records done, five more deleted before anybody has read them."""
    route.write(*TEN)
    worker = route.start(WorkerProcess, "w-0", STOP_AFTER__AT_END="true")
    worker.ends_with(0)
    route.write(*TEN)
    sandbox.delete_records(route.source, 0, 15)
    return route


def stopped(stopping: Stopping, code: int, *words: str) -> None:
    """Wait for its exit, check the code and that the reasons hold these words."""
    stopping.driver.process.wait(LEAVES_WITHIN_S)
    left(stopping.driver, code, *words)
    stopping.driver.await_gone()


# -- before Spark starts ------------------------------------------------------------------


closed = a_route(*TEN, scope="module", kind=SparkProcess)
"""A route on which nothing ever starts."""


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"TRANSFORM": "tests.kit.nowhere:f"}, 2, ["HAPAX_TRANSFORM", "tests.kit.nowhere"]),
        ({"TRANSFORM": "tests.kit.orders:nothing"}, 2, ["HAPAX_TRANSFORM", "has no nothing"]),
        ({"GUARANTEE": "at_least_once"}, 2, ["HAPAX_GUARANTEE", "exactly_once"]),
        ({"OUTPUT__TOPIC": "no-such-topic"}, 3, ["HAPAX_OUTPUT__TOPIC", "no-such-topic"]),
    ],
)
def test_what_cannot_work_is_told_before_spark_starts(closed, settings, code, words):
    text = refused(closed, code, *words, **settings)
    assert "incubator" not in text  # what every JVM of Spark says first
    assert untouched(closed)


# -- afterwards ---------------------------------------------------------------------------


@pytest.mark.long
def test_a_group_without_offsets_leaves_with_6_where_starting_over_is_refused(stopping):
    case = stopping["refuse"]
    stopped(case, 6, f"{case.route.source}/0", "HAPAX_INPUT__START=refuse")
    assert untouched(case.route)


@pytest.mark.row("SP13")
def test_a_position_that_was_deleted_leaves_with_6_and_names_what_is_missing(stopping):
    case = stopping["position"]
    stopped(case, 6, f"{case.route.source}/0", "next record is 10", "15 to 20")
    assert case.route.committed() == {0: 10}
    assert values(case.route.outputs()) == TEN


@pytest.mark.row("SP16")
def test_poison_without_a_dead_letter_topic_leaves_with_5_and_names_the_record(stopping):
    case = stopping["poison"]
    stopped(case, 5, f"{case.route.source}/0/0", "HAPAX_DEAD_LETTER__TOPIC", "ValueError")
    assert untouched(case.route)


def test_too_many_dead_letters_leave_with_5_and_nothing_of_the_last_batch(stopping):
    case = stopping["rate"]
    stopped(case, 5, "HAPAX_DEAD_LETTER__RATE_MAX", "nothing of the last batch")
    assert case.route.committed() == {0: 800}
    done = [source(record) for record in (*case.route.outputs(), *case.route.dead())]
    assert sorted(done) == list(range(800))

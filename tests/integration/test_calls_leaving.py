"""No business code ends the service with 0: whatever it raises is the failure of its record."""

import pytest

from tests.kit.at_work import refused, untouched
from tests.kit.leaving import DEEDS, FINE, MODULE
from tests.kit.pipeline_under_test import PipelineUnderTest, header, values
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess

NAMES = {
    b"exit-0": "SystemExit",
    b"exit-text": "SystemExit",
    b"cancelled": "CancelledError",
    b"interrupt": "KeyboardInterrupt",
    b"generator": "GeneratorExit",
    b"own": "OwnError",
}
FORMS = {
    "native": {"TRANSFORM": f"{MODULE}:function", "FAST": "on"},
    "python": {"TRANSFORM": f"{MODULE}:function", "FAST": "off"},
    "generator": {"TRANSFORM": f"{MODULE}:generator"},
    "threads": {"TRANSFORM": f"{MODULE}:function", "CALL__CONCURRENCY": "4"},
    "list": {"TRANSFORM": f"{MODULE}:batch"},
    "coroutine": {"TRANSFORM": f"{MODULE}:coroutine"},
    "coroutine of a list": {"TRANSFORM": f"{MODULE}:coroutine_batch"},
}

route = a_route()


def judge(route: PipelineUnderTest) -> None:
    """All others have passed, and each that raised is a dead letter that names what it raised."""
    assert {*values(route.outputs())} == {*FINE}
    assert len(route.outputs()) == len(FINE)
    told = {
        letter.value: header(letter, "hapax-error").partition(":")[0] for letter in route.dead()
    }
    assert (told, route.lag()) == (NAMES, 0)


@pytest.mark.parametrize("form", FORMS)
def test_whatever_business_code_raises_is_a_dead_letter_and_the_others_pass(route, form):
    route.write(*FINE[:10], *DEEDS, *FINE[10:])
    route.run_to_end(DEAD_LETTER__RATE_MAX="1", **FORMS[form])
    judge(route)


def test_so_it_is_in_tasks_of_spark(route):
    route.write(*FINE[:10], *DEEDS, *FINE[10:])
    options = {"DEAD_LETTER__RATE_MAX": "1", "STOP_AFTER__AT_END": "true"}
    route.start(SparkProcess, "s-0", **options, **FORMS["python"]).ends_with(0)
    judge(route)


@pytest.mark.parametrize("name", ["Unready", "Unmade"])
def test_what_leaves_before_the_first_call_leaves_with_2(route, name):
    refused(route, 2, "HAPAX_TRANSFORM", "SystemExit", TRANSFORM=f"{MODULE}:{name}")
    assert untouched(route)


@pytest.mark.parametrize("name", ["Unclosed", "unclosed"])
def test_what_leaves_after_the_last_call_leaves_with_1_and_all_is_done(route, name):
    route.write(*FINE)
    worker = route.worker(STOP_AFTER__AT_END="true", TRANSFORM=f"{MODULE}:{name}")
    worker.ends_with(1)
    assert "its teardown has raised SystemExit" in worker.text()
    assert (values(route.outputs()), route.lag()) == (FINE, 0)


def test_a_process_that_business_code_ends_with_0_ends_with_1_and_its_record_is_found(route):
    route.write(*FINE, b"exit-0")
    codes: list[int] = []
    while not codes or codes[-1] == 1:
        worker = route.worker(STOP_AFTER__AT_END="true", TRANSFORM=f"{MODULE}:at_once")
        codes.append(worker.process.wait(60))
    assert codes[-1] == 0
    assert 1 <= len(codes) - 1 <= 3
    assert values(route.dead()) == [b"exit-0"]

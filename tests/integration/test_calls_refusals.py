"""What is wrong with a transform is said clearly, before anything is read or in a dead letter."""

import pytest

from tests.kit.at_work import refused, untouched
from tests.kit.calls import MODULE
from tests.kit.pipeline_under_test import header
from tests.kit.routes import a_route
from tests.kit.topics import Given

TEN = [Given(b"%d" % number, b"key-%d" % number) for number in range(10)]

route = a_route(*TEN)


@pytest.mark.parametrize("name", ["of_two", "of_none", "generator"])
def test_a_function_of_another_shape_leaves_with_2_before_anything_is_read(route, name):
    refused(route, 2, "HAPAX_TRANSFORM", name, TRANSFORM=f"{MODULE}:{name}")
    assert untouched(route)


@pytest.mark.parametrize("name", ["Unready", "UnreadyClient", "never_opened"])
def test_a_setup_that_raises_leaves_with_2_before_anything_is_read(route, name):
    words = ["HAPAX_TRANSFORM", "ConnectionError: the model is away"]
    refused(route, 2, *words, TRANSFORM=f"{MODULE}:{name}")
    assert untouched(route)


def test_a_list_of_another_length_is_halved_like_one_that_raised(route):
    """One answer is missing where there are several: alone each record has its own."""
    route.run_to_end(TRANSFORM=f"{MODULE}:short")
    assert sorted(each.value or b"" for each in route.outputs()) == [given.value for given in TEN]
    assert route.dead() == []


def test_a_list_that_is_always_too_long_makes_dead_letters_that_say_so(route):
    route.run_to_end(TRANSFORM=f"{MODULE}:long", DEAD_LETTER__RATE_MAX="1")
    assert route.outputs() == []
    errors = {header(each, "hapax-error") for each in route.dead()}
    assert len(route.dead()) == 10
    assert all("2" in error and "1" in error for error in errors), errors


@pytest.mark.parametrize(
    ("name", "text"),
    [("CALL__CONCURRENCY", "0"), ("CALL__ORDER", "partition"), ("CALL__RECORDS_MAX", "0")],
)
def test_settings_of_calls_that_mean_nothing_leave_with_2(route, name, text):
    refused(route, 2, f"HAPAX_{name}", **{name: text})
    assert untouched(route)

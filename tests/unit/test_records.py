"""Values: coordinates, records, outputs."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from hapax.core.errors import ExitCode, PreflightError
from hapax.core.records import Coordinates, Output, Record


@pytest.mark.parametrize("topic", ["orders", "a.b-c_d", "with/slash", "1/2/3"])
def test_coordinates_are_read_back_as_they_were_written(topic):
    coordinates = Coordinates(topic, 3, 17)
    assert Coordinates.parse(str(coordinates)) == coordinates


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders/1",
        "/1/2",
        "orders/-1/2",
        "orders/1/-2",
        "orders/1/x",
        "orders/1/²",
        "orders/٣/2",
        "orders/1/٣",
        "orders/2147483648/1",
        "orders/1/9223372036854775808",
        "o/1/" + "9" * 5000,
    ],
)
def test_anything_else_is_no_coordinates(text):
    with pytest.raises(ValueError, match=r"topic/partition/offset|not enough values"):
        Coordinates.parse(text)


def test_a_record_knows_where_it_stands():
    assert Record("orders", 1, 2, None, b"v").coordinates == Coordinates("orders", 1, 2)


def test_an_output_tells_no_key_from_a_key_that_is_not_given():
    assert Output(b"v").key is UNSET
    assert Output(b"v", key=None).key is None


def test_only_the_value_of_an_output_may_go_without_its_name():
    with pytest.raises(TypeError):
        Output(b"v", b"k")  # type: ignore[call-arg] # the mistake under test


def test_an_error_that_ends_the_process_tells_each_problem_and_its_exit_code():
    error = PreflightError(["no topic", "no broker"])
    assert str(error) == "no topic\nno broker"
    assert error.exit_code is ExitCode.PREFLIGHT

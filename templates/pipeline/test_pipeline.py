"""A transform is a plain function, so its tests need no broker."""

from __future__ import annotations

import json

import pytest

from hapax import Output, Poison, Record
from pipeline import transform


def order(*lines: dict[str, int]) -> Record:
    value = json.dumps({"id": "a-1", "lines": lines}).encode()
    return Record("orders", partition=0, offset=0, key=b"a-1", value=value)


def test_an_order_leaves_with_its_total() -> None:
    output = transform(order({"price": 250, "count": 2}, {"price": 99, "count": 1}))
    assert isinstance(output, Output)
    assert json.loads(output.value or b"")["total"] == 599


def test_an_order_without_lines_is_filtered() -> None:
    assert transform(order()) is None


@pytest.mark.parametrize("value", [None, b"", b"no json", b"{}"])
def test_what_is_no_order_becomes_a_dead_letter(value: bytes | None) -> None:
    with pytest.raises((Poison, ValueError, KeyError)):
        transform(Record("orders", partition=0, offset=0, key=None, value=value))

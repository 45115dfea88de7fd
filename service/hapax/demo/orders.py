"""The business rule of the demo: an order gets its total, a large one becomes two shipments."""

from __future__ import annotations

import msgspec

from hapax.core.records import Output, Record

ORDERS, PRICED, DEAD_LETTERS = "orders", "orders-priced", "orders-dead"
ORDINARY_PRICED, ORDINARY_DEAD_LETTERS = "ordinary-priced", "ordinary-dead"
PARTITIONS = 4
LARGE_CENTS = 50_000
"""Orders from this total on are split."""


class Line(msgspec.Struct, frozen=True):
    """One line of an order."""

    article: str
    quantity: int
    price_cents: int


class Order(msgspec.Struct, frozen=True):
    """What the shop publishes."""

    order: str
    customer: str
    lines: list[Line]


class Shipment(msgspec.Struct, frozen=True):
    """An output: a priced order, or half of one."""

    order: str
    customer: str
    lines: list[Line]
    total_cents: int
    shipment: int


def price(record: Record) -> list[Output]:
    """Raise ValueError for what is no order: not JSON, no lines, a quantity below 1."""
    order = msgspec.json.decode(record.value or b"", type=Order)
    if not order.lines or any(line.quantity < 1 for line in order.lines):
        raise ValueError(f"order {order.order} cannot be shipped")
    large = _total(order.lines) >= LARGE_CENTS
    parts = [order.lines[::2], order.lines[1::2]] if large else [order.lines]
    shipments = [
        Shipment(order.order, order.customer, lines, _total(lines), number)
        for number, lines in enumerate(parts, start=1)
    ]
    return [Output(msgspec.json.encode(shipment)) for shipment in shipments]


def _total(lines: list[Line]) -> int:
    return sum(line.quantity * line.price_cents for line in lines)

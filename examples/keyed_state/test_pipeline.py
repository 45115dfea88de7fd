from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hapax.testing import Pipeline as InMemory

if TYPE_CHECKING:
    from hapax.testing import Pipeline

MINUTE_MS = 60_000


def paid(pipeline: Pipeline, *payments: tuple[str, str, int]) -> list[Any]:
    for event, customer, cents in payments:
        value = json.dumps({"id": event, "cents": cents}).encode()
        pipeline.send(value, key=customer.encode())
    return [json.loads(value or b"") for value in pipeline.run().values("totals")]


def test_totals_are_of_each_customer(hapax_pipeline: Pipeline) -> None:
    totals = paid(hapax_pipeline, ("p-1", "ann", 500), ("p-2", "bob", 120), ("p-3", "ann", 250))
    assert [total["cents"] for total in totals] == [500, 120, 750]
    assert hapax_pipeline.state(b"ann") == {"total": {"payments": 2, "cents": 750}}


def test_a_payment_that_is_sent_twice_counts_once(hapax_pipeline: Pipeline) -> None:
    paid(hapax_pipeline, ("p-1", "ann", 500), ("p-1", "ann", 500))
    assert hapax_pipeline.state(b"ann") == {"total": {"payments": 1, "cents": 500}}


def test_a_batch_that_is_aborted_and_taken_again_counts_once(hapax_pipeline: Pipeline) -> None:
    hapax_pipeline.abort_next()
    assert [total["cents"] for total in paid(hapax_pipeline, ("p-1", "ann", 500))] == [500]


def clicks(transform: str, *minutes: int) -> Any:
    pipeline = InMemory(settings={"HAPAX_TRANSFORM": transform})
    for minute in minutes:
        pipeline.send(b"click", key=b"ann", timestamp_ms=minute * MINUTE_MS)
    return pipeline.run()


def test_a_visit_ends_half_an_hour_after_its_last_click() -> None:
    outputs = clicks("sessions:transform", 1, 20, 45, 80, 81).outputs
    found = [dict(one.headers)["visit"] for one in outputs if one.topic == "output"]
    assert found == [b"1", b"1", b"1", b"2", b"2"]


def test_what_is_said_again_within_a_day_is_dropped() -> None:
    assert clicks("once:transform", 1, 2, 24 * 60 + 1).values("output") == [b"click"] * 2


def test_an_order_has_the_tier_that_its_customer_had_last() -> None:
    topics = {"HAPAX_INPUT__TOPICS": "orders,customers", "HAPAX_GROUP__PROTOCOL": "consumer"}
    topics |= {"HAPAX_GROUP__MEMBERSHIP": "dynamic", "HAPAX_TRANSFORM": "tiers:transform"}
    pipeline, found = InMemory(settings=topics), []
    for topic, value in (("orders", b"1"), ("customers", b"gold"), ("orders", b"2")):
        pipeline.send(value, key=b"ann", topic=topic)
        pipeline.abort_next()
        outputs = [one for one in pipeline.run().outputs if one.topic == "output"]
        found += [dict(one.headers)["tier"] for one in outputs]
    assert found == [b"unknown", b"gold"]
    assert pipeline.state(b"ann") == {"tier": "gold"}

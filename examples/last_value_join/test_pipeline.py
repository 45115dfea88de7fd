from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.testing import Pipeline


def tiers(pipeline: Pipeline) -> list[bytes | None]:
    outputs = [one for one in pipeline.run().outputs if one.topic == "orders-with-tier"]
    return [dict(one.headers)["tier"] for one in outputs]


def test_an_order_has_the_tier_that_its_customer_had_last(hapax_pipeline: Pipeline) -> None:
    hapax_pipeline.send(b"1 book", key=b"ann")
    assert tiers(hapax_pipeline) == [b"unknown"]
    hapax_pipeline.send(b"gold", key=b"ann", topic="customers")
    hapax_pipeline.send(b"silver", key=b"bob", topic="customers")
    assert tiers(hapax_pipeline) == []
    hapax_pipeline.abort_next()
    hapax_pipeline.send(b"2 books", key=b"ann")
    assert tiers(hapax_pipeline) == [b"gold"]
    assert hapax_pipeline.state(b"ann") == {"tier": "gold"}

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.testing import Pipeline


def basket(event: str, **prices: int) -> bytes:
    items = [{"sku": sku, "price": price} for sku, price in prices.items()]
    return json.dumps({"id": event, "items": items}).encode()


def test_each_item_is_a_record_with_its_own_key(hapax_pipeline: Pipeline) -> None:
    result = hapax_pipeline.run(basket("b-1", pen=3, book=20))
    assert [(one.topic, one.key) for one in result.outputs] == [
        ("items", b"pen"),
        ("items", b"book"),
    ]
    assert dict(result.outputs[0].headers)["basket"] == b"b-1"


def test_expensive_items_are_also_in_their_own_topic(hapax_pipeline: Pipeline) -> None:
    result = hapax_pipeline.run(basket("b-1", pen=3, phone=1200))
    assert result.values("expensive") == [b'{"sku": "phone", "price": 1200}']
    assert len(result.values("items")) == 2


def test_a_basket_that_fails_half_way_leaves_nothing_but_its_dead_letter(
    hapax_pipeline: Pipeline,
) -> None:
    broken = b'{"id": "b-1", "items": [{"sku": "pen", "price": 3}, {"sku": "book"}]}'
    result = hapax_pipeline.run(broken)
    assert result.outputs == []
    assert [one.reason for one in result.dead_letters] == ["KeyError"]


def test_all_outputs_of_a_basket_are_there_after_an_abort(hapax_pipeline: Pipeline) -> None:
    hapax_pipeline.abort_next()
    result = hapax_pipeline.run(basket("b-1", pen=3, phone=1200))
    assert len(result.outputs) == 3

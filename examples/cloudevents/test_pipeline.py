from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hapax.testing import Pipeline

STRUCTURED = [("content-type", b"application/cloudevents+json")]


def event(number: str, source: str = "/shop", amount: int = 12) -> bytes:
    data = {"number": 7, "amount": amount}
    kind = "order.placed"
    return json.dumps(
        {"specversion": "1.0", "id": number, "source": source, "type": kind, "data": data}
    ).encode()


def test_an_event_that_is_sent_twice_leaves_once(hapax_pipeline: Pipeline) -> None:
    for _ in range(2):
        hapax_pipeline.send(event("1"), headers=STRUCTURED)
    result = hapax_pipeline.run()
    assert (len(result.outputs), len(result.duplicates)) == (1, 1)


def test_two_sources_may_use_the_same_id(hapax_pipeline: Pipeline) -> None:
    for source in ("/shop", "/outlet"):
        hapax_pipeline.send(event("1", source), headers=STRUCTURED)
    assert len(hapax_pipeline.run().outputs) == 2


def test_binary_events_have_their_id_in_headers(hapax_pipeline: Pipeline) -> None:
    for _ in range(2):
        hapax_pipeline.send(event("1"), headers=[("ce_id", b"1"), ("ce_source", b"/shop")])
    assert len(hapax_pipeline.run().duplicates) == 1


def test_an_order_for_nothing_is_a_dead_letter_at_once(hapax_pipeline: Pipeline) -> None:
    hapax_pipeline.send(event("1", amount=0), headers=STRUCTURED)
    [letter] = hapax_pipeline.run().dead_letters
    assert (letter.reason, letter.attempts) == ("Poison", 1)

"""A basket comes in, each of its items goes out; expensive ones also to a topic of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hapax import Output, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPENSIVE = 1000


def transform(record: Record) -> Iterator[Output]:
    basket = json.loads(record.value or b"")
    for item in basket["items"]:
        value, key = json.dumps(item).encode(), item["sku"].encode()
        yield Output(value, key=key, headers=(("basket", basket["id"].encode()),))
        if item["price"] >= EXPENSIVE:
            yield Output(value, key=key, topic="expensive")

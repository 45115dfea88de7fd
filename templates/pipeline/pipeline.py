"""The business rule: an order comes in, its total goes out. Replace it with yours."""

from __future__ import annotations

import json

from hapax import Output, Poison, Record


def transform(record: Record) -> Output | None:
    """Add the total to an order; filter orders without lines.

    What is raised here makes this record, and no other, a dead letter: Poison at once, anything
    else after HAPAX_RETRY__ATTEMPTS tries.
    """
    if not record.value:
        raise Poison("an order must have a value")
    order = json.loads(record.value)
    if not order["lines"]:
        return None
    order["total"] = sum(line["price"] * line["count"] for line in order["lines"])
    return Output(json.dumps(order).encode())

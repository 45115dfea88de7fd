"""A CloudEvent comes in, an invoice goes out. Repeated events were dropped before this runs."""

from __future__ import annotations

import json

from hapax import Output, Poison, Record


def transform(record: Record) -> Output | None:
    event = json.loads(record.value or b"")
    if event["type"] != "order.placed":
        return None
    order = event["data"]
    if order["amount"] <= 0:
        raise Poison("an order costs something")
    invoice = {"order": order["number"], "due": order["amount"]}
    return Output(json.dumps(invoice).encode(), key=str(order["number"]).encode())

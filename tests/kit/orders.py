"""Business code that does what the record says: its header ``do`` lists the outputs."""

import json
import time
from collections.abc import Iterator
from typing import Any

from hapax import Output, Record


def told(*outputs: dict[str, Any]) -> tuple[str, bytes]:
    """Return the header that orders these outputs.

    value (text, default: the record's value), null (no value), size (bytes to fill up to),
    key (text or None), topic, partition, headers (pairs of text), timestamp_ms.
    """
    return "do", json.dumps(outputs).encode()


def poison(_record: Record) -> Output:
    raise ValueError("always")


def slow(record: Record) -> Iterator[Output]:
    """Take a while, so that a kill finds a batch half done."""
    time.sleep(0.002)
    yield from obey(record)


def obey(record: Record) -> Iterator[Output]:
    """Write what the header ``do`` lists; without it the record's value."""
    headers = dict(record.headers)
    if "raise" in headers:
        raise ValueError("the record says so")
    ordered = headers.get("do")
    if ordered is None:
        yield Output(record.value)
        return
    for order in json.loads(ordered):
        yield _output(record, order)


def _output(record: Record, order: dict[str, Any]) -> Output:
    value = order["value"].encode() if "value" in order else record.value
    if "size" in order:
        value = (value or b"").ljust(order["size"], b".")
    more: dict[str, Any] = {
        name: order[name] for name in ("topic", "partition", "timestamp_ms") if name in order
    }
    if "key" in order:
        more["key"] = None if order["key"] is None else order["key"].encode()
    if "headers" in order:
        more["headers"] = tuple((name, text.encode()) for name, text in order["headers"])
    return Output(None if order.get("null") else value, **more)


def hang(_record: Record) -> Output:
    time.sleep(3600)
    raise AssertionError

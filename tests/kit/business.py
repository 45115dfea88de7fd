"""Business code of the tests: none to three outputs, two topics, and records that raise."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hapax import Output, Record

if TYPE_CHECKING:
    from collections.abc import Iterator


def split(record: Record) -> Iterator[Output]:
    """Write ``n % 4`` outputs, every other one to the second topic; poison raises half-way."""
    event = json.loads(record.value or b"null")
    number = event["n"]
    for part in range(number % 4):
        topic = event["second"] if part % 2 else None
        yield Output(b"%d:%d" % (number, part), topic=topic)
    if event["poison"]:
        raise ValueError(f"event {number} is poison")

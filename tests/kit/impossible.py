"""Contents that no format decodes and outputs that no client sends: what their dead letters say."""

import json
from typing import Any

from hapax import Output, Record
from tests.kit.killers import DEEDS

IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "header name with a lone surrogate": ({"headers": (("\ud800", b"1"),)}, "Output.headers"),
    "header name with a NUL": ({"headers": (("a\0b", b"1"),)}, "Output.headers"),
    "header value of text": ({"headers": (("a", "1"),)}, "Output.headers"),
    "header name of bytes": ({"headers": ((b"a", b"1"),)}, "Output.headers"),
    "topic with a lone surrogate": ({"topic": "\ud800"}, "Output.topic"),
    "topic with a NUL": ({"topic": "a\0b"}, "Output.topic"),
    "topic of 250 letters": ({"topic": "a" * 250}, "Output.topic"),
    "topic that is a dot": ({"topic": "."}, "Output.topic"),
    "topic of bytes": ({"topic": b"out"}, "Output.topic"),
    "partition of 2^31": ({"partition": 2**31}, "Output.partition"),
    "partition of 2^64": ({"partition": 2**64}, "Output.partition"),
    "partition below 0": ({"partition": -1}, "Output.partition"),
    "partition of text": ({"partition": "1"}, "Output.partition"),
    "partition of 5000 digits": ({"partition": 10**5000}, "Exceeds the limit"),
    "timestamp of 2^63": ({"timestamp_ms": 2**63}, "Output.timestamp_ms"),
    "timestamp below 0": ({"timestamp_ms": -5}, "Output.timestamp_ms"),
    "timestamp of a fraction": ({"timestamp_ms": 1.5}, "Output.timestamp_ms"),
    "timestamp of a false zero": ({"timestamp_ms": 0.0}, "Output.timestamp_ms"),
    "timestamp of text": ({"timestamp_ms": "soon"}, "Output.timestamp_ms"),
    "value of text": ({"value": "text"}, "Output.value"),
    "key of text": ({"key": "text"}, "Output.key"),
}
ONLY_THE_CLIENT_KNOWS: dict[str, tuple[dict[str, Any], str]] = {
    "partition that the topic has not": ({"partition": 77}, "_UNKNOWN_PARTITION"),
    "error of a lone surrogate": ({"topic": "raise"}, "\\ud800"),
    "topic that is not there": ({"topic": "no-such-topic"}, "does not exist"),
    "larger than its topic takes": ({"value": b"x" * 30_000}, "MSG_SIZE_TOO_LARGE"),
    "larger than the client sends": ({"value": b"x" * 3_000_000}, "MSG_SIZE_TOO_LARGE"),
}

UNDECODABLE = (b'{"do":', b"", b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"1" * 100_000)
"""Values that are no JSON, or none that can be had: 100,000 levels, a number of as many digits."""
FATAL: dict[str, tuple[dict[str, Any], str]] = {
    name: ({}, "killed its process") for name in ("segfault", "exit", "killed", "hang")
}
ORDERED = {**IMPOSSIBLE, **ONLY_THE_CLIENT_KNOWS, **FATAL}


def contents() -> dict[bytes, str]:
    """Return each value that is refused, as JSON where it is some, and words of its dead letter."""
    asked = {json.dumps({"do": name}).encode(): words for name, (_, words) in ORDERED.items()}
    return {**dict.fromkeys(UNDECODABLE, "it is no JSON"), **asked}


def order(record: Record) -> list[Output]:
    """Do what the decoded value asks for; nothing of a record that cannot pass leaves."""
    name = record.data["do"]
    given, _ = ORDERED.get(name, ({}, ""))
    DEEDS.get(name.encode(), lambda: None)()
    if given.get("topic") == "raise":
        raise ValueError("\ud800")
    passing = Output(record.value)
    return [passing, Output(**{"value": record.value, **given})] if given else [passing]


async def order_later(record: Record) -> list[Output]:
    return order(record)


def order_all(records: list[Record]) -> list[list[Output]]:
    return [order(record) for record in records]

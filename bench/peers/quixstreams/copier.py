"""Quix Streams with exactly-once processing: records go through, two headers are added.

Runs in its own environment: see bench/peers.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from quixstreams import Application, message_context


def with_headers(_value: Any, _key: Any, _timestamp: int, headers: Any) -> list[tuple[str, bytes]]:
    """Add what the service adds, as a handler of this library can."""
    where = message_context()
    source = f"{where.topic}/{where.partition}/{where.offset}".encode()
    return [*headers, ("hapax-id", headers[0][1]), ("hapax-source", source)]


def count(value: bytes, state: Any) -> bytes:
    """Add how often the key has come."""
    number: int = state.get("count", 0) + 1
    state.set("count", number)
    return value + number.to_bytes(8, "big")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("servers", "group", "source", "target"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("records", "headers", "interval-ms"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--counted", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("state"))
    asked = parser.parse_args()
    app = Application(
        asked.servers,
        consumer_group=asked.group,
        auto_offset_reset="earliest",
        commit_interval=asked.interval_ms / 1000,
        processing_guarantee="exactly-once",
        auto_create_topics=bool(asked.counted),  # the changelog is one
        state_dir=asked.state,
        # As the plain loop has them, so that settings are not what is compared.
        consumer_extra_config={"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 100},
        producer_extra_config={"retry.backoff.ms": 5, "linger.ms": 1, "batch.size": 1 << 20},
        loglevel="WARNING",
    )
    formats: dict[str, Any] = {"value_deserializer": "bytes", "value_serializer": "bytes"}
    frame = app.dataframe(app.topic(asked.source, key_serializer="bytes", **formats))
    if asked.headers:
        frame = frame.set_headers(with_headers)
    if asked.counted:
        frame = frame.apply(count, stateful=True)
    frame.to_topic(app.topic(asked.target, key_serializer="bytes", **formats))
    app.run(count=asked.records, collect=False)


if __name__ == "__main__":
    main()

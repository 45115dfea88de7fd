"""Groups as other clients left them, recorded (kit/foreign), under each HAPAX_INPUT__START.

Each recorded group is the group's state in one topic, so one run plays all of them.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer

from hapax.sandbox import SandboxTopic
from tests.kit.at_work import values
from tests.kit.night import Desk
from tests.kit.raw_offsets import commit_raw
from tests.kit.routes import a_route
from tests.kit.topics import Given, committed, ends, produce

LINES = (Path(__file__).parents[1] / "kit/foreign/groups.jsonl").read_text().splitlines()
GROUPS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
COUNTS = (25, 23, 0, 20, 0)
"""Records of each partition when the client had left: what it had read, and what came later."""
LATER = 3
"""So many of them came after the time that START names."""
PLACES = tuple(max(0, count - 2) for count in COUNTS)
STARTS = {
    "earliest": (0,) * len(COUNTS),
    "latest": COUNTS,
    "time": tuple(max(0, count - LATER) for count in COUNTS),
    "places": PLACES,
}
route = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


class Left(NamedTuple):
    """A topic in the state in which a client left it."""

    topic: str
    offsets: list[tuple[int, int, str] | None]

    def begins(self, start: str) -> list[int]:
        """Return where each partition has to be read from."""
        placed = zip(self.offsets, STARTS[start], strict=True)
        return [by_start if offset is None else offset[0] for offset, by_start in placed]


def name(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}/{partition}/{offset}".encode()


def write(topic: str, route, now_ms: int) -> None:
    records = [
        Given(
            name(topic, partition, offset),
            partition=partition,
            timestamp_ms=now_ms - (60_000 if offset >= count - LATER else 3_600_000),
        )
        for partition, count in enumerate(COUNTS)
        for offset in range(count)
    ]
    produce(route.bootstrap, topic, *records)


def left_by_all(route) -> list[Left]:
    """Write the topics and commit the offsets, with their epochs and texts, as recorded."""
    found = [
        Left(f"{route.source}-{one['client']}-{one['start']}", one["offsets"]) for one in GROUPS
    ]
    route.sandbox.create_topics(*(SandboxTopic(one.topic, len(COUNTS)) for one in found))
    now_ms = int(time.time() * 1000)
    for topic, offsets in found:
        write(topic, route, now_ms)
        known = {number: one for number, one in enumerate(offsets) if one is not None}
        commit_raw(route.bootstrap, route.app, topic, known)
    return found


def setting(found: list[Left], start: str) -> str:
    """Return HAPAX_INPUT__START."""
    half_an_hour_ago = datetime.fromtimestamp(time.time() - 1800, UTC).isoformat()
    every = (f"{one.topic}/{n}/{at}" for one in found for n, at in enumerate(PLACES))
    return {"time": half_an_hour_ago, "places": ",".join(every)}.get(start, start)


@pytest.mark.parametrize("start", STARTS)
def test_start_places_what_each_client_has_left_without_an_offset_and_nothing_else(route, start):
    found = left_by_all(route)
    settings = {
        "INPUT__TOPICS": ",".join(one.topic for one in found),
        "INPUT__START": setting(found, start),
    }
    shown: dict[str, list[int]] = {}
    for one in Desk(route, **settings).ask("offsets")["partitions"]:
        shown.setdefault(one["topic"], []).append(one["position"])
    worker = route.run_to_end(**settings)
    for one in found:
        new = [Given(name(one.topic, n, count), partition=n) for n, count in enumerate(COUNTS)]
        produce(route.bootstrap, one.topic, *new)
    route.run_to_end(**settings)

    assert shown == {one.topic: one.begins(start) for one in found}
    assert values(route) == sorted(
        name(one.topic, partition, offset)
        for one in found
        for partition, (begin, count) in enumerate(zip(one.begins(start), COUNTS, strict=True))
        for offset in range(begin, count + 1)
    )
    for one in found:
        assert committed(route.bootstrap, route.app, one.topic) == ends(route.bootstrap, one.topic)
    (passed,) = worker.lines("preflight_passed")
    for one in found:
        missing = one.offsets.count(None)
        remark = f"{one.topic}: {missing} of {len(COUNTS)} partitions have no offset, they begin at"
        partly = 0 < missing < len(COUNTS)
        assert any(remark in each for each in passed["remarks"]) == partly, one.topic


def test_a_group_of_the_consumer_protocol_is_continued_by_a_classic_member(route):
    records = [Given(b"%d" % number, partition=0) for number in range(4)]
    route.write(*records)
    properties = {
        "bootstrap.servers": route.bootstrap,
        "group.id": route.app,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    client = Consumer(properties)
    client.subscribe([route.source])
    message = client.consume(1, 30)[0]
    client.commit(message=message, asynchronous=False)
    client.close()
    route.run_to_end(INPUT__START="latest")
    assert values(route) == [b"1", b"2", b"3"]

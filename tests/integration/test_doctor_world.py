"""What the doctor says of the programs around a pipeline: its writers, its readers, its group."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.kit.commands import run_captured
from tests.kit.raw_offsets import commit_raw
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce_aborted, produce_committed

DAY_MS = 86_400_000
KEYS = [b"customer-%d" % number for number in range(60)]
route = a_route(created=False, partitions=4)


def told(route, check: str, **settings: str) -> list[tuple[str, str]]:
    """Return verdicts and sentences of one check; what is wrong must name its fix."""
    words = [sys.executable, "-m", "hapax", "doctor", "--json"]
    found = json.loads(run_captured(words, env=route.environment(**settings)).stdout)["findings"]
    assert all(one["fix"] for one in found if one["verdict"] in {"WARN", "FAIL"})
    return [(one["verdict"], one["saw"]) for one in found if one["check"] == check]


def write_by(route, partitioner: str, *keys: bytes | None) -> None:
    """Write a record of each key with librdkafka's partitioner of that name."""
    given = {"bootstrap.servers": route.bootstrap, "partitioner": partitioner}
    producer = Producer({**given, "sticky.partitioning.linger.ms": 0})
    for key in keys:
        producer.produce(route.source, value=b"{}", key=key)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("partitioner", "whose", "outputs"),
    [
        ("murmur2_random", "where Java's partitioner puts them", ""),
        ("consistent_random", "where CRC32", "murmur2 puts those of outputs elsewhere"),
        ("fnv1a_random", "where FNV-1a", "murmur2 puts those of outputs elsewhere"),
    ],
)
def test_the_partitioner_that_explains_all_keys_is_named_without_a_warning(
    route, partitioner, whose, outputs
):
    route.create()
    write_by(route, partitioner, *KEYS, *[None] * 20)
    [(verdict, saw)] = told(route, "keys")
    assert verdict == "PASS"
    assert "60 sampled keys" in saw, "a record without a key is no evidence"
    assert whose in saw
    assert outputs in saw


def test_keys_of_two_partitioners_in_one_topic_are_a_warning_that_names_the_other_one(route):
    route.create()
    write_by(route, "murmur2_random", *KEYS[:30])
    write_by(route, "consistent_random", *KEYS[30:])
    [(verdict, saw)] = told(route, "keys")
    assert verdict == "WARN"
    assert "60 sampled keys:" in saw
    assert "a producer uses CRC32" in saw


def test_a_key_in_two_partitions_is_a_warning_whoever_wrote_it(route):
    route.create()
    route.write(*[Given(b"{}", key, partition=at) for key in KEYS[:3] for at in (0, 1)])
    [(verdict, saw)] = told(route, "keys")
    assert verdict == "WARN"
    assert "3 are seen in two partitions" in saw


def test_timestamps_out_of_the_range_of_either_topic_are_named(route):
    forever = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    limits = {f"message.timestamp.{side}.max.ms": str(2 * DAY_MS) for side in ("before", "after")}
    now_ms = int(time.time() * 1000)
    route.create(
        source={**forever, "retention.ms": str(DAY_MS)},
        target={**limits, "retention.ms": "-1"},
    )
    stamps = (now_ms, now_ms + 3 * DAY_MS, now_ms - 9 * DAY_MS, -1)
    route.write(*[Given(b"{}", partition=0, timestamp_ms=one) for one in stamps])
    ahead, none, old = told(route, "timestamps")
    assert {ahead[0], none[0], old[0]} == {"WARN"}
    assert "of 4 sampled records 1 have timestamps in the future, by up to 3.0 days" in ahead[1]
    assert "1 have no timestamp" in none[1]
    assert "up to 9.0 days old, were older than retention.ms=86400000" in old[1]

    [(verdict, saw)] = told(route, "output-timestamps")
    assert verdict == "WARN"
    assert "2 sampled records of the input have a timestamp" in saw, "one ahead, one behind"
    assert told(route, "output-timestamps", OUTPUT__TIMESTAMP="now")[0][0] == "PASS"


def test_an_output_that_takes_no_record_as_old_as_the_input_keeps_them_is_named(route):
    limit = {"message.timestamp.before.max.ms": str(DAY_MS)}
    route.create(target=limit, source={"retention.ms": str(2 * DAY_MS)})
    [(verdict, saw)] = told(route, "output-timestamps")
    assert verdict == "WARN"
    assert "and the input keeps records for longer" in saw


def reader(route, group: str, count: int) -> None:
    """Read so many outputs with a group, and commit as librdkafka does: one past the last one."""
    given: dict[str, Any] = {"bootstrap.servers": route.bootstrap, "group.id": group}
    client = Consumer({**given, "enable.auto.commit": False})
    client.assign([TopicPartition(route.target, 0, OFFSET_BEGINNING)])
    try:
        for _ in range(count):
            assert client.consume(1, 60.0)[0].error() is None
        client.commit(asynchronous=False)
    finally:
        client.close()


def test_a_reader_that_markers_keep_from_the_end_is_named_with_its_number(route):
    route.create()
    for at in (0, 1):
        records = [Given(b"%d" % number, partition=at) for number in range(10)]
        produce_committed(route.bootstrap, route.target, *records)
        produce_aborted(route.bootstrap, route.target, *records[:5])
    names = {name: f"{route.app}-{name}" for name in ("rest", "lag", "end", "midst")}
    reader(route, names["rest"], 10)
    reader(route, names["lag"], 4)
    commit_raw(route.bootstrap, names["end"], route.target, {0: (17, 0, "")})
    commit_raw(route.bootstrap, names["midst"], route.target, {1: (13, 0, "")})
    [(verdict, saw)] = told(route, "readers")
    assert verdict == "WARN"
    assert saw.startswith(f"group {names['rest']} has read every record of 1 partitions, and end")
    assert "committed says 7" in saw
    assert f"({route.target}/0/10)" in saw


def test_offsets_of_another_client_in_our_group_are_named_until_hapax_has_its_own(route):
    route.create()
    route.write(*[Given(b"{}", partition=at) for at in range(4) for _ in range(3)])
    assert route.committed() == dict.fromkeys(range(4)), "the coordinator is up"
    member = "kgo-1f6686ee-ac7d-4b08-8374-1f81a76bccbe"
    commit_raw(route.bootstrap, route.app, route.source, {0: (2, 0, member), 3: (3, 0, member)})
    [(verdict, saw)] = told(route, "group-offsets")
    assert verdict == "WARN"
    assert "of another client (franz-go) in 2 of 4 partitions" in saw
    assert "begins 2 by HAPAX_INPUT__START=earliest" in saw
    worker = route.run_to_end()
    (passed,) = worker.lines("preflight_passed")
    assert any("offsets are another client's" in one for one in passed["remarks"])
    [(verdict, saw)] = told(route, "group-offsets")
    assert verdict == "PASS"
    assert "another client in 1 of 4 partitions" in saw, "nothing came there since"

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

from tests.kit.topics import (
    Given,
    committed,
    ends,
    produce,
    produce_aborted,
    produce_committed,
    produce_open,
    read_back,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.sandbox import Sandbox


def test_what_is_produced_is_read_back_whole(
    sandbox: Sandbox, unique: Callable[[str], str]
) -> None:
    topic = unique("in")
    sandbox.create_topic(topic, partitions=2)
    given = Given(b"value", b"key", (("h", b"1"), ("h", None)), partition=1, timestamp_ms=1234)

    produce(sandbox.bootstrap_servers, topic, given, Given(None, partition=0))

    tombstone, record = read_back(sandbox.bootstrap_servers, topic)
    assert (tombstone.partition, tombstone.value, tombstone.key) == (0, None, None)
    assert (record.partition, record.offset, record.timestamp_ms) == (1, 0, 1234)
    assert (record.key, record.value, record.headers) == (b"key", b"value", given.headers)


def test_readers_see_committed_transactions_and_nothing_of_aborted_or_open_ones(
    sandbox: Sandbox, unique: Callable[[str], str]
) -> None:
    topic = unique("transactions")
    sandbox.create_topic(topic)

    produce_committed(sandbox.bootstrap_servers, topic, b"committed")
    produce_aborted(sandbox.bootstrap_servers, topic, b"aborted")
    with produce_open(sandbox.bootstrap_servers, topic, b"open"):
        visible = read_back(sandbox.bootstrap_servers, topic)
        everything = read_back(sandbox.bootstrap_servers, topic, "read_uncommitted")
        stable = ends(sandbox.bootstrap_servers, topic)
        high = ends(sandbox.bootstrap_servers, topic, "read_uncommitted")

    assert [one.value for one in visible] == [b"committed"]
    assert [one.value for one in everything] == [b"committed", b"aborted", b"open"]
    assert (stable, high) == ({0: 4}, {0: 5})


def test_a_group_that_never_committed_has_no_offsets(
    sandbox: Sandbox, unique: Callable[[str], str]
) -> None:
    topic = unique("uncommitted")
    sandbox.create_topic(topic, partitions=2)

    assert committed(sandbox.bootstrap_servers, unique("group"), topic) == {0: None, 1: None}


def test_redis_keeps_what_it_acknowledged_through_a_kill(sandbox: Sandbox, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.set("claim", "owner")

    sandbox.redis.kill()
    sandbox.redis.start()
    sandbox.redis.await_ready()

    with redis.Redis.from_url(redis_url) as client:
        assert client.get("claim") == b"owner"
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

"""The format before: segments of time that open, fill up, grow old and go as a whole."""

import pytest

from hapax.core.records import Coordinates
from hapax.sandbox.redis_server import Redis
from tests.kit.claim_stores import (
    HOUR_MS,
    OLD_SMALL_BUCKETS,
    admin,
    field,
    ids,
    mutate_old,
    old,
    records,
)
from tests.kit.waiting import await_

pytestmark = [
    pytest.mark.real,
    pytest.mark.deep,
]  # how claims are stored; what they promise is in test_claims.py

META = "hapax:{shop}:claims"
FIRST = {0: Coordinates("orders", 0, 0)}


def bits(server: Redis) -> list[int]:
    return [int(each.split()[1]) for each in field(server, META, "segments").split(b",")]


def test_buckets_expire_as_a_whole(server):
    store = old(server.url, ttl_ms=100)
    store.claim(ids(1_000), records(1_000), {})
    assert admin(server).dbsize() > 100
    await_(lambda: admin(server).dbsize() == 1)
    assert admin(server).keys() == [META.encode()]
    assert store.claim(ids(1_000), records(1_000, at=5), {}) == {}


def age(server: Redis, left_ms: int) -> None:
    """Make the segments as old as if only ``left_ms`` of their time were left."""
    redis = admin(server)
    seconds, micros = redis.time()
    number, bits, _ = field(server, META, "segments").split(b",")[-1].split()
    drop_ms = b"%d" % (seconds * 1000 + micros // 1000 + left_ms)
    redis.hset(META, "segments", b" ".join((number, bits, drop_ms)))


def test_a_claim_in_an_older_segment_counts(server):
    store = old(server.url)
    store.claim([b"x"], records(1), {})
    age(server, HOUR_MS // 2)
    assert store.claim([b"x", b"y"], records(2, at=1), {}) == FIRST
    assert field(server, META, "segments").count(b",") == 1
    for _ in range(2):
        assert store.claim([b"x"], records(1), {}) == {}
        assert store.claim([b"y"], records(1), {}) == {0: Coordinates("orders", 0, 2)}


def test_a_segment_past_its_time_is_forgotten(server):
    store = old(server.url)
    store.claim([b"x"], records(1), {})
    age(server, -1)
    assert store.claim([b"x"], records(1, at=1), {}) == {}


def test_an_id_is_remembered_for_one_ttl_even_when_its_segment_is_old(server):
    store = old(server.url)
    store.claim([b"x"], records(1), {})
    age(server, HOUR_MS + 60_000)
    store.claim([b"late"], records(1), {})
    bucket_ttls = {admin(server).pttl(key) for key in admin(server).keys(f"{META}:*")}
    assert min(bucket_ttls) > HOUR_MS


def test_workers_with_different_ttls_do_not_open_segments_in_turn(server):
    short, long = old(server.url, ttl_ms=HOUR_MS), old(server.url, ttl_ms=10 * HOUR_MS)
    for number in range(10):
        for store in (short, long):
            store.claim([b"x"], records(1, at=number), {})
    assert field(server, META, "segments").count(b",") == 1


def test_a_full_segment_is_followed_by_one_with_more_buckets(server):
    store = mutate_old(old(server.url), OLD_SMALL_BUCKETS)
    opened = []
    for at in range(0, 70, 10):
        store.claim(ids(10, at=at), records(10, at=at), {})
        opened.append(len(bits(server)))
    assert opened == [1, 1, 2, 2, 2, 2, 3]
    assert bits(server) == [3, 4, 5]
    assert sorted(store.claim(ids(70), records(70, partition=1), {})) == list(range(70))


def test_a_segment_that_stayed_nearly_empty_is_followed_by_one_with_fewer_buckets(server):
    store = old(server.url)
    for _ in range(2):
        store.claim([b"x"], records(1), {})
        age(server, HOUR_MS // 2)
    store.claim([b"x"], records(1), {})
    assert bits(server) == [12, 10]


def test_a_bucket_is_kept_packed(server):
    store = old(server.url)
    for at in range(0, 100_000, 10_000):
        store.claim(ids(10_000, at=at), records(10_000, at=at), {})
    redis = admin(server)
    packed = {"listpack", "ziplist"}  # Redis 7, Redis 6.2
    assert {redis.object("encoding", key).decode() for key in redis.keys(f"{META}:*")} < packed

"""Each partitioner puts records where its name says, and murmur2 where Java does."""

from collections import Counter

import pytest

from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given

# Kafka's hash of keys, from Austin Appleby's published MurmurHash2 with Kafka's seed.

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash as Java sees it: a signed number of 32 bits."""
    state = _SEED ^ len(key)
    whole = len(key) & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(key[place : place + 4], "little") * _MIX & _WORD
        word = (word ^ word >> 24) * _MIX & _WORD
        state = state * _MIX & _WORD ^ word
    if rest := key[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * _MIX & _WORD
    state = (state ^ state >> 13) * _MIX & _WORD
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state


def java_partition(key: bytes, partitions: int) -> int:
    """Return where a Java producer puts a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_our_murmur2_is_that_of_kafkas_own_test_vectors(key, expected):
    assert murmur2(key) == expected


def test_every_partitioner_puts_keys_where_its_name_says(sandbox, tmp_path):
    keys = [b"", b"\x00\xff", *(b"key-%d" % number for number in range(38))]
    routes = {}
    for partitioner in ("murmur2", "consistent_random", "round_robin", "random"):
        route = PipelineUnderTest(sandbox, tmp_path, partitions=4, OUTPUT__PARTITIONER=partitioner)
        route.create()
        routes[partitioner] = route
        route.write(*(Given(b"with key", key, partition=0) for key in keys * 2))
        route.write(*(Given(b"without", partition=0) for _ in range(40)))
        route.worker(STOP_AFTER__RECORDS="120")
    places = {}
    for partitioner, route in routes.items():
        route.await_outputs(120)
        route.close()
        places[partitioner] = [(record.key, record.partition) for record in route.outputs()]
        assert Counter(key for key, _ in places[partitioner]) == Counter([*keys * 2, *[None] * 40])
    keyed = {
        name: [place for place in found if place[0] is not None] for name, found in places.items()
    }
    assert set(keyed["murmur2"]) == {(key, java_partition(key, 4)) for key in keys}
    by_key = dict(keyed["consistent_random"])
    # librdkafka's consistent_random takes an empty key for none.
    assert all(by_key[key] == partition for key, partition in keyed["consistent_random"] if key)
    assert set(Counter(partition for _, partition in places["round_robin"]).values()) == {30}
    assert {partition for _, partition in places["random"]} == {0, 1, 2, 3}

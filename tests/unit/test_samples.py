"""Where keys lie and how late records are, by vectors of the clients themselves.

murmur2: Kafka's own test (UtilsTest) and kafka-clients 4.3.1; the others, and partitions of 12:
Sarama 1.61.1, kafka-go 0.4.51 and Go's hash/fnv and hash/crc32.
"""

import pytest

from hapax.cluster.cluster_state import HASHES, fnv1a, murmur2, sample_of

POSITIVE = 0x7FFFFFFF
LONG = b"a much longer key, with words"
IN_12 = {  # murmur2, CRC32, FNV-1a
    b"order-815": (11, 4, 0),
    b"a": (4, 3, 0),
    b"b": (8, 5, 3),
    b"key-1": (0, 2, 10),
    "é".encode(): (3, 2, 9),
    LONG: (5, 9, 0),
    b"": (9, 0, 3),
}


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_java_without_its_sign(key, signed):
    assert murmur2(key) == signed & POSITIVE


@pytest.mark.parametrize(
    ("key", "unsigned"), [(b"order-815", 3414729844), (b"key-1", 1474311238), (b"", 2166136261)]
)
def test_fnv1a_is_the_distance_of_the_signed_hash_from_zero(key, unsigned):
    assert fnv1a(key) == (unsigned if unsigned <= POSITIVE else 2**32 - unsigned)


@pytest.mark.parametrize("key", IN_12)
def test_a_key_has_the_partition_that_each_client_gives_it(key):
    assert tuple(hashed(key) % 12 for hashed in HASHES.values()) == IN_12[key]


def test_each_key_counts_once_for_each_partition_and_for_each_partitioner_that_puts_it_there():
    records = [(11, b"order-815", 5), (11, b"order-815", 6), (4, b"order-815", 7), (1, b"b", 8)]
    found = sample_of([*records, (3, None, 9)], 12, 10)
    assert found.placed == {"murmur2": 1, "crc32": 1, "": 1}
    assert (found.placed_by(), found.torn) == (3, 1)
    assert found.timestamps_ms == (5, 6, 7, 8, 9)
    found = sample_of([(0, b"key-1", 1), (0, LONG, 1)], 1, 1)
    assert found.placed_by("murmur2") == found.placed_by("crc32", "fnv1a") == 2


@pytest.mark.parametrize(
    ("records", "behind_ms"),
    [
        ([(0, None, 50), (0, None, 90), (0, None, 20), (0, None, 95)], 70),
        ([(0, None, 90), (1, None, 20)], 0),  # another partition
        ([(0, None, 500), (0, None, 90)], 0),  # one of the future says nothing of those after it
        ([(0, None, 90), (0, None, -1)], 0),  # no timestamp is no old one
    ],
)
def test_a_record_is_behind_by_its_distance_from_the_latest_before_it(records, behind_ms):
    assert sample_of(records, 2, 100).behind_ms == behind_ms

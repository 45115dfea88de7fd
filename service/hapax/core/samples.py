"""What the last records of an input topic say of their producers, as counts. Pure.

Hashes of keys: Kafka's ``Utils.murmur2``, librdkafka's ``rd_crc32``, and FNV-1a as Sarama's
``partitioner.go`` takes it, kafka-go's ``Hash`` and librdkafka's ``rdfnv1a.c`` after it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from zlib import crc32

from hapax.core.cluster_state import LastRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Sampled = tuple[int, bytes | None, int]  # partition, key, timestamp in Unix ms

_ALL, _POSITIVE = 0xFFFFFFFF, 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a key, without its sign as Java's partitioner takes it."""
    factor, found, whole = 0x5BD1E995, 0x9747B28C ^ len(key), len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & _ALL
        found = (found * factor & _ALL) ^ ((word ^ word >> 24) * factor & _ALL)
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & _ALL
    found = (found ^ found >> 13) * factor & _ALL
    return (found ^ found >> 15) & _POSITIVE


def fnv1a(key: bytes) -> int:
    """Return the absolute value of the hash as a number of 32 bits with a sign."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & _ALL
    return min(found, (1 << 32) - found)


HASHES: Mapping[str, Callable[[bytes], int]] = {"murmur2": murmur2, "crc32": crc32, "fnv1a": fnv1a}
"""What each partitioner divides by the number of partitions; the rest is the partition."""


def sample_of(records: Iterable[Sampled], partitions: int, seen_ms: int) -> LastRecords:
    stamps, latest, behind_ms = [], dict[int, int](), 0
    seen: dict[bytes, set[int]] = {}
    for partition, key, timestamp_ms in records:
        stamps.append(timestamp_ms)
        if 0 <= timestamp_ms <= seen_ms:
            latest[partition] = max(timestamp_ms, latest.get(partition, 0))
            behind_ms = max(behind_ms, latest[partition] - timestamp_ms)
        if key is not None:
            seen.setdefault(key, set()).add(partition)
    placed = Counter(
        ",".join(name for name, hashed in HASHES.items() if hashed(key) % partitions == number)
        for key, numbers in seen.items()
        for number in numbers
    )
    torn = sum(len(numbers) > 1 for numbers in seen.values())
    return LastRecords(partitions, torn, dict(placed), tuple(sorted(stamps)), behind_ms, seen_ms)

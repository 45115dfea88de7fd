"""Kafka's hash of keys, from Austin Appleby's published MurmurHash2 with Kafka's seed."""

from __future__ import annotations

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

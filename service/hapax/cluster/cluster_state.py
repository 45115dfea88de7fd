"""What adapters found out about brokers, claim store and process, as plain values to judge.

Nothing here is a verdict. A fact that could not be had is None or absent, and ``untold`` says why,
by the name of what was asked for.

Hashes of keys: Kafka's ``Utils.murmur2``, librdkafka's ``rd_crc32``, and FNV-1a as Sarama's
``partitioner.go`` takes it, kafka-go's ``Hash`` and librdkafka's ``rdfnv1a.c`` after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from hapax.cluster.partition_offsets import LogOffsets  # noqa: TC001 - as above
from hapax.core.ports import Stuck  # noqa: TC001 - as above
from hapax.core.records import TopicPartition  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Sampled = tuple[int, bytes | None, int]  # partition, key, timestamp in Unix ms

IN_SYNC_MIN = "min.insync.replicas"


class Right(msgspec.Struct, frozen=True):
    """One grant in the words of Kafka's authorizer (KIP-11; prefixes: KIP-290).

    resource   TOPIC, GROUP, TRANSACTIONAL_ID or CLUSTER
    name       of the resource; the cluster's is ``kafka-cluster``
    operation  READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS or IDEMPOTENT_WRITE. READ and WRITE include
               DESCRIBE, which is therefore only named where it is the only one.
    reason     what it is needed for, a phrase
    pattern    LITERAL, or PREFIXED for all names that begin so
    optional   the service runs without it; ``reason`` names what does not work
    """

    resource: str
    name: str
    operation: str
    reason: str
    pattern: str = "LITERAL"
    optional: bool = False


class Address(msgspec.Struct, frozen=True):
    """One ``host:port``.

    problem  why no TCP connection came about; None where one did
    unknown  whether name service says that there is no such host: waiting does not cure that
    """

    place: str
    problem: str | None = None
    unknown: bool = False


class BrokerAnswers(NamedTuple):
    """What one query of the brokers found.

    away      addresses with what is wrong there, when no broker answered; else empty
    problem   the sentence about brokers that are not to be had; empty: there is none
    refused   whether no waiting cures that; ``suspect``: whether that may be so
    absent    topics that do not exist, or may not be read: one sentence each
    cluster   Kafka's id of the cluster that answered (KIP-78); None: none did, or it has none
    open      whether an address that did not answer accepts connections: it may be slow
    """

    away: str = ""
    problem: str = ""
    refused: bool = False
    suspect: bool = False
    absent: tuple[str, ...] = ()
    cluster: str | None = None
    open: bool = False


class Partition(msgspec.Struct, frozen=True):
    """One partition according to the metadata; broker ids, the preferred leader first."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Topic(msgspec.Struct, frozen=True):
    """One topic.

    problem      why it is not known; None where it is
    settings     of the topic, by Kafka's names
    operations   what the user may do with it; None where the brokers do not report it
    """

    problem: str | None = None
    partitions: Mapping[int, Partition] = {}
    settings: Mapping[str, str] = {}
    operations: tuple[str, ...] | None = None


class GroupMember(msgspec.Struct, frozen=True):
    """One member of the consumer group."""

    client_id: str
    host: str
    static_name: str | None
    topics: tuple[str, ...]
    partitions: int


class ConsumerGroup(msgspec.Struct, frozen=True):
    """The consumer group. ``state`` as Kafka names it; ``protocol``: classic or consumer."""

    state: str
    protocol: str
    assignor: str
    members: tuple[GroupMember, ...] = ()
    operations: tuple[str, ...] | None = None


class Log(msgspec.Struct, frozen=True):
    """One partition's log; None where it is not known.

    offsets            where it begins and ends
    last_stable_later  its last stable offset after a moment
    committed          next offset of the group
    since               for some ages in ms: first offset whose record is younger than that; the
                        end of the log where none is
    cluster_id          from the committed offset's metadata: the cluster it was committed on
    foreign             the client that committed in place of Hapax; empty: it does not say which
    """

    offsets: LogOffsets | None = None
    last_stable_later: int | None = None
    committed: int | None = None
    since: Mapping[int, int] = {}
    cluster_id: str | None = None
    foreign: str | None = None

    @property
    def unread(self) -> bool:
        known = self.offsets is not None and self.committed is not None
        return known and self.offsets.lag(self.committed) > 0  # type: ignore[union-attr, arg-type]

    @property
    def stuck(self) -> bool:
        if self.offsets is None or self.offsets.last_stable != self.last_stable_later:
            return False
        return self.offsets.last_stable_offset_lag > 0


class LastRecords(msgspec.Struct, frozen=True):
    """What the last records of one topic say; no key is kept, for it goes into archives.

    partitions     of the topic
    torn           keys that were seen in two partitions or more
    placed         places of keys by the partitioners that choose them, joined by commas
    timestamps_ms  of all records, in Unix ms, sorted
    behind_ms      how much older a record's timestamp is than that of one before it, at most
    seen_ms        when they were read, in Unix ms
    """

    partitions: int
    torn: int = 0
    placed: dict[str, int] = {}
    timestamps_ms: tuple[int, ...] = ()
    behind_ms: int = 0
    seen_ms: int = 0

    def placed_by(self, *partitioners: str) -> int:
        """Return how many places of keys all of these partitioners choose."""
        by = set(partitioners)
        return sum(n for names, n in self.placed.items() if by <= set(names.split(",")))


class ReaderAtRest(NamedTuple):
    """A group whose offset is one past a partition's last record, and before its end."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int


class ClusterState(msgspec.Struct, frozen=True):
    """What the brokers reported.

    bootstrap   addresses as configured
    listeners   by broker id, addresses as the brokers advertise them
    problem     why no metadata came; None where they did
    apis        highest version of each request that every broker takes, by name
    controller  broker id, -1 where there is none
    settings    by broker id, settings of the broker
    overridden  by broker id, what its file says of ``min.insync.replicas`` where the cluster's
                dynamic default is served in its place
    cluster_id  Kafka's id of the cluster; None where they do not report it
    samples     by input topic, what its last records say
    readers     other groups at the ends of the outputs, before markers and aborted records
    undecodable  by partition, the set at its next offset that the client cannot decode
    ids         by transactional id, why the user may not use it; empty where it may
    """

    bootstrap: tuple[Address, ...] = ()
    listeners: Mapping[int, Address] = {}
    problem: str | None = None
    apis: Mapping[str, int] = {}
    controller: int = -1
    topics: Mapping[str, Topic] = {}
    settings: Mapping[int, Mapping[str, str]] = {}
    overridden: Mapping[int, str] = {}
    group: ConsumerGroup | None = None
    logs: Mapping[TopicPartition, Log] = {}
    ids: Mapping[str, str] = {}
    cluster_id: str | None = None
    undecodable: Mapping[TopicPartition, Stuck] = {}
    samples: Mapping[str, LastRecords] = {}
    readers: tuple[ReaderAtRest, ...] = ()
    untold: Mapping[str, str] = {}


class ProcessState(msgspec.Struct, frozen=True):
    """This process. ``files_max``: open files that it may have; None where there is no limit."""

    librdkafka: str
    libraries: Mapping[str, str]
    files_max: int | None


# -- What the last records of an input topic say of their producers -----------------------------

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

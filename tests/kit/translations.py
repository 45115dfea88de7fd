"""Offsets of a topic to those of its mirror, each compared with what is on both clusters.

``cleaned`` topics lose records to the cleaner of the brokers, as compacted topics do.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from hapax.core.headers import SOURCE, coordinates
from hapax.operations.offsets import translated
from hapax.settings import load_settings
from tests.kit.topics import Given, committed, ends, produce_aborted, produce_committed, read_back
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hapax.core.records import Record
    from hapax.core.translation import Translated
    from tests.kit.mirrors import Mirror

CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "0",
}
_AT_ONCE = 6


class Judged(NamedTuple):
    """What came of places in a mirror: how many were asked, and how many were wrong.

    twice, skipped  places that read a record again, and that leave one out
    """

    asked: int
    twice: int
    skipped: int

    @property
    def wrong(self) -> int:
        return self.twice + self.skipped


@contextmanager
def quick_cleaner(*bootstrap_servers: str) -> Iterator[None]:
    """Let the cleaners of brokers look for work all the time, not every 15 seconds."""

    def alter(servers: str, kind: AlterConfigOpType) -> None:
        client = AdminClient({"bootstrap.servers": servers})
        entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=kind)
        asked = [
            ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
            for broker in client.list_topics(timeout=30).brokers
        ]
        for done in client.incremental_alter_configs(asked).values():
            done.result(30)

    for servers in bootstrap_servers:
        alter(servers, AlterConfigOpType.SET)
    try:
        yield
    finally:
        for servers in bootstrap_servers:
            alter(servers, AlterConfigOpType.DELETE)


def in_phases(mirror: Mirror) -> int:
    """Write to a mirror before, while and after it works and records are cleaned away.

    Return how many records were written and committed.
    """
    phases = [given_at(phase) for phase in range(3)]
    write_all(mirror, phases[0])
    await_cleaned(mirror.bootstrap, mirror.source, len(phases[0]))
    worker = mirror.worker()
    write_all(mirror, phases[1])
    await_mirrored(mirror)
    written = len(phases[0]) + len(phases[1])
    await_cleaned(mirror.bootstrap, mirror.source, written)
    await_cleaned(mirror.there, mirror.target, written)
    write_all(mirror, phases[2])
    await_mirrored(mirror)
    assert worker.terminate() == 0, worker.text()
    return written + len(phases[2])


def given_at(phase: int, count: int = 36) -> list[Given]:
    """Records of few keys, in the last phase of one each; times are shared, and out of order."""
    keys = 4 if phase < 2 else count
    times_ms = [1_700_000_000_000 + 60_000 * phase + 3_600_000 * hours for hours in (0, 0, 1, -1)]
    return [
        Given(b"%d" % number, b"k%d" % (number % keys), (), number % 3, times_ms[number // 3 % 4])
        for number in range(count)
    ]


def write_all(mirror: Mirror, records: list[Given]) -> None:
    """Write them single and in a transaction, between aborted ones."""
    half = len(records) // 2
    mirror.write(*records[:half])
    produce_aborted(mirror.bootstrap, mirror.source, *records[:6])
    produce_committed(mirror.bootstrap, mirror.source, *records[half:])


def await_cleaned(bootstrap: str, topic: str, written: int) -> None:
    """Wait until most records are gone. The newest segment is never cleaned: begin new ones."""

    def cleaned() -> bool:
        produce_aborted(bootstrap, topic, *(Given(b"a", b"a", (), one) for one in range(3)))
        return len(read_back(bootstrap, topic)) <= written // 2

    await_(cleaned, 90, lambda: str(read_back(bootstrap, topic)))


def await_mirrored(mirror: Mirror) -> None:
    """Wait until the progress of each partition is at its end."""

    def done() -> bool:
        groups = {
            f"{mirror.app}--from/{mirror.source}/{number}": end
            for number, end in ends(mirror.bootstrap, mirror.source).items()
        }
        return all(
            committed(mirror.there, group, mirror.target)[0] == end for group, end in groups.items()
        )

    await_(done, 60, mirror._logs)


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets of a group that is a consumer of the topic, and stopped."""
    asked = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    client = AdminClient({"bootstrap.servers": bootstrap})
    answer = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
    for one in answer[group].result(30).topic_partitions:
        assert one.error is None


def every_offset_translated(mirror: Mirror, upto: dict[int, int]) -> list[Translated]:
    """Return the places of all offsets of the input, from 0 to the end, end included."""
    settings = load_settings(mirror.environment(INSTANCE="desk"))

    def of(at: int) -> list[Translated]:
        group = f"{mirror.app}-at-{at}"
        commit(mirror.bootstrap, group, mirror.source, _at(upto, at))
        return translated(settings, group, lambda _text: None)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = [one for some in threads.map(of, range(max(upto.values()) + 1)) for one in some]
    assert {(one.partition, one.committed) for one in found} == {
        (number, at) for number, end in upto.items() for at in range(end + 1)
    }
    return found


def judged(outputs: Sequence[Record], places: Sequence[tuple[int, int, int]]) -> Judged:
    """Compare places (partition, committed, offset) with what comes before and behind them.

    A record behind a place that comes from below the committed offset is read twice; one before it
    that comes from the committed offset on is left out.
    """
    twice = skipped = 0
    for number, at, place in places:
        there = [
            (record.offset, source.offset)
            for record in outputs
            if record.partition == number
            and (source := coordinates(dict(record.headers)[SOURCE])) is not None
        ]
        again = any(offset >= place and origin < at for offset, origin in there)
        twice += again
        skipped += not again and any(offset < place and origin >= at for offset, origin in there)
    return Judged(len(places), twice, skipped)


def by_time(mirror: Mirror, found: Sequence[Translated]) -> list[tuple[int, int, int]]:
    """Return where the time stamp leads of the record that is read next at each offset.

    What tools do that do not know coordinates. An offset without a record behind it leads to the
    end, as it should.
    """
    inputs, consumer = (
        mirror.inputs(),
        Consumer({"bootstrap.servers": mirror.there, "group.id": "by-time", "log_level": 0}),
    )
    known: dict[tuple[int, int], int] = {}

    def place(number: int, at: int) -> int | None:
        times = (
            record.timestamp_ms
            for record in inputs
            if record.partition == number and record.offset >= at
        )
        time_ms = next(times, None)
        if time_ms is None:
            return None
        if (number, time_ms) not in known:
            asked = TopicPartition(mirror.target, number, time_ms)
            (answer,) = consumer.offsets_for_times([asked], 30)
            assert answer.error is None
            known[number, time_ms] = answer.offset
        return known[number, time_ms]

    try:
        places = [(one, place(one.partition, one.committed)) for one in found]
    finally:
        consumer.close()
    return [
        (one.partition, one.committed, one.offset if at is None or at < 0 else at)
        for one, at in places
    ]


def _at(upto: dict[int, int], at: int) -> dict[int, int]:
    return {number: at for number, end in upto.items() if at <= end}

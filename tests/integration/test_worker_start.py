"""A start: what waits in memory while the producer registers, and many partitions at once."""

import time

from hapax.kafka.consume.source import WAITING_MAX
from tests.kit.parts import Parts
from tests.kit.topics import Given, produce

RECORDS = 20_000


def test_while_the_producer_registers_only_a_first_batch_waits_and_none_is_lost_by_it(
    sandbox, unique
):
    topic, app = unique("source"), unique("app")
    sandbox.create_topic(topic, 3)
    produce(sandbox.bootstrap_servers, topic, *(b"%d" % number for number in range(RECORDS)))
    with Parts(sandbox.bootstrap_servers, topic, unique("target"), app) as parts:
        met, until_s = 0, time.monotonic() + 60
        batch = parts.source.take(1, 0.1)
        while not batch.records and time.monotonic() < until_s:  # places a group without offsets
            batch = parts.source.take(1, 0.1)
        while met < WAITING_MAX and time.monotonic() < until_s:
            parts.source.attend(0.05)
            met = len(parts.source._states.stash)
        for _ in range(2000):  # a client that is not paused hands out one with each call
            parts.source.attend(0.0)
        assert len(parts.source._states.stash) == WAITING_MAX
        places = {record.partition: [record.offset] for record in batch.records}
        while sum(map(len, places.values())) < RECORDS and time.monotonic() < until_s:
            for record in parts.source.take(3000, 0.1).records:
                places.setdefault(record.partition, []).append(record.offset)
    assert sum(map(len, places.values())) == RECORDS
    assert all(offsets == list(range(len(offsets))) for offsets in places.values())


PARTITIONS = 300


def test_a_first_start_on_many_partitions_places_all_of_them_with_the_first_takes(sandbox, unique):
    topic, app = unique("source"), unique("app")
    sandbox.create_topic(topic, PARTITIONS)
    one_each = (Given(b"x", partition=number) for number in range(PARTITIONS))
    produce(sandbox.bootstrap_servers, topic, *one_each)
    with Parts(sandbox.bootstrap_servers, topic, unique("target"), app) as parts:
        took_s, seen, until_s = [0.0], set[int](), time.monotonic() + 60
        while len(seen) < PARTITIONS and time.monotonic() < until_s:
            began_s = time.monotonic()
            seen |= {record.partition for record in parts.source.take(1000, 0.1).records}
            took_s.append(time.monotonic() - began_s)
    assert len(seen) == PARTITIONS
    assert max(took_s) < 6  # one by one it took 19 s, without a poll

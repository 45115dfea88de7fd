"""Outputs on another cluster: a mirror that is exact to the byte, whatever dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.headers import SOURCE
from hapax.sandbox import Sandbox
from tests.kit.at_work import refused
from tests.kit.mirrors import Mirror, given
from tests.kit.night import Desk
from tests.kit.topics import Given, committed, produce_aborted, produce_committed
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.core.records import Record


@pytest.fixture(scope="module")
def other() -> Iterator[Sandbox]:
    """The cluster of the outputs."""
    with Sandbox(redis=False) as made:
        yield made


@pytest.fixture
def mirror(sandbox: Sandbox, other: Sandbox, tmp_path: Path) -> Iterator[Mirror]:
    made = Mirror(sandbox, other, tmp_path, partitions=3)
    made.create()
    yield made
    made.close()


def test_a_mirror_has_every_record_once_in_order_and_equal_to_the_byte(mirror: Mirror) -> None:
    mirror.write(*given(300))
    produce_aborted(mirror.bootstrap, mirror.source, *given(30, 300))
    mirror.write(*given(300, 330))
    mirror.run_to_end(60)
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 600
    mirror.write(*given(60, 700))
    mirror.run_to_end(60)
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 660


def test_an_output_cluster_that_is_the_one_that_is_read_is_refused_with_2(
    sandbox: Sandbox, mirror: Mirror
) -> None:
    port = sandbox.bootstrap_servers.rpartition(":")[2]
    reason = refused(mirror, 2, OUTPUT__KAFKA__BOOTSTRAP_SERVERS=f"localhost:{port}")
    assert "its brokers are those of cluster" in reason


def test_an_output_topic_that_is_absent_there_is_refused_with_3(mirror: Mirror) -> None:
    refused(mirror, 3, "HAPAX_OUTPUT__TOPIC", OUTPUT__TOPIC=f"{mirror.target}-absent")


def test_progress_that_went_with_the_output_topic_stops_with_6_and_doubles_nothing(
    mirror: Mirror,
) -> None:
    mirror.write(*given(30))
    mirror.run_to_end(60)
    client = AdminClient({"bootstrap.servers": mirror.there})
    client.delete_topics([mirror.target])[mirror.target].result(30)
    await_(lambda: mirror.target not in client.list_topics(timeout=10).topics, 30)
    mirror.other.create_topic(mirror.target, 3)
    refused(mirror, 6, "has no progress of it")
    assert mirror.outputs() == []


def test_an_input_topic_that_was_recreated_stops_with_6(mirror: Mirror) -> None:
    mirror.write(*given(30))
    mirror.run_to_end(60)
    client = AdminClient({"bootstrap.servers": mirror.bootstrap})
    client.delete_topics([mirror.source])[mirror.source].result(30)
    await_(lambda: mirror.source not in client.list_topics(timeout=10).topics, 30)
    mirror.sandbox.create_topic(mirror.source, 3)
    mirror.write(*given(60))
    refused(mirror, 6, "a topic that was deleted")
    assert len(mirror.outputs()) == 30


def test_records_that_have_been_on_the_other_cluster_are_not_sent_back(
    sandbox: Sandbox, other: Sandbox, mirror: Mirror, tmp_path: Path
) -> None:
    mirror.write(*given(30))
    mirror.run_to_end(60)
    back = Mirror(other, sandbox, tmp_path, partitions=3)
    settings: dict[str, str | None] = {
        "INPUT__TOPICS": mirror.target,
        "OUTPUT__TOPIC": mirror.source,
        "DEAD_LETTER__TOPIC": None,
    }
    try:
        worker = back.run_to_end(60, **settings)
    finally:
        back.close()
    looped = [line["looped"] for line in worker.lines("transaction_committed")]
    assert sum(map(int, map(str, looped))) == 30
    assert len(mirror.inputs()) == 30


def test_every_offset_of_a_group_is_translated_to_the_record_it_would_read_next(
    mirror: Mirror,
) -> None:
    same_time = [one._replace(timestamp_ms=1_700_000_000_000) for one in given(90)]
    mirror.write(*same_time[:30])
    produce_aborted(mirror.bootstrap, mirror.source, *same_time[:12])
    produce_committed(mirror.bootstrap, mirror.source, *same_time[30:60])
    mirror.run_to_end(60)
    produce_aborted(mirror.there, mirror.target, *same_time[:21])
    mirror.write(*same_time[60:])
    mirror.run_to_end(60)
    inputs, outputs, ends = mirror.inputs(), mirror.outputs(), mirror.output_ends()
    desk, by_time_wrong = Desk(mirror), 0
    first = min(one.offset for one in outputs)
    for group, at in [(f"{mirror.app}-{at}", at) for at in (0, 1, 9, 12, 15, 24, 30, 36)]:
        commit(mirror.bootstrap, group, mirror.source, dict.fromkeys(range(3), at))
        found = desk.ask("offsets", "translate", "--group", group, "--yes")["partitions"]
        assert [one["partition"] for one in found] == [0, 1, 2]
        for one in found:
            number, place = one["partition"], one["offset"]
            left = [
                str(record.coordinates).encode()
                for record in inputs
                if record.partition == number and record.offset >= at
            ]
            there = [record for record in outputs if record.partition == number]
            assert left == [source(record) for record in there if record.offset >= place]
            assert place == next(
                (one.offset for one in there if left and source(one) == left[0]), ends[number]
            )
            by_time_wrong += place != first  # where a look by the time of the record leads
        assert committed_there(mirror, group) == {one["partition"]: one["offset"] for one in found}
    assert by_time_wrong > 12


def test_a_group_that_is_ahead_of_the_mirror_is_not_translated(mirror: Mirror) -> None:
    mirror.write(*given(30))
    mirror.run_to_end(60)
    mirror.write(*given(30))
    commit(mirror.bootstrap, f"{mirror.app}-fast", mirror.source, {0: 11})
    done = Desk(mirror).type("offsets", "translate", "--group", f"{mirror.app}-fast")
    assert done.exit_code == 1
    assert f"{mirror.source}/0: 10 of 11" in done.output


def source(record: Record) -> bytes | None:
    return dict(record.headers)[SOURCE]


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets of a group that is a consumer of the input, and stopped."""
    asked = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    client = AdminClient({"bootstrap.servers": bootstrap})
    answer = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
    for one in answer[group].result(30).topic_partitions:
        assert one.error is None


def committed_there(mirror: Mirror, group: str) -> dict[int, int | None]:
    return committed(mirror.there, group, mirror.target)


def test_an_event_that_was_sent_twice_has_one_record_on_the_other_cluster(
    mirror: Mirror, redis_url: str
) -> None:
    twice = [Given(b"v", b"k", (("message-id", b"%d" % (at // 2)),), at % 3) for at in range(12)]
    mirror.write(*twice)
    mirror.run_to_end(60, DEDUP__REDIS_URL=redis_url)
    ids = [dict(record.headers)["message-id"] or b"" for record in mirror.outputs()]
    assert sorted(ids) == sorted({b"%d" % at for at in range(6)})


def test_a_dead_letter_goes_to_the_other_cluster_with_the_outputs(mirror: Mirror) -> None:
    mirror.write(*given(9), Given(b"poison", b"k", (), 1))
    mirror.run_to_end(60, TRANSFORM="tests.kit.mirror_frozen:refuse_poison")
    (dead,) = mirror.dead()
    assert source(dead) == f"{mirror.source}/1/3".encode()
    assert len(mirror.outputs()) == 9

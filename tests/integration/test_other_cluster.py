"""Outputs on another cluster: a mirror that is exact to the byte, whatever dies."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition, admin

from hapax.cluster.offset_moves import Translated
from hapax.core.headers import SOURCE, coordinates
from hapax.core.ports import silent
from hapax.core.records import Record
from hapax.operations.offsets import translated
from hapax.settings import load_settings
from tests.kit.at_work import QUICK, at_work, await_exit, delete_topic, refused
from tests.kit.mirrors import Mirror, a_mirror, an_other_cluster, given
from tests.kit.night import Desk
from tests.kit.topics import (
    Given,
    committed,
    ends,
    ends as topic_ends,
    produce_aborted,
    produce_committed,
    read_back,
)
from tests.kit.waiting import await_

# Offsets of a topic to those of its mirror, each compared with what is on both clusters.
#
# ``cleaned`` topics lose records to the cleaner of the brokers, as compacted topics do.


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

    def alter(servers: str, kind: admin.AlterConfigOpType) -> None:
        client = admin.AdminClient({"bootstrap.servers": servers})
        entry = admin.ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=kind)
        asked = [
            admin.ConfigResource(
                admin.ResourceType.BROKER, str(broker), incremental_configs=[entry]
            )
            for broker in client.list_topics(timeout=30).brokers
        ]
        for done in client.incremental_alter_configs(asked).values():
            done.result(30)

    for servers in bootstrap_servers:
        alter(servers, admin.AlterConfigOpType.SET)
    try:
        yield
    finally:
        for servers in bootstrap_servers:
            alter(servers, admin.AlterConfigOpType.DELETE)


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
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    answer = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
    for one in answer[group].result(30).topic_partitions:
        assert one.error is None


def every_offset_translated(mirror: Mirror, upto: dict[int, int]) -> list[Translated]:
    """Return the places of all offsets of the input, from 0 to the end, end included."""
    settings = load_settings(mirror.environment(INSTANCE="desk"))

    def of(at: int) -> list[Translated]:
        group = f"{mirror.app}-at-{at}"
        commit(
            mirror.bootstrap,
            group,
            mirror.source,
            {number: at for number, end in upto.items() if at <= end},
        )
        return translated(settings, group, silent)

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


other = an_other_cluster()
mirror = a_mirror()


def test_a_mirror_has_every_record_once_in_order_and_equal_to_the_byte(mirror):
    mirror.write(*given(300))
    produce_aborted(mirror.bootstrap, mirror.source, *given(30, 300))
    mirror.write(*given(300, 330))
    (met,) = mirror.run_to_end().lines("outputs_cluster_met")
    there = admin.AdminClient({"bootstrap.servers": mirror.there}).list_topics(timeout=30)
    assert (met["servers"], met["cluster"]) == (mirror.there, there.cluster_id)
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 600
    mirror.write(*given(60, 700))
    mirror.run_to_end()
    assert mirror.anomalies() == []
    assert len(mirror.outputs()) == 660


def test_an_output_cluster_that_is_the_one_that_is_read_is_refused_with_2(sandbox, mirror):
    port = sandbox.bootstrap_servers.rpartition(":")[2]
    reason = refused(mirror, 2, OUTPUT__KAFKA__BOOTSTRAP_SERVERS=f"localhost:{port}")
    assert "its brokers are those of cluster" in reason


def test_the_doctor_looks_for_each_topic_on_its_own_cluster_and_names_it(mirror):
    """One broker keeps one replica, which it blames on both; the dead letters' topic is absent."""
    absent = f"{mirror.app}-absent"
    done = Desk(mirror, DEAD_LETTER__TOPIC=absent).type("doctor", "--json")
    found = [
        (one["cluster"], one["check"], one["saw"])
        for one in json.loads(done.stdout)["findings"]
        if one["verdict"] == "FAIL" and one["check"] in {"topics", "durability"}
    ]
    assert done.exit_code == 1
    assert sorted((cluster, check) for cluster, check, _ in found) == sorted(
        [(mirror.bootstrap, "durability"), (mirror.there, "durability"), (mirror.there, "topics")]
    )
    assert {mirror.source, mirror.target} == {
        saw.partition(":")[0] for _, check, saw in found if check == "durability"
    }
    assert absent in str(found)


def test_an_output_topic_that_is_absent_there_is_refused_with_3(mirror):
    refused(mirror, 3, "HAPAX_OUTPUT__TOPIC", OUTPUT__TOPIC=f"{mirror.target}-absent")


def test_progress_that_went_with_the_output_topic_stops_with_6_and_doubles_nothing(mirror):
    mirror.write(*given(30))
    mirror.run_to_end()
    client = admin.AdminClient({"bootstrap.servers": mirror.there})
    client.delete_topics([mirror.target])[mirror.target].result(30)
    await_(lambda: mirror.target not in client.list_topics(timeout=10).topics, 30)
    mirror.other.create_topic(mirror.target, 3)
    refused(mirror, 6, "has no progress of it")
    assert mirror.outputs() == []


def test_an_input_topic_that_was_recreated_stops_with_6(mirror):
    mirror.write(*given(30))
    mirror.run_to_end()
    delete_topic(mirror.bootstrap, mirror.source)
    mirror.sandbox.create_topic(mirror.source, 3)
    mirror.write(*given(60))
    refused(mirror, 6, "a topic that was deleted")
    assert len(mirror.outputs()) == 30


def test_without_the_other_cluster_the_app_stops_with_6_until_its_progress_is_set_here(mirror):
    """The group's offsets may be a second behind: the mirror's last records would be doubled."""
    mirror.write(*given(30))
    mirror.run_to_end(**QUICK)
    mirror.sandbox.create_topic(mirror.target, 3)
    mirror.sandbox.create_topic(mirror.dead_letters, 1)
    mirror.write(*given(30))
    here: dict[str, str | None] = {"OUTPUT__KAFKA__BOOTSTRAP_SERVERS": None}
    refused(mirror, 6, "the progress of group", **here)
    desk = Desk(mirror, **here)
    for move in (("rewind", "--by", "1"), ("skip", f"{mirror.source}/0/10", "--dead-letter")):
        done = desk.type("offsets", *move, "--yes")
        assert (done.exit_code, "only informs" in done.output) == (2, True), done.output
    assert read_back(mirror.bootstrap, mirror.target) == []
    for number in range(3):
        desk.ask("offsets", "set", f"{mirror.source}/{number}/10", "--yes")
    mirror.run_to_end(**here)
    assert len(read_back(mirror.bootstrap, mirror.target)) == 30


@pytest.mark.long
@pytest.mark.parametrize("struck", ["recreated", "cut off"])
def test_an_input_topic_that_is_struck_while_it_is_mirrored_stops_with_6(mirror, struck):
    mirror.write(*given(30))
    worker = at_work(mirror.worker("w-0"))
    await_mirrored(mirror)
    if struck == "recreated":
        delete_topic(mirror.bootstrap, mirror.source)
        mirror.sandbox.create_topic(mirror.source, 3)
        mirror.write(*given(60))
        words, most = (f"{mirror.source}/", "was deleted"), 10
    else:
        worker.freeze()
        # A fetch that was under way is answered with the first of these, whatever is deleted later.
        mirror.write(*given(30))
        mirror.write(*given(30))
        mirror.sandbox.delete_records(mirror.source, 0, 25)
        worker.thaw()
        words, most = (f"{mirror.source}/0: the next record is ", "now holds 25 to 30"), 20
    await_exit(worker, 6, *words)
    assert 10 <= len([record for record in mirror.outputs() if record.partition == 0]) <= most


def test_records_that_have_been_on_the_other_cluster_are_not_sent_back(
    sandbox, other, mirror, tmp_path
):
    mirror.write(*given(30))
    mirror.run_to_end()
    back = Mirror(other, sandbox, tmp_path, partitions=3)
    settings: dict[str, str | None] = {
        "INPUT__TOPICS": mirror.target,
        "OUTPUT__TOPIC": mirror.source,
        "DEAD_LETTER__TOPIC": None,
    }
    try:
        worker = back.run_to_end(**settings)
    finally:
        back.close()
    looped = [line["looped"] for line in worker.lines("transaction_committed")]
    assert sum(map(int, map(str, looped))) == 30
    assert len(mirror.inputs()) == 30


def test_the_offsets_of_a_group_are_translated_and_committed_where_it_would_read_next(mirror):
    mirror.write(*given(30))
    produce_aborted(mirror.bootstrap, mirror.source, *given(12))
    produce_committed(mirror.bootstrap, mirror.source, *given(60, 30))
    mirror.run_to_end()
    produce_aborted(mirror.there, mirror.target, *given(21))
    inputs, outputs, desk = mirror.inputs(), mirror.outputs(), Desk(mirror)
    for group, at in [(f"{mirror.app}-{at}", at) for at in (0, 12, 24)]:
        commit(mirror.bootstrap, group, mirror.source, dict.fromkeys(range(3), at))
        found = desk.ask("offsets", "translate", "--group", group, "--yes")["partitions"]
        assert [one["partition"] for one in found] == [0, 1, 2]
        for one in found:
            left, there = (
                [record for record in records if record.partition == one["partition"]]
                for records in (inputs, outputs)
            )
            assert [str(each.coordinates).encode() for each in left if each.offset >= at] == [
                source(record) for record in there if record.offset >= one["offset"]
            ]
        assert committed(mirror.there, group, mirror.target) == {
            one["partition"]: one["offset"] for one in found
        }


def test_every_offset_from_start_to_end_is_translated_through_markers_and_cleaned_records(
    sandbox, other, tmp_path, proof
):
    mirror = Mirror(sandbox, other, tmp_path, partitions=3)
    mirror.create(source=CLEANED, target=CLEANED)
    with closing(mirror), quick_cleaner(mirror.bootstrap, mirror.there):
        written = in_phases(mirror)
        inputs, outputs = mirror.inputs(), mirror.outputs()
        found = every_offset_translated(mirror, topic_ends(mirror.bootstrap, mirror.source))
    places = [(one.partition, one.committed, one.offset) for one in found]
    exact = judged(outputs, places)
    cleaned = written - len(inputs), written - len(outputs)
    early, late = (
        judged(outputs, [(number, at, offset + more) for number, at, offset in places])
        for more in (-1, 1)
    )
    note = (
        f"{written} records, {cleaned[0]} and {cleaned[1]} cleaned away; of {exact.asked} offsets"
        f" {exact.wrong} are wrong"
    )
    proof.note(struck=min(cleaned), note=note)
    assert exact.wrong == 0, note
    assert early.twice > 0 < late.skipped, "a place that is too early or too late is not seen"


def test_a_group_that_is_ahead_of_the_mirror_is_not_translated(mirror):
    mirror.write(*given(30))
    mirror.run_to_end()
    mirror.write(*given(30))
    commit(mirror.bootstrap, f"{mirror.app}-fast", mirror.source, {0: 11})
    done = Desk(mirror).type("offsets", "translate", "--group", f"{mirror.app}-fast")
    assert done.exit_code == 1
    assert f"{mirror.source}/0: 10 of 11" in done.output


def source(record: Record) -> bytes | None:
    return dict(record.headers)[SOURCE]


def test_a_dead_letter_goes_to_the_other_cluster_with_the_outputs(mirror):
    mirror.write(*given(9), Given(b"poison", b"k", (), 1))
    mirror.run_to_end(TRANSFORM="tests.kit.mirror_frozen:refuse_poison")
    (dead,) = mirror.dead()
    assert source(dead) == f"{mirror.source}/1/3".encode()
    assert len(mirror.outputs()) == 9

"""Outputs on another cluster: a mirror that is exact to the byte, whatever dies."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from hapax.core.headers import SOURCE
from hapax.sandbox import Sandbox
from tests.kit.at_work import QUICK, at_work, await_told, refused
from tests.kit.mirrors import Mirror, given
from tests.kit.night import Desk
from tests.kit.topics import Given, committed, produce_aborted, produce_committed, read_back
from tests.kit.topics import ends as topic_ends
from tests.kit.translations import (
    CLEANED,
    by_time,
    commit,
    every_offset_translated,
    judged,
    quick_cleaner,
)
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hapax.core.records import Record
    from tests.kit.proof import Proof


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


def test_an_input_topic_that_was_cut_off_before_the_position_stops_with_6(mirror: Mirror) -> None:
    mirror.write(*given(30))
    mirror.run_to_end(60)
    mirror.write(*given(30))
    mirror.sandbox.delete_records(mirror.source, 0, 15)
    refused(mirror, 6, "the next record is 10, but the log now holds 15 to 20")
    assert len([record for record in mirror.outputs() if record.partition == 0]) == 10


def test_without_the_other_cluster_the_app_stops_with_6_until_its_progress_is_set_here(
    mirror: Mirror,
) -> None:
    """The group's offsets may be a second behind: the mirror's last records would be doubled."""
    mirror.write(*given(30))
    mirror.run_to_end(60)
    mirror.sandbox.create_topic(mirror.target, 3)
    mirror.sandbox.create_topic(mirror.dead_letters, 1)
    mirror.write(*given(30))
    here: dict[str, str | None] = {"OUTPUT__KAFKA__BOOTSTRAP_SERVERS": None}
    words = "the progress of group"
    refused(mirror, 6, words, **here)
    desk = Desk(mirror, **here)
    back = desk.type("offsets", "rewind", "--by", "1", "--yes")
    assert (back.exit_code, "only informs" in back.output) == (2, True), back.output
    assert read_back(mirror.bootstrap, mirror.target) == []
    for number in range(3):
        desk.ask("offsets", "set", f"{mirror.source}/{number}/10", "--yes")
    mirror.run_to_end(60, **here)
    assert len(read_back(mirror.bootstrap, mirror.target)) == 30


@pytest.mark.long
def test_a_lane_that_cannot_be_opened_says_so_once_a_minute_and_goes_on_when_it_can(
    mirror: Mirror,
) -> None:
    mirror.write(*given(30))
    worker = mirror.worker("w-0", **QUICK)
    at_work(worker)
    (broker,) = mirror.other.kafka.brokers
    broker.pause()
    try:
        mirror.write(*given(30))
        await_told(worker, "lane_open_retried", within_s=90)
    finally:
        broker.resume()
    mirror.await_all(90)
    assert worker.terminate() == 0, worker.text()
    told = worker.lines("lane_open_retried")
    places = [str(line["partition"]) for line in told]
    assert sorted(set(places)) == sorted(places), "one line a minute for each partition"
    assert mirror.anomalies() == []


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


def test_every_offset_from_start_to_end_is_translated_through_markers_and_cleaned_records(
    sandbox: Sandbox, other: Sandbox, tmp_path: Path, proof: Proof
) -> None:
    """Beside it the way by time stamps, which errs: records share them, or are out of order."""
    mirror = Mirror(sandbox, other, tmp_path, partitions=3)
    mirror.create(source=CLEANED, target=CLEANED)
    with closing(mirror), quick_cleaner(mirror.bootstrap, mirror.there):
        written = in_phases(mirror)
        inputs, outputs = mirror.inputs(), mirror.outputs()
        ends = topic_ends(mirror.bootstrap, mirror.source)
        found = every_offset_translated(mirror, ends)
    places = [(one.partition, one.committed, one.offset) for one in found]
    exact, timed = judged(outputs, places), judged(outputs, by_time(mirror, found))
    cleaned = written - len(inputs), written - len(outputs)
    note = (
        f"{written} records, {cleaned[0]} and {cleaned[1]} cleaned away; of {exact.asked} offsets"
        f" {exact.wrong} are wrong, by time stamp {timed.twice} read again, {timed.skipped} skip"
    )
    proof.note(struck=min(cleaned), note=note)
    assert exact.wrong == 0, note
    assert timed.wrong > exact.asked // 10, note


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
        return all(
            (
                committed(
                    mirror.there, f"{mirror.app}--from/{mirror.source}/{number}", mirror.target
                )
            )[0]
            == end
            for number, end in topic_ends(mirror.bootstrap, mirror.source).items()
        )

    await_(done, 60, mirror._logs)


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

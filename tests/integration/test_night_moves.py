"""``hapax offsets set``, ``rewind`` and ``skip`` on a real group."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from hapax.core.offset_commit import CommittedMetadata
from hapax.sandbox import Sandbox
from tests.kit.damage import damage
from tests.kit.night import Desk, ran
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce_aborted
from tests.kit.waiting import await_

route = a_route(redis=True, partitions=2, GROUP__MEMBERSHIP="dynamic")


def event(name: str, partition: int = 0) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()),), partition)


def values(route: PipelineUnderTest) -> list[bytes]:
    return sorted(record.value or b"" for record in route.outputs())


def beside(route: PipelineUnderTest, partition: int = 0) -> CommittedMetadata:
    consumer = Consumer({"bootstrap.servers": route.bootstrap, "group.id": route.app})
    try:
        (one,) = consumer.committed([TopicPartition(route.source, partition)], 30)
    finally:
        consumer.close()
    return CommittedMetadata.decode(one.metadata)


def damaged(route: PipelineUnderTest, sandbox: Sandbox, *, codec: bool = False) -> None:
    """Write 0 and 1, a set 2 to 4 that nothing can decode, and 5."""
    route.write(event("a"), event("b"))
    producer = Producer(
        {"bootstrap.servers": route.bootstrap, "compression.type": "gzip", "linger.ms": 200}
    )
    producer.list_topics(timeout=30)
    for name in (b"c", b"d", b"e"):
        producer.produce(route.source, name * 50, b"k", 0)
    assert producer.flush(30) == 0
    route.write(event("f"))
    damage(sandbox, route.source, 0, 2, codec=codec)


def test_records_that_are_passed_lose_their_claims_so_that_a_repeat_of_them_is_processed(route):
    route.write(*(event(name) for name in ("a", "b", "c", "d")))
    ran(route, STOP_AFTER__RECORDS="4")
    desk = Desk(route)
    desk.ask("offsets", "rewind", f"{route.source}/0", "--by", "2", "--yes")
    told = desk.ask("offsets", "set", f"{route.source}/0/4", "--yes")
    assert told["claims_forgotten"] == 2
    (move,) = told["moves"]
    assert move | {"committed": 2, "offset": 4, "passed": 2, "again": 0} == move
    route.write(event("a", 1), event("c", 1))
    ran(route)
    assert values(route) == [b"a", b"b", b"c", b"c", b"d"]


def test_a_forward_move_over_records_that_had_their_effect_can_keep_their_claims(route):
    route.write(event("a"), event("b"))
    ran(route)
    desk = Desk(route)
    desk.ask("offsets", "rewind", route.source, "--by", "2", "--yes")
    told = desk.ask("offsets", "set", f"{route.source}/0", "latest", "--keep-claims", "--yes")
    assert told["claims_forgotten"] == 0
    route.write(event("a", 1))
    ran(route)
    assert values(route) == [b"a", b"b"]


def test_a_rewind_gives_records_their_effect_again_and_duplicates_none(route):
    route.write(event("a"), event("b"), event("a"))
    ran(route)
    desk = Desk(route)
    shown = desk.ask("offsets", "rewind", "--to", "1h")
    assert (shown["dry_run"], shown["moves"][0]["again"]) == (True, 3)
    assert route.committed()[0] == 3  # shown, not done
    before = beside(route)
    assert before.topic_id
    desk.ask("offsets", "rewind", "--to-offset", "0", f"{route.source}/0", "--yes")
    assert route.committed()[0] == 0
    assert beside(route).topic_id == before.topic_id
    ran(route)
    assert values(route) == [b"a", b"a", b"b", b"b"]


def test_offsets_of_a_group_with_members_are_left_alone_and_the_members_named(route):
    route.write(event("a"))
    worker = route.worker()
    route.await_outputs(1)
    route.await_lag_0()
    desk = Desk(route)
    for words in (
        ("set", f"{route.source}/0/0"),
        ("rewind", "--by", "1"),
    ):
        done = desk.type("offsets", *words, "--yes")
        assert done.exit_code == 3
        assert f"has members: {route.app}:w-0 (" in done.stderr
    assert worker.process.poll() is None
    assert route.committed()[0] == 1


def test_one_record_is_skipped_with_a_dead_letter_that_can_be_replayed(route):
    route.write(event("a"), event("b"), event("c"))
    first = route.worker(STOP_AFTER__RECORDS="1")
    first.ends_with(0)
    place = f"{route.source}/0/1"
    desk = Desk(route)
    early = desk.type("offsets", "skip", f"{route.source}/0/2", "--yes")
    assert (early.exit_code, "offset 1 comes first" in early.stderr) == (1, True)
    dry = desk.ask("offsets", "skip", place, "--dead-letter")
    assert (dry["dry_run"], route.dead()) == (True, [])
    told = desk.ask("offsets", "skip", place, "--dead-letter", "--yes")
    assert (told["next"], told["decodable"], told["truncated"]) == (2, True, False)
    (letter,) = route.dead()
    headers = dict(letter.headers)
    assert (letter.value, headers["hapax-source"]) == (b"b", place.encode())
    assert headers["hapax-id"] == b"b"
    assert headers["hapax-error"] == b"Skipped: passed by hapax offsets skip"
    assert (headers["hapax-app"], headers["hapax-attempts"]) == (route.app.encode(), b"1")
    assert "hapax-truncated" not in headers
    assert beside(route).topic_id
    again = desk.type("offsets", "skip", place, "--dead-letter", "--yes")
    assert (again.exit_code, "is past it already" in again.stderr) == (1, True)
    ran(route)
    assert values(route) == [b"a", b"c"]
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    ran(route)
    assert values(route) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", [False, True])
def test_a_set_that_cannot_be_decoded_is_skipped_whole_with_one_dead_letter(
    route, sandbox, *, codec
):
    damaged(route, sandbox, codec=codec)
    ran_to_2 = route.worker("w-0", STOP_AFTER__RECORDS="2")
    ran_to_2.ends_with(0)
    assert route.committed()[0] == 2
    desk = Desk(route)
    place = f"{route.source}/0/2"
    told = desk.ask("offsets", "skip", place, "--dead-letter", "--yes")
    assert (told["offset"], told["next"], told["decodable"]) == (2, 5, False)
    assert route.committed()[0] == 5
    (letter,) = route.dead()
    headers = dict(letter.headers)
    assert letter.value is None
    assert headers["hapax-source"] == place.encode()
    assert (headers["hapax-error"] or b"").startswith(
        b"Undecodable: offsets 2 to 4 cannot be decoded: "
    )
    assert headers["hapax-truncated"] == b"undecodable=2-4"
    assert headers["hapax-app"] == route.app.encode()
    assert headers["hapax-attempts"] == b"1"
    ran(route)
    assert values(route) == [b"a", b"b", b"f"]


def test_an_offset_behind_what_no_reader_sees_is_reached_from_the_groups_own_place(route):
    route.write(event("a"))
    ran(route)
    produce_aborted(route.bootstrap, route.source, event("x"))  # 1, and its marker 2
    route.write(event("b"))
    desk = Desk(route)
    gap = desk.type("offsets", "skip", f"{route.source}/0/1", "--yes")
    assert (gap.exit_code, "the next one is 3" in gap.stderr) == (1, True), gap.stderr
    assert desk.ask("offsets", "skip", f"{route.source}/0/3", "--yes")["next"] == 4
    await_(lambda: route.committed()[0] == 4, 30, lambda: str(route.committed()))


def test_places_that_are_not_there_are_refused_in_words(route):
    desk = Desk(route)
    for place, words in (
        (f"{route.source}/0/9", "beyond the last stable offset"),
        (f"{route.source}/7/0", "has no partition 7"),
        (f"{route.target}/0/0", "is no input of this pipeline"),
    ):
        done = desk.type("offsets", "set", place, "--yes")
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr

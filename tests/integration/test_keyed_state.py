"""Keyed state on a real broker: counts without a gap through kills, restores and rebalances."""

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from hapax.kafka.read.changelog import OVERHEAD_BYTES
from hapax.processing.state import prefix_of
from hapax.sandbox import SandboxTopic
from tests.kit import keeping
from tests.kit.at_work import delete_topic
from tests.kit.commands import run_captured
from tests.kit.keeping import MODULE, gaps
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest, header, values
from tests.kit.small_disk import fill, small_disk
from tests.kit.topics import Given, lag, produce, read_back
from tests.kit.waiting import await_

HAPAX = (sys.executable, "-m", "hapax")
PARTITIONS, KEYS, RECORDS = 3, 30, 6_000
SHORT = {"TRANSACTION__RECORDS_MAX": "20"}
TOGETHER = {"GROUP__PROTOCOL": "consumer", "GROUP__MEMBERSHIP": "dynamic"}


def stateful(
    route: PipelineUnderTest, partitions: int, policy: str = "compact", **more: str
) -> None:
    more = {name.replace("_", "."): value for name, value in more.items()}
    topic = SandboxTopic(f"{route.app}-state", partitions, {"cleanup.policy": policy} | more)
    route.sandbox.create_topics(topic)


@pytest.fixture
def route(route_of):
    made = route_of(PARTITIONS, TRANSFORM=f"{MODULE}:count")
    stateful(made, PARTITIONS)
    return made


def keyed(first: int, count: int) -> list[Given]:
    return [
        Given(b"x", b"key-%d" % (number % KEYS), partition=number % KEYS % PARTITIONS)
        for number in range(first, first + count)
    ]


def kept(route: PipelineUnderTest) -> dict[bytes | None, bytes | None]:
    """Return what a reader of the changelog finds as the state."""
    found = {one.key: one.value for one in read_back(route.bootstrap, f"{route.app}-state")}
    return {key: value for key, value in found.items() if value is not None}


def whole(route: PipelineUnderTest, records: int) -> None:
    outputs = route.outputs()
    assert len(outputs) == records
    assert gaps(outputs) == []
    expected = msgspec.msgpack.encode(records // KEYS)
    assert kept(route) == {b"count\0key-%d" % key: expected for key in range(KEYS)}


@pytest.mark.parametrize(
    ("form", "disk"),
    [(form, form != "threads") for form in keeping.FORMS],
    ids=[f"{form}, with{'out' if form == 'threads' else ''} a disk" for form in keeping.FORMS],
)
def test_counts_have_no_gap_when_workers_are_killed_amid_transactions(route, tmp_path, form, disk):
    more = {"STATE__DIR": str(tmp_path / "state")} if disk else {}
    worker = route.worker(**SHORT, **more, **keeping.FORMS[form])
    share, held, chance = RECORDS // 3, tmp_path / "held", random.Random(11)
    for first in range(0, RECORDS, share):
        given, at = keyed(first, share), chance.randrange(share // 2, share)
        given[at] = given[at]._replace(value=os.fsencode(held))
        held.touch()
        route.write(*given)
        await_(lambda: route.lag() < share, what=worker.text)  # it works on them
        assert route.lag()  # a call lasts: the kill hits an open transaction
        worker.kill()
        held.unlink()
        known = len(worker.lines("preflight_passed"))
        worker.start()
        await_(lambda: len(worker.lines("preflight_passed")) > known, what=worker.text)  # noqa: B023 - awaited here
        route.await_lag_0()
    assert worker.terminate() == 0
    whole(route, RECORDS)
    assert disk or worker.lines("state_restored")


def test_a_restart_with_its_disk_reads_no_more_than_what_the_kill_has_left(route, tmp_path):
    settings = {"STATE__DIR": str(tmp_path / "state")}
    route.write(*keyed(0, RECORDS))
    route.run_to_end(**settings)
    route.write(*keyed(RECORDS, RECORDS))
    worker = route.run_to_end(**settings)
    assert [line["changes"] for line in worker.lines("state_restored")] in ([], [0] * PARTITIONS)
    whole(route, 2 * RECORDS)


def several(route_of, counts: Sequence[int]) -> tuple[PipelineUnderTest, list[str]]:
    """Return a pipeline of two inputs with so many partitions, and their names."""
    route = route_of(PARTITIONS, TRANSFORM=f"{MODULE}:count", **TOGETHER)
    topics = [f"{route.app}-{name}" for name in ("orders", "tiers")]
    pairs = zip(topics, counts, strict=True)
    route.sandbox.create_topics(*[SandboxTopic(name, count) for name, count in pairs])
    return route, topics


def test_two_inputs_share_the_state_of_a_key_through_kills_and_rebalances(route_of, tmp_path):
    route, topics = several(route_of, (PARTITIONS, PARTITIONS))
    stateful(route, PARTITIONS)
    given = {"INPUT__TOPICS": ",".join(topics)}
    chance = random.Random(7)
    workers = [route.worker(f"w-{n}", STATE__DIR=str(tmp_path / f"w-{n}"), **given) for n in (0, 1)]
    await_(lambda: all(one.lines("state_restored") for one in workers), what=route._logs)
    for first in range(0, RECORDS, RECORDS // 5):
        if first:
            worker = chance.choice(workers)
            worker.kill()
            worker.start()
        for topic in topics:
            produce(route.bootstrap, topic, *keyed(first, RECORDS // 5))
        time.sleep(chance.uniform(0.5, 2.0))  # amid whatever they do then
    await_(
        lambda: sum(lag(route.bootstrap, route.app, one) for one in topics) == 0, what=route._logs
    )
    assert [worker.terminate() for worker in workers] == [0, 0]
    whole(route, 2 * RECORDS)


def test_inputs_that_come_and_go_find_the_state_of_a_key_as_the_others_have_left_it(
    route_of, tmp_path
):
    route, (orders, tiers) = several(route_of, (PARTITIONS, PARTITIONS))
    stateful(route, PARTITIONS)
    written = 0
    for topics in ([orders], [orders, tiers], [tiers], [tiers, orders]):
        for topic in topics:
            produce(route.bootstrap, topic, *keyed(written, KEYS * 10))
            written += KEYS * 10
        route.run_to_end(INPUT__TOPICS=",".join(topics), STATE__DIR=str(tmp_path / "state"))
        whole(route, written)
    desk, moves = Desk(route, INPUT__TOPICS=f"{tiers},{orders}"), ("--drop-state", "--yes")
    audited = desk.type("audit", "--state")
    assert (audited.exit_code, "inputs are several" in audited.output) == (2, True)
    refused = desk.type("offsets", "set", tiers, "earliest", *moves)
    assert (refused.exit_code, "for all: hapax offsets rewind" in refused.output) == (2, True)
    assert len(desk.ask("offsets", "rewind", "--to", "earliest", *moves)["moves"]) == 2 * PARTITIONS
    assert kept(route) == {}


def test_inputs_of_unlike_numbers_of_partitions_are_refused_with_3(route_of):
    route, topics = several(route_of, (PARTITIONS, PARTITIONS + 1))
    stateful(route, PARTITIONS)
    worker = route.worker(INPUT__TOPICS=",".join(topics))
    worker.ends_with(3)
    assert f"{topics[0]} has 3, {topics[1]} has 4" in worker.text()


def test_the_commands_show_what_is_kept_as_the_changelog_has_it(route):
    route.write(*keyed(0, KEYS), Given(b"forget", b"key-1", partition=1))
    route.run_to_end()
    environment = route.environment(INSTANCE="w-0")
    shown = run_captured([*HAPAX, "state", "show", "key-0", "--json"], env=environment)
    expected = {"partition": 0, "key": "key-0", "name": "count", "value": 1, "expires_ms": None}
    assert json.loads(shown.stdout) == [expected]
    lines = run_captured([*HAPAX, "state", "export"], env=environment).stdout.splitlines()
    keys = {json.loads(line)["key"] for line in lines}
    assert keys == {f"key-{number}" for number in range(KEYS) if number != 1}
    nothing = run_captured([*HAPAX, "state", "show", "key-1"], env=environment)
    assert (nothing.returncode, "Nothing is kept" in nothing.stderr) == (1, True)


# -- what is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "policy", "sentence"),
    [
        (0, "compact", "does not exist"),
        (2, "compact", "has 2 partitions, and the input has 3"),
        (4, "compact", "has 4 partitions, and the input has 3"),
        (3, "delete", "cleanup.policy=delete"),
    ],
)
def test_a_changelog_that_cannot_keep_the_state_is_refused_with_3(
    route_of, partitions, policy, sentence
):
    route = route_of(PARTITIONS, TRANSFORM=f"{MODULE}:count")
    if partitions:
        stateful(route, partitions, policy)
    worker = route.worker()
    worker.ends_with(3)
    assert sentence in worker.text()
    assert worker.lines("preflight_passed") == []


def test_a_changelog_that_was_recreated_is_refused_with_6_until_the_state_is_computed_again(route):
    settings = {"GROUP__MEMBERSHIP": "dynamic"}  # without a folder: offsets name the changelog
    route.write(*keyed(0, 2 * KEYS))
    route.run_to_end(**settings)
    delete_topic(route.bootstrap, f"{route.app}-state")
    stateful(route, PARTITIONS)
    worker = route.worker(**settings)
    worker.ends_with(6)
    assert "the changelog was deleted and recreated" in worker.text()
    Desk(route, **settings).ask("offsets", "rewind", "--to", "earliest", "--drop-state", "--yes")
    route.run_to_end(**settings)
    assert kept(route) == dict.fromkeys((b"count\0key-%d" % key for key in range(KEYS)), b"\x02")


def test_a_changelog_goes_with_its_app_to_another_name_and_two_apps_on_it_are_refused_with_2(
    route_of,
):
    route = route_of(PARTITIONS, TRANSFORM=f"{MODULE}:count", GROUP__MEMBERSHIP="dynamic")
    stateful(route, PARTITIONS)
    route.write(*keyed(0, KEYS))
    route.run_to_end()
    renamed = {"APP": f"{route.app}-b", "STATE__TOPIC": f"{route.app}-state"}
    Desk(route, **renamed).ask("offsets", "adopt", route.app, "--yes")
    route.write(*keyed(KEYS, KEYS))
    worker = route.worker(**renamed)
    await_(lambda: len(route.outputs()) == 2 * KEYS, 60, worker.text)
    assert worker.terminate() == 0
    whole(route, 2 * KEYS)
    left = route.worker()  # which someone has forgotten to end
    left.ends_with(2)
    assert f"has changes of the app {route.app}-b: give each app its own" in left.text()
    elsewhere = Desk(route, APP="another", INPUT__TOPICS="other", STATE__TOPIC=f"{route.app}-state")
    shown = elsewhere.type("state", "show", "key-0")
    assert (shown.exit_code, f"of the app {route.app}: " in shown.stderr) == (2, True)


def test_a_move_back_over_records_that_have_changed_the_state_drops_all_of_it_or_nothing_moves(
    route, tmp_path
):
    settings = {"STATE__DIR": str(tmp_path / "state"), "GROUP__MEMBERSHIP": "dynamic"}
    route.write(*keyed(0, 2 * KEYS))
    route.run_to_end(**settings)
    desk, before = Desk(route), route.committed()
    assert "has changes of record" in desk.ask("offsets", "rewind", "--by", "5")["state"]
    for words in (("rewind", "--by", "5"), ("set", f"{route.source}/0/1", "--drop-state")):
        refused = desk.type("offsets", *words, "--yes")
        assert refused.exit_code
        assert "--drop-state" in refused.output
    assert route.committed() == before
    assert desk.ask("offsets", "set", route.source, "latest", "--yes")["state"] is None
    whole(route, 2 * KEYS)
    assert desk.ask("offsets", "rewind", "--by", "10", "--drop-state", "--yes")["state"]
    assert kept(route) == {}
    route.run_to_end(**settings)
    again = 10 * PARTITIONS  # of as many keys, which begin at 1
    assert Counter(values(route.outputs())) == {b"1": KEYS + again, b"2": KEYS}
    assert len(kept(route)) == again


def test_a_topic_of_that_name_that_keeps_no_state_hinders_no_move(route_of):
    route = route_of(PARTITIONS, GROUP__MEMBERSHIP="dynamic")
    stateful(route, 1, "delete")
    produce(route.bootstrap, f"{route.app}-state", Given(b"of another", b"key"))
    route.write(*keyed(0, KEYS))
    route.run_to_end()
    told = Desk(route).ask("offsets", "rewind", "--by", "1", "--yes")
    assert (told["state"], len(told["moves"])) == (None, PARTITIONS)


def test_the_audit_computes_the_state_from_the_input_and_finds_what_another_has_changed(route):
    records = keyed(0, 2 * KEYS)
    twice = [one._replace(headers=(("id", b"%d" % at),)) for at, one in enumerate(records)]
    failing = Given(b"fail", b"key-0", partition=0)
    route.write(*twice, failing, *twice[: KEYS // 2])
    route.run_to_end(DEDUP__ID="header:id", GROUP__MEMBERSHIP="dynamic")
    desk = Desk(route, DEDUP__ID="header:id", GROUP__MEMBERSHIP="dynamic")
    judged = {"entries": KEYS, "wrong": 0, "unjudged": 0, "examples": [], "remarks": []}
    assert desk.ask("audit", "--state")["state"] == judged
    produce(route.bootstrap, f"{route.app}-state", Given(b"\x07", b"count\0key-1", partition=1))
    found = desk.type("audit", "--state")
    assert found.exit_code == 1
    assert "1 are not what the input asks for" in found.stdout
    assert "b'key-1' 'count'" in found.stdout
    delete_topic(route.bootstrap, route.target)
    route.sandbox.create_topic(route.target)
    assert f"BROKEN: {2 * KEYS + KEYS // 2} missing" in desk.type("audit", "--state").stdout


def test_the_audit_finds_expired_what_a_late_record_has_not_found(route):
    """The second record makes expire what the first has kept, and the third comes late."""
    places = [(b"a", 1_000), (b"b", 9_000), (b"a", 1_500)]
    route.write(*[Given(b"1 s", key, (), 0, timestamp_ms=at) for key, at in places])
    route.run_to_end(TRANSACTION__RECORDS_MAX="1")
    assert values(route.outputs()) == [b"1"] * 3
    assert Desk(route).ask("audit", "--state")["state"]["wrong"] == 0


def test_a_record_that_kills_its_process_leaves_no_trace_in_the_state(route, tmp_path):
    killer = Given(b"kill", b"key-0", partition=0)
    route.write(*keyed(0, KEYS), killer, *keyed(KEYS, KEYS))
    worker = route.worker(STATE__DIR=str(tmp_path / "state"))
    while route.lag():
        if not worker.running:
            worker.start()
        time.sleep(0.1)
    assert worker.terminate() == 0
    (letter,) = route.dead()
    assert header(letter, "hapax-error").startswith("Killed")
    whole(route, 2 * KEYS)
    assert values(route.outputs()).count(b"2") == KEYS


# -- what is no state of ours -------------------------------------------------------------


def test_a_state_that_its_topic_does_not_take_makes_a_dead_letter_and_keeps_what_was(route_of):
    route = route_of(TRANSFORM=f"{MODULE}:grow")
    stateful(route, 1, max_message_bytes="3000")
    largest = 3000 - OVERHEAD_BYTES - len(prefix_of(0, b"a") + b"bytes") - 3
    route.write(*[Given(b"%d" % size, b"a") for size in (5, largest + 1, largest, 3000, 0)])
    route.run_to_end()
    assert values(route.outputs()) == [b"0", b"5", b"%d" % largest]
    assert all("max.message.bytes" in header(letter, "hapax-error") for letter in route.dead())


def test_what_others_have_written_to_the_changelog_is_no_state_or_one_clear_error(route):
    def put(value: bytes | None, key: bytes) -> None:
        produce(route.bootstrap, f"{route.app}-state", Given(value, key, partition=0))

    put(b"1", b"no name")
    put(None, b"nothing")
    put(None, b"count\0of no record")
    put(b"\x05", b"count\0key-0")
    put(b"\x92\x01", b"count\0key-3")
    route.write(Given(b"x", b"key-0", partition=0), Given(b"x", b"key-3", partition=0))
    worker = route.worker()
    worker.ends_with(2)
    assert "the state 'count' of key b'key-3' is not what the transform expects" in worker.text()
    put(None, b"count\0key-3")
    route.run_to_end()
    assert values(route.outputs()) == [b"6", b"1"]


def test_a_worker_whose_disk_is_full_says_so_and_continues_when_it_has_room(route, tmp_path):
    with small_disk(tmp_path / "small", 2 << 20) as disk:
        worker = route.worker(STATE__DIR=str(disk / "state"))
        route.write(*keyed(0, KEYS))
        route.await_lag_0()
        ballast = fill(disk)
        route.write(*[Given(b"x", b"more-%d" % at, partition=0) for at in range(RECORDS)])
        worker.ends_with(1)
        assert "bytes are free, cannot be written" in worker.text()
        worker.start()
        worker.ends_with(3)
        assert "No space left on device" in worker.text()
        ballast.unlink()
        worker.start()
        route.await_lag_0()
        assert worker.terminate() == 0
    assert values(route.outputs()) == [b"1"] * (KEYS + RECORDS)
    assert len(kept(route)) == KEYS + RECORDS

"""The commands of a night on call, on real groups: offsets, pause, consume, trace, transactions."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from hapax.commands.tree import app
from hapax.core.offset_commit import CommittedMetadata
from hapax.sandbox import Sandbox
from tests.kit.at_work import await_told
from tests.kit.damage import damage
from tests.kit.managed_process import child, required
from tests.kit.night import Desk, ran, settle
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port, ready
from tests.kit.routes import a_route
from tests.kit.topics import (
    Given,
    produce,
    produce_aborted,
    produce_committed,
    produce_open,
    transaction,
)
from tests.kit.waiting import await_

# -- ``hapax offsets set``, ``rewind`` and ``skip`` on a real group ------------------------

dynamic = a_route(redis=True, partitions=2, GROUP__MEMBERSHIP="dynamic")


def named(name: str, partition: int = 0) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()),), partition)


def sorted_values(route: PipelineUnderTest) -> list[bytes]:
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
    route.write(named("a"), named("b"))
    producer = Producer(
        {"bootstrap.servers": route.bootstrap, "compression.type": "gzip", "linger.ms": 200}
    )
    producer.list_topics(timeout=30)
    for name in (b"c", b"d", b"e"):
        producer.produce(route.source, name * 50, b"k", 0)
    assert producer.flush(30) == 0
    route.write(named("f"))
    damage(sandbox, route.source, 2, codec=codec)


def test_records_that_are_passed_lose_their_claims_so_that_a_repeat_of_them_is_processed(dynamic):
    dynamic.write(*(named(name) for name in ("a", "b", "c", "d")))
    ran(dynamic, STOP_AFTER__RECORDS="4")
    desk = Desk(dynamic)
    desk.ask("offsets", "rewind", f"{dynamic.source}/0", "--by", "2", "--yes")
    told = desk.ask("offsets", "set", f"{dynamic.source}/0/4", "--yes")
    assert told["claims_forgotten"] == 2
    (move,) = told["moves"]
    assert move | {"committed": 2, "offset": 4, "passed": 2, "again": 0} == move
    dynamic.write(named("a", 1), named("c", 1))
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"b", b"c", b"c", b"d"]


def test_a_forward_move_over_records_that_had_their_effect_can_keep_their_claims(dynamic):
    dynamic.write(named("a"), named("b"))
    ran(dynamic)
    desk = Desk(dynamic)
    desk.ask("offsets", "rewind", dynamic.source, "--by", "2", "--yes")
    told = desk.ask("offsets", "set", f"{dynamic.source}/0", "latest", "--keep-claims", "--yes")
    assert told["claims_forgotten"] == 0
    dynamic.write(named("a", 1))
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"b"]


def test_a_rewind_gives_records_their_effect_again_and_duplicates_none(dynamic):
    dynamic.write(named("a"), named("b"), named("a"))
    ran(dynamic)
    desk = Desk(dynamic)
    shown = desk.ask("offsets", "rewind", "--to", "1h")
    assert (shown["dry_run"], shown["moves"][0]["again"]) == (True, 3)
    assert dynamic.committed()[0] == 3  # shown, not done
    before = beside(dynamic)
    assert before.topic_id
    desk.ask("offsets", "rewind", "--to-offset", "0", f"{dynamic.source}/0", "--yes")
    assert dynamic.committed()[0] == 0
    assert beside(dynamic).topic_id == before.topic_id
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"a", b"b", b"b"]


def test_offsets_of_a_group_with_members_are_left_alone_and_the_members_named(dynamic):
    dynamic.write(named("a"))
    worker = dynamic.worker()
    dynamic.await_outputs(1)
    dynamic.await_lag_0()
    desk = Desk(dynamic)
    for words in (("set", f"{dynamic.source}/0/0"), ("rewind", "--by", "1")):
        done = desk.type("offsets", *words, "--yes")
        assert done.exit_code == 3
        assert f"has members: {dynamic.app}:w-0 (" in done.stderr
    assert worker.process.poll() is None
    assert dynamic.committed()[0] == 1


def test_one_record_is_skipped_with_a_dead_letter_that_can_be_replayed(dynamic):
    dynamic.write(named("a"), named("b"), named("c"))
    dynamic.worker(STOP_AFTER__RECORDS="1").ends_with(0)
    place = f"{dynamic.source}/0/1"
    desk = Desk(dynamic)
    early = desk.type("offsets", "skip", f"{dynamic.source}/0/2", "--yes")
    assert (early.exit_code, "offset 1 comes first" in early.stderr) == (1, True)
    dry = desk.ask("offsets", "skip", place, "--dead-letter")
    assert (dry["dry_run"], dynamic.dead()) == (True, [])
    told = desk.ask("offsets", "skip", place, "--dead-letter", "--yes")
    assert (told["next"], told["decodable"], told["truncated"]) == (2, True, False)
    (letter,) = dynamic.dead()
    headers = dict(letter.headers)
    assert (letter.value, headers["hapax-source"]) == (b"b", place.encode())
    assert headers["hapax-id"] == b"b"
    assert headers["hapax-error"] == b"Skipped: passed by hapax offsets skip"
    assert (headers["hapax-app"], headers["hapax-attempts"]) == (dynamic.app.encode(), b"1")
    assert "hapax-truncated" not in headers
    assert beside(dynamic).topic_id
    again = desk.type("offsets", "skip", place, "--dead-letter", "--yes")
    assert (again.exit_code, "is past it already" in again.stderr) == (1, True)
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"c"]
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", [False, True])
def test_a_set_that_cannot_be_decoded_is_skipped_whole_with_one_dead_letter(
    dynamic, sandbox, *, codec
):
    damaged(dynamic, sandbox, codec=codec)
    dynamic.worker("w-0", STOP_AFTER__RECORDS="2").ends_with(0)
    assert dynamic.committed()[0] == 2
    desk = Desk(dynamic)
    place = f"{dynamic.source}/0/2"
    told = desk.ask("offsets", "skip", place, "--dead-letter", "--yes")
    assert (told["offset"], told["next"], told["decodable"]) == (2, 5, False)
    assert dynamic.committed()[0] == 5
    (letter,) = dynamic.dead()
    headers = dict(letter.headers)
    assert letter.value is None
    assert headers["hapax-source"] == place.encode()
    assert (headers["hapax-error"] or b"").startswith(
        b"Undecodable: offsets 2 to 4 cannot be decoded: "
    )
    assert headers["hapax-truncated"] == b"undecodable=2-4"
    assert headers["hapax-app"] == dynamic.app.encode()
    assert headers["hapax-attempts"] == b"1"
    ran(dynamic)
    assert sorted_values(dynamic) == [b"a", b"b", b"f"]


def test_an_offset_behind_what_no_reader_sees_is_reached_from_the_groups_own_place(dynamic):
    dynamic.write(named("a"))
    ran(dynamic)
    produce_aborted(dynamic.bootstrap, dynamic.source, named("x"))  # 1, and its marker 2
    dynamic.write(named("b"))
    desk = Desk(dynamic)
    gap = desk.type("offsets", "skip", f"{dynamic.source}/0/1", "--yes")
    assert (gap.exit_code, "the next one is 3" in gap.stderr) == (1, True), gap.stderr
    assert desk.ask("offsets", "skip", f"{dynamic.source}/0/3", "--yes")["next"] == 4
    await_(lambda: dynamic.committed()[0] == 4, 30, lambda: str(dynamic.committed()))


def test_places_that_are_not_there_are_refused_in_words(dynamic):
    desk = Desk(dynamic)
    for place, words in (
        (f"{dynamic.source}/0/9", "beyond the last stable offset"),
        (f"{dynamic.source}/7/0", "has no partition 7"),
        (f"{dynamic.target}/0/0", "is no input of this pipeline"),
    ):
        done = desk.type("offsets", "set", place, "--yes")
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr


# -- ``hapax offsets`` ---------------------------------------------------------------------

two_partitions = a_route(partitions=2)


def test_offsets_and_lag_are_told_by_partition_in_records_and_in_time(two_partitions):
    old_ms = int(time.time() * 1000) - 3_600_000
    two_partitions.write(*(Given(b"done", partition=0) for _ in range(5)))
    ran(two_partitions)
    desk = Desk(two_partitions)
    before = desk.ask("offsets")
    assert (before["lag"], before["lag_seconds"]) == (0, 0.0)
    two_partitions.write(*(Given(b"late", partition=1, timestamp_ms=old_ms) for _ in range(3)))
    with produce_open(two_partitions.bootstrap, two_partitions.source, Given(b"open", partition=0)):
        told = desk.ask("offsets")
        table = desk.type("offsets").stdout
    first, second = told["partitions"]
    assert first | {"last_stable_offset_lag": 1, "high_watermark": 6} == first
    assert first["last_stable"] == first["committed"] == 5
    assert second | {"lag": 3, "lost": 0, "log_start": 0, "position": 0} == second
    assert 3_600 <= second["lag_seconds"] < 3_900
    assert (told["lag"], told["lag_seconds"]) == (3, second["lag_seconds"])
    assert "an open transaction holds readers back" in table
    assert "60m" in table or "1h" in table


def test_a_watch_looks_again_and_ctrl_c_ends_it_cleanly(two_partitions):
    desk = Desk(two_partitions)
    command = [sys.executable, "-m", "hapax", "offsets", "--watch", "--interval", "200ms", "--json"]
    pipe = subprocess.PIPE
    with child(command, env=desk.environment, stdout=pipe, stderr=pipe, text=True) as watch:
        assert json.loads(watch.stdout.readline())["lag"] == 0
        two_partitions.write(b"new")
        stdout = watch.stdout
        await_(lambda: json.loads(stdout.readline())["lag"] == 1, 30, lambda: "no lag")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 0
        assert "Traceback" not in watch.stderr.read()


# -- ``hapax pause`` and ``hapax resume`` on real workers ----------------------------------

dynamic_plain = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


def status(port: int) -> Any:
    return json.loads(ask(port, "/status.json")[1])


def test_a_paused_worker_stays_a_member_takes_nothing_of_what_a_rebalance_brings_and_resumes(
    dynamic_plain,
):
    port = free_port()
    worker = dynamic_plain.worker("w-0", TELEMETRY__PORT=str(port))
    other = dynamic_plain.worker("w-1")
    dynamic_plain.write(*(Given(b"first", partition=number) for number in (0, 1)))
    dynamic_plain.await_outputs(2)
    await_told(worker, "service_ready")  # the other one may have written both
    await_(
        lambda: len(status(port)["partitions"]) == 1 and bool(other.lines("partitions_assigned")),
        60,
        other.text,
    )
    desk = Desk(dynamic_plain, TELEMETRY__PORT=str(port))
    refused = Desk(dynamic_plain, APP="another", TELEMETRY__PORT=str(port)).type("pause")
    assert (refused.exit_code, "is none of another" in refused.stderr) == (1, True)
    told = desk.ask("pause")
    assert (told["instance"], told["state"], told["paused_by_operator"]) == ("w-0", "paused", True)
    assert ask(port, "/readyz")[0] == 503
    assert ask(port, "/livez")[0] == 200
    assert metric(ask(port, "/metrics")[1], "hapax_paused") == 1

    assert other.terminate() == 0
    await_(lambda: len(status(port)["partitions"]) == 2, 60, worker.text)
    dynamic_plain.write(*(Given(b"held", partition=number) for number in (0, 1)))
    await_(lambda: sum(one["lag"] or 0 for one in status(port)["partitions"]) == 2, 60, worker.text)
    assert len(dynamic_plain.outputs()) == 2
    assert worker.lines("partitions_lost") == []

    assert desk.ask("resume")["paused_by_operator"] is False
    dynamic_plain.await_outputs(4)
    dynamic_plain.await_lag_0()
    assert ask(port, "/readyz")[0] == 200
    assert metric(ask(port, "/metrics")[1], "hapax_paused") == 0


def test_a_paused_worker_drains_and_its_restart_knows_of_no_pause(dynamic_plain):
    port = free_port()
    worker = dynamic_plain.worker("w-0", TELEMETRY__PORT=str(port))
    await_(lambda: ready(port)[0], 60, worker.text)
    Desk(dynamic_plain, TELEMETRY__PORT=str(port)).ask("pause")
    dynamic_plain.write(b"held")
    assert worker.terminate() == 0
    assert dynamic_plain.outputs() == []
    dynamic_plain.run_to_end()
    assert [record.value for record in dynamic_plain.outputs()] == [b"held"]


# -- ``hapax consume`` on a real broker: what a ``read_committed`` reader finds, and no more


@pytest.fixture
def topic(sandbox, unique):
    name = unique("read")
    sandbox.create_topic(name, 1)
    produce_committed(sandbox.bootstrap_servers, name, b"one")
    produce_aborted(sandbox.bootstrap_servers, name, b"never")
    produce(sandbox.bootstrap_servers, name, b"two", b"\x1b[31m\xff")
    return name


def consume(sandbox: Sandbox, *words: str) -> Result:
    settings = required(app="reader", servers=sandbox.bootstrap_servers, INSTANCE="reader-0")
    return CliRunner().invoke(app, ["consume", *words], env=settings)


def test_aborted_records_are_left_out_and_bytes_that_a_terminal_would_obey_are_escaped(
    sandbox, topic
):
    done = consume(sandbox, topic)
    assert done.exit_code == 0, done.output
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    assert [line[2] for line in lines] == ["one", "two", "\\x1b[31m\\xff"]
    assert all(line[0].startswith(f"{topic}/0/") for line in lines)


def test_uncommitted_reads_them_and_max_ends_it(sandbox, topic):
    done = consume(sandbox, topic, "--uncommitted", "--max", "2")
    assert [line.split("  ")[2] for line in done.stdout.splitlines()] == ["one", "never"]


def test_json_has_coordinates_headers_and_bytes_that_are_no_text(sandbox, topic):
    done = consume(sandbox, topic, "--json", "--from", "1h")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["value"] for record in records] == ["one", "two", {"base64": "G1szMW3/"}]
    assert set(records[0]) == {
        "topic", "partition", "offset", "time", "timestamp_ms", "headers", "key", "value",
    }  # fmt: skip


def test_from_the_end_brings_nothing_and_ends(sandbox, topic):
    done = consume(sandbox, topic, "--from", "end")
    assert (done.exit_code, done.stdout) == (0, "")


def test_a_topic_that_is_missing_is_a_sentence_and_exit_code_3(sandbox):
    done = consume(sandbox, "no-such-topic")
    assert done.exit_code == 3
    assert done.stderr == "topic no-such-topic does not exist or may not be read\n"


# -- ``hapax trace`` -----------------------------------------------------------------------

claiming = a_route(redis=True)


def event(name: str, *headers: tuple[str, bytes]) -> Given:
    return Given(name.encode(), b"k", (("message-id", name.encode()), *headers))


def traced(desk: Desk, *words: str) -> dict[str, Any]:
    (one,) = desk.ask("trace", *words)["records"]
    assert isinstance(one, dict)
    return one


def test_every_fate_of_a_record_is_told_by_place_and_by_id(claiming):
    claiming.write(
        event("plain"),
        event("split", ("do", b'[{"value": "a"}, {"value": "b"}]')),
        event("poison", ("raise", b"1")),
        event("none", ("do", b"[]")),
        event("plain", ("second", b"1")),
        Given(b"without id"),
    )
    ran(claiming)
    claiming.write(event("late"))
    desk = Desk(claiming)
    verdicts = [traced(desk, f"{claiming.source}/0/{at}")["verdict"] for at in range(6)]
    assert verdicts[:3] == [
        "done: 1 output",
        "done: 2 outputs",
        "dead letter: ValueError: the record says so",
    ]
    assert verdicts[3].startswith("no effect was found: filtered")
    assert (
        verdicts[4] == f"duplicate: its id belongs to {claiming.source}/0/0, which was seen first"
    )
    assert verdicts[5] == "done: 1 output"
    late = traced(desk, "late")
    assert (late["verdict"], late["committed"]) == ("waiting: not processed yet", False)
    split = traced(desk, "split")
    assert [effect["part"] for effect in split["effects"]] == ["1/2", "2/2"]
    assert split["claims"] == {"header:message-id": f"{claiming.source}/0/1"}
    both = desk.ask("trace", "plain", "--since", "1h")["records"]
    assert [one["verdict"].split(":")[0] for one in both] == ["done", "duplicate"]


def test_an_output_and_a_dead_letter_lead_back_to_their_record(claiming):
    claiming.write(event("plain"), event("poison", ("raise", b"1")))
    ran(claiming)
    desk = Desk(claiming)
    assert traced(desk, f"{claiming.target}/0/0")["record"] == f"{claiming.source}/0/0"
    letter = traced(desk, f"{claiming.dead_letters}/0/0")
    assert (letter["record"], letter["id"]) == (f"{claiming.source}/0/1", "poison")
    shown = desk.type("trace", f"{claiming.dead_letters}/0/0").stdout
    assert f"dead       {claiming.dead_letters}/0/0" in shown
    assert "verdict    dead letter: ValueError" in shown


def test_effects_in_a_transaction_that_is_open_are_under_way(claiming):
    claiming.write(event("plain"))
    stamp = [("hapax-id", b"plain"), ("hapax-source", f"{claiming.source}/0/0".encode())]
    desk = Desk(claiming)
    with transaction(claiming.bootstrap) as producer:
        producer.produce(claiming.target, b"hidden", headers=stamp)  # type: ignore[arg-type]
        assert producer.flush(60) == 0
        one = traced(desk, f"{claiming.source}/0/0")
        assert one["effects"][0]["visible"] is False
        assert one["verdict"].startswith("in progress")
        producer.abort_transaction(60)
    settle(claiming)
    assert traced(desk, f"{claiming.source}/0/0")["verdict"] == "waiting: not processed yet"


def test_of_a_record_that_is_deleted_its_effects_still_tell(claiming, sandbox):
    claiming.write(event("plain"), event("poison", ("raise", b"1")), event("late"))
    ran(claiming)
    sandbox.delete_records(claiming.source, 0, before_offset=2)
    desk = Desk(claiming)
    plain, poison = traced(desk, "plain"), traced(desk, f"{claiming.source}/0/1")
    assert (plain["there"], plain["record"]) == (False, f"{claiming.source}/0/0")
    assert plain["verdict"] == "done: 1 output"
    assert plain["claims"] == {"header:message-id": f"{claiming.source}/0/0"}
    assert (poison["there"], poison["id"]) == (False, "poison")
    assert poison["verdict"].startswith("dead letter")


def test_what_is_not_found_is_said_with_an_exit_code(claiming):
    claiming.write(Given(b"stray", b"k"))
    desk = Desk(claiming)
    unknown = desk.type("trace", "no-such-id")
    assert unknown.exit_code == 1
    assert "no record with the id no-such-id was found" in unknown.stderr
    beyond = desk.type("trace", f"{claiming.source}/0/99")
    assert beyond.exit_code == 1
    assert (
        f"does not exist: it is beyond the end of {claiming.source}/0, which is 1" in beyond.stderr
    )
    assert desk.type("trace", f"{claiming.source}/7/0").exit_code == 1
    assert desk.type("trace", f"{claiming.target}/0/0").exit_code == 1

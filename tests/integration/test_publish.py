"""``hapax publish``, with and without ``--spool``."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ResourceType

from tests.kit.managed_process import ManagedProcess, child
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import rounds
from tests.kit.routes import a_route
from tests.kit.topics import configure, ends, read_back
from tests.kit.waiting import await_

# -- With a spool --------------------------------------------------------------------------

HAPAX = (sys.executable, "-m", "hapax")
LINES = 30_000
AWAY = {"HAPAX_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "HAPAX_SHUTDOWN__TIMEOUT": "1s"}
route = a_route()


def publishing(route: PipelineUnderTest, folder: Path, *words: str) -> ManagedProcess:
    """Return a process that publishes into the input, with small transactions."""
    command = [*HAPAX, "publish", *words, "--topic", route.source]
    environment = route.environment(TRANSACTION__RECORDS_MAX="50")
    return ManagedProcess(command, folder / "publish.log", environment)


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in read_back(route.bootstrap, route.source)]


def written(route: PipelineUnderTest) -> int:
    """Return how far the log is, with what is not committed."""
    return ends(route.bootstrap, route.source, "read_uncommitted")[0]


@pytest.mark.rounds
@pytest.mark.timeout(900)
def test_a_file_is_published_once_however_often_the_process_is_killed_and_run_again(
    route, tmp_path
):
    chance, file = random.Random(1), tmp_path / "orders"
    lines = [b"%d " % number + b"x" * chance.randrange(200) for number in range(LINES)]
    file.write_bytes(b"\n".join(lines))
    spool = ["--spool", str(tmp_path / "spool"), "--disk-max", "1MiB"]
    process = publishing(route, tmp_path, str(file), *spool)
    kills = rounds(4, 40)
    for kill in range(kills):
        process.start()
        if kill % 4:
            reached = written(route) + chance.randrange(1, LINES // kills)
            await_(lambda: not process.running or written(route) >= reached, 60, process.text)  # noqa: B023
        else:  # while it opens the spool, too
            time.sleep(chance.uniform(0.5, 3.0))
        assert process.running, process.text()
        process.kill()
    assert len(values(route)) < LINES, "a kill has to come before the end"
    process.start()
    process.finish(120)
    process.start()
    process.finish(60)
    assert values(route) == lines
    assert "Traceback" not in process.text()


def test_control_without_a_spool_a_process_that_is_killed_and_started_again_doubles_lines(
    route, tmp_path
):
    log, lines = tmp_path / "app.log", [b"%d\n" % number for number in range(1000)]
    log.write_bytes(b"".join(lines))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # the first process sees but a half of it, for certain
    process = publishing(route, tmp_path, str(pipe))
    process.start()
    with pipe.open("wb") as half:
        half.write(b"".join(lines[:500]))
        half.flush()
        await_(lambda: len(values(route)) > 0, 60, process.text)
        process.kill()
    process.start([*HAPAX, "publish", str(log), "--topic", route.source])
    process.finish(60)
    assert len(lines) < len(values(route)) <= len(lines) + 500


def test_a_csv_file_ends_when_all_of_it_is_in_kafka_and_what_it_gets_later_is_added(
    route, tmp_path
):
    orders = tmp_path / "orders.csv"
    orders.write_bytes(b'id,say\n1,"a\nb"\n2,c\n')
    words = ["publish", str(orders), "--format", "csv", "--key-pointer", "/id"]
    words += ["--spool", str(tmp_path / "spool"), "--topic", route.source]
    desk = Desk(route)
    assert desk.ask(*words) == {
        "topic": route.source,
        "accepted": 2,
        "skipped": 0,
        "records_skipped": 0,
        "waiting": 0,
        "stopped": "",
    }
    assert desk.ask(*words)["accepted"] == 0
    with orders.open("ab") as file:
        file.write(b"3,d\n")
    assert desk.ask(*words)["accepted"] == 1
    found = read_back(route.bootstrap, route.source)
    assert [json.loads(record.value or b"")["say"] for record in found] == ["a\nb", "c", "d"]
    assert [record.key for record in found] == [b"1", b"2", b"3"]
    ids = [(dict(record.headers)["message-id"] or b"").decode() for record in found]
    assert [each.rpartition("/")[2] for each in ids] == ["1", "2", "3"]


def test_lines_of_standard_input_are_safe_once_they_are_accepted(route, tmp_path):
    command = [*HAPAX, "publish", "-", "--topic", route.source, "--spool", str(tmp_path / "spool")]
    environment = route.environment()
    with child(command, stdin=subprocess.PIPE, env=environment) as process:
        process.stdin.write(b"a\n")
        process.stdin.flush()
        await_(lambda: len(values(route)) == 1, 60)
        later_ms = time.time_ns() // 1_000_000
        process.stdin.write(b"b\nhalf a line")
        process.stdin.flush()
        await_(lambda: len(values(route)) == 2, 60)
    subprocess.run(command, input=b"c\n", env=environment, check=True, timeout=60)
    assert values(route) == [b"a", b"b", b"c"]
    times = [each.timestamp_ms for each in read_back(route.bootstrap, route.source)]
    assert times[0] < later_ms <= times[1]  # each has that of its acceptance


def test_what_is_not_in_kafka_at_a_signal_stays_on_disk_and_is_published_by_the_next_run(
    route, tmp_path
):
    file = tmp_path / "orders"
    file.write_bytes(b"a\nb\n")
    process = publishing(route, tmp_path, str(file), "--spool", str(tmp_path / "spool"), "--json")
    process.start(settings=AWAY)
    await_(lambda: "waiting 2: " in process.text(), 60, process.text)
    assert process.terminate() == 0
    told = json.loads(process.text()[process.text().rindex("{\n") :])
    assert (told["accepted"], told["waiting"], told["stopped"]) == (2, 2, "SIGTERM")
    process.start()
    process.finish(60)
    assert values(route) == [b"a", b"b"]


def test_a_line_that_brokers_refuse_later_is_named_with_the_way_past_it(route, tmp_path):
    file = tmp_path / "orders"
    file.write_bytes(b"a\n" + b"x" * 3000 + b"\nb\n")
    words = [str(file), "--spool", str(tmp_path / "spool")]
    process = publishing(route, tmp_path, *words)
    process.start(settings=AWAY)
    await_(lambda: "waiting 3: " in process.text(), 60, process.text)
    assert process.terminate() == 0
    admin = AdminClient({"bootstrap.servers": route.bootstrap})
    configure(admin, ResourceType.TOPIC, [route.source], {"max.message.bytes": "2000"})
    process.start()
    process.ends_with(1)
    assert "record 2 of the spool was refused" in process.text()
    assert "hapax publish --skip 2" in process.text()
    told = Desk(route).ask("publish", *words, "--topic", route.source, "--skip", "2")
    assert (told["records_skipped"], told["waiting"]) == (1, 0)
    assert values(route) == [b"a", b"b"]


def test_lines_before_one_that_is_no_record_are_published_and_the_corrected_file_continues(
    route, tmp_path
):
    file = tmp_path / "orders.jsonl"
    file.write_bytes(b'{"n": 1}\nnonsense\n{"n": 3}\n')
    words = ["publish", str(file), "--format", "json-lines", "--topic", route.source]
    words += ["--spool", str(tmp_path / "spool")]
    desk = Desk(route)
    done = desk.type(*words)
    assert (done.exit_code, "line 2 is not JSON" in done.stderr) == (1, True)
    assert values(route) == [b'{"n": 1}']
    file.write_bytes(b'{"n": 1}\n{"n": 2}\n{"n": 3}\n')
    assert desk.ask(*words)["accepted"] == 2
    assert values(route) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']


def test_other_content_is_refused_and_what_was_accepted_of_the_old_one_is_published(
    route, tmp_path
):
    file = tmp_path / "orders"
    file.write_bytes(b"a\nb\n")
    process = publishing(route, tmp_path, str(file), "--spool", str(tmp_path / "spool"))
    process.start(settings=AWAY)
    await_(lambda: "waiting 2: " in process.text(), 60, process.text)
    process.kill()
    file.write_bytes(b"c\nd\ne\n")
    process.start()
    process.ends_with(6)
    assert "has other content: the spool has accepted 2 lines (4 bytes)" in process.text()
    assert "--spool of its own" in process.text()
    assert values(route) == [b"a", b"b"]


# -- Without -------------------------------------------------------------------------------

TWO_LINES = '{"order": {"id": 7}, "who": "a"}\n\n{"order": {"id": 8}, "who": "b"}\n'


@pytest.mark.parametrize("how", [(), ("--transactional",)], ids=["plain", "transactional"])
def test_lines_are_published_with_their_ids_and_known_to_be_there(route, tmp_path, how):
    file = tmp_path / "orders.jsonl"
    file.write_text(TWO_LINES)
    pointers = ("--id-pointer", "/order/id", "--key-pointer", "/who", "--header", "from=desk")
    told = Desk(route).ask("publish", str(file), *pointers, *how)
    nothing = {"failed": 0, "reasons": {}, "first_lines": {}}
    assert told == {"topic": route.source, "published": 2, **nothing}
    found = read_back(route.bootstrap, route.source)
    assert [record.key for record in found] == [b"a", b"b"]
    assert found[0].headers == (("from", b"desk"), ("message-id", b"7"))
    assert [record.value for record in found] == [
        line.encode() for line in TWO_LINES.split("\n") if line
    ]


def test_standard_input_is_read_and_every_line_has_an_id_of_its_own(route):
    assert Desk(route).ask("publish", given="a\nb\n")["published"] == 2
    found = read_back(route.bootstrap, route.source)
    assert [record.value for record in found] == [b"a", b"b"]
    assert len({dict(record.headers)["message-id"] for record in found}) == 2


@pytest.mark.parametrize(
    ("how", "there"), [((), 1), (("--transactional",), 0)], ids=["plain", "transactional"]
)
def test_a_line_that_cannot_be_published_ends_it(route, how, there):
    given = '{"id": 1}\nnonsense\n{"id": 2}\n'
    done = Desk(route).type("publish", "--id-pointer", "/id", *how, given=given)
    assert done.exit_code == 1
    assert "line 2 is not JSON" in done.stderr
    assert len(read_back(route.bootstrap, route.source)) == there


def test_what_the_broker_refuses_is_counted_and_fails(route, sandbox):
    small = f"{route.app}-small"
    sandbox.create_topic(small, 1, {"max.message.bytes": "200"})
    given = f"a\n\n{'x' * 1000}\nb\n{'x' * 1000}\n"
    done = Desk(route).type("publish", "--topic", small, given=given)
    assert done.exit_code == 1
    assert done.stdout == f"2 published to {small}\n"
    assert "2 failed: " in done.stderr
    assert "MSG_SIZE_TOO_LARGE" in done.stderr
    assert "(first: line 3)" in done.stderr
    assert "2 records were not delivered" in done.stderr
    unknown = Desk(route).type("publish", "--topic", "no-such-topic", given="a\n")
    assert unknown.exit_code == 3
    assert "no-such-topic does not exist" in unknown.stderr

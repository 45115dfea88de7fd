import json
import signal
import subprocess
import sys
import time

from tests.kit.night import Desk, ran
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce_open
from tests.kit.waiting import await_

route = a_route(partitions=2)


def test_offsets_and_lag_are_told_by_partition_in_records_and_in_time(route):
    old_ms = int(time.time() * 1000) - 3_600_000
    route.write(*(Given(b"done", partition=0) for _ in range(5)))
    ran(route)
    desk = Desk(route)
    before = desk.ask("offsets")
    assert (before["lag"], before["lag_seconds"]) == (0, 0.0)
    route.write(*(Given(b"late", partition=1, timestamp_ms=old_ms) for _ in range(3)))
    with produce_open(route.bootstrap, route.source, Given(b"open", partition=0)):
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


def test_a_topic_that_is_not_there_is_named(route):
    done = Desk(route, INPUT__TOPICS="no-such-topic").type("offsets")
    assert done.exit_code == 3
    assert done.stderr == "topic no-such-topic does not exist or may not be read\n"


def test_what_was_deleted_before_it_was_read_is_called_lost(route, sandbox):
    route.write(Given(b"1", partition=0))
    ran(route)
    route.write(*(Given(b"2", partition=0) for _ in range(4)))
    sandbox.delete_records(route.source, 0, before_offset=3)
    first, _ = Desk(route).ask("offsets")["partitions"]
    assert first | {"committed": 1, "log_start": 3, "lost": 2, "lag": 2} == first


def test_a_watch_looks_again_and_ctrl_c_ends_it_cleanly(route):
    desk = Desk(route)
    command = [
        sys.executable,
        "-m",
        "hapax",
        "offsets",
        "--watch",
        "--interval",
        "200ms",
        "--json",
    ]
    with subprocess.Popen(
        command, env=desk.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watch:
        try:
            assert watch.stdout is not None
            first = json.loads(watch.stdout.readline())
            assert first["lag"] == 0
            route.write(b"new")
            stdout = watch.stdout
            await_(lambda: json.loads(stdout.readline())["lag"] == 1, 30, lambda: "no lag")
            watch.send_signal(signal.SIGINT)
            assert watch.wait(30) == 0
            assert watch.stderr is not None
            assert "Traceback" not in watch.stderr.read()
        finally:
            watch.kill()

"""A replay of dead letters has its effect once, whatever ends it and however often it is run."""

import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from hapax.core.errors import DuplicateInstanceError
from hapax.core.ports import Message
from hapax.core.records import Record
from hapax.kafka.produce.standalone import KafkaReplay, ReplayInterruptedError, replay_id
from hapax.settings import load_settings
from tests.kit.audited import audited
from tests.kit.night import Desk, ran, settle
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce, produce_open, read_back

DIE = """
import os, signal, sys
from hapax.kafka.produce.transaction import KafkaTransaction
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
commit = KafkaTransaction.commit
def commit_and_die(self):
    commit(self)
    die()
KafkaTransaction.commit = {commit}
sys.argv[1:] = ["dead-letters", "replay", "--yes"]
from hapax.__main__ import main
main()
"""

route = a_route(redis=True, partitions=2)


def bad(event: str, *, partition: int = 0) -> Given:
    """A record that fails until the transform is mended."""
    headers = (("message-id", event.encode()), ("raise", b"1"), ("twice", b"a"), ("twice", b"b"))
    return Given(event.encode(), b"k", headers, partition)


def failed(route: PipelineUnderTest, *records: Given) -> list[Record]:
    """Write records, let them fail, and return the dead letters."""
    route.write(*records)
    ran(route)
    return route.dead()


def mended(route: PipelineUnderTest) -> list[bytes | None]:
    """Let a worker with another transform go to the end; return all outputs."""
    ran(route, TRANSFORM=None)
    return [record.value for record in route.outputs()]


def inputs(route: PipelineUnderTest) -> list[Record]:
    return read_back(route.bootstrap, route.source)


def replays(route: PipelineUnderTest) -> list[Record]:
    settle(route)
    return [record for record in inputs(route) if "hapax-replay-of" in dict(record.headers)]


def test_a_replay_writes_the_record_as_it_came_and_passes_the_claim_of_its_original(route):
    twin = Given(b"twin", b"k", (("message-id", b"e-1"),), 1)
    assert len(failed(route, bad("e-1"), bad("e-2"))) == 2
    assert failed(route, twin)  # dropped: its event belongs to a dead letter
    desk = Desk(route)
    assert desk.ask("dead-letters", "replay", "--dry-run")["replayed"] == 2
    assert replays(route) == []
    told = desk.ask("dead-letters", "replay", "--yes")
    assert told == {"dry_run": False, "replayed": 2, "replayed_before": 0, "left": {}}
    originals = [one for one in inputs(route) if "raise" in dict(one.headers)][:2]
    for again, original in zip(replays(route), originals, strict=True):
        assert (again.key, again.value, again.partition) == (
            original.key,
            original.value,
            original.partition,
        )
        assert again.timestamp_ms == original.timestamp_ms
        named = ("hapax-replay-of", str(original.coordinates).encode())
        assert again.headers == (*original.headers, named)
    route.write(twin)
    assert mended(route) == [b"e-1", b"e-2"]


def test_what_was_replayed_is_not_replayed_again(route):
    failed(route, *(bad(f"e-{number}") for number in range(5)))
    desk = Desk(route)
    first = desk.ask("dead-letters", "replay", "--yes", "--id", "e-3")
    second = desk.ask("dead-letters", "replay", "--yes")
    third = desk.ask("dead-letters", "replay", "--yes")
    done = [(one["replayed"], one["replayed_before"]) for one in (first, second, third)]
    assert done == [(1, 0), (4, 1), (0, 5)]
    assert sorted(mended(route)) == [b"e-%d" % number for number in range(5)]  # type: ignore[type-var]
    listed = desk.ask("dead-letters", "list")
    assert (listed["count"], listed["replayed"]) == (5, 5)


@pytest.mark.parametrize(
    ("commit", "done"), [("die", 0), ("commit_and_die", 3)], ids=["before", "after"]
)
def test_a_replay_that_is_killed_around_its_commit_has_happened_once_after_the_next(
    route, commit, done
):
    failed(route, *(bad(f"e-{number}") for number in range(3)))
    desk = Desk(route)
    killed = subprocess.run(
        [sys.executable, "-c", DIE.replace("{commit}", commit)],
        env=desk.environment,
        check=False,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    told = desk.ask("dead-letters", "replay", "--yes")
    assert (told["replayed"], told["replayed_before"]) == (3 - done, done)
    assert len(replays(route)) == 3
    assert sorted(mended(route)) == [b"e-0", b"e-1", b"e-2"]  # type: ignore[type-var]


def test_of_two_replays_at_once_the_older_writes_nothing(route):
    failed(route, bad("e-1"))
    desk = Desk(route)
    older = KafkaReplay(load_settings(desk.environment), time)
    older.open()
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    late = Message(route.source, b"late", None, 0, 0, [("hapax-replay-of", b"x/0/0")])
    with pytest.raises(DuplicateInstanceError):
        older.write([late])
    assert [record.value for record in replays(route)] == [b"e-1"]


def test_a_batch_in_doubt_is_looked_up_and_counted_once(route, monkeypatch):
    failed(route, *(bad(f"e-{number}") for number in range(3)))
    write = KafkaReplay.write
    doubts = iter([True, False, True, False])

    def doubtful(self: KafkaReplay, messages: Any) -> None:
        write(self, messages)
        if next(doubts, False):
            raise ReplayInterruptedError("a request was sent twice")

    monkeypatch.setattr(KafkaReplay, "write", doubtful)
    told = Desk(route).ask("dead-letters", "replay", "--yes", "--rate", "1000")
    assert (told["replayed"], told["replayed_before"]) == (3, 0)
    assert len(replays(route)) == 3


def test_a_note_behind_an_open_transaction_is_waited_for(route, monkeypatch):
    failed(route, bad("e-1"))
    monkeypatch.setattr("hapax.operations.reading.MARGIN_S", 0.0)
    desk = Desk(route, TRANSACTION__TIMEOUT="1s")
    with produce_open(route.bootstrap, route.dead_letters, b"open"):
        done = desk.type("dead-letters", "replay", "--yes")
        assert done.exit_code == 3
        assert "a transaction has been open" in done.stderr
    assert replays(route) == []
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1


def test_filters_choose_and_what_is_not_ours_is_left_alone(route):
    failed(route, bad("e-1"), bad("e-2", partition=1))
    stranger = (("hapax-error", b"X: y"), ("hapax-source", f"{route.source}/0/0".encode()))
    elsewhere = (("hapax-error", b"X: y"), ("hapax-source", b"other/0/0"), ("hapax-app", b"?"))
    ours = (*elsewhere[:2], ("hapax-app", route.app.encode()))
    produce(
        route.bootstrap,
        route.dead_letters,
        Given(b"no dead letter"),
        Given(b"s", None, stranger),
        Given(b"o", None, ours),
    )
    desk = Desk(route)
    told = desk.ask("dead-letters", "replay", "--yes")
    assert told["replayed"] == 2
    assert told["left"] == {"of another app": 1, "from a topic that is no input now": 1}

    def count(*words: str) -> int:
        return int(desk.ask("dead-letters", "list", *words)["count"])

    assert count() == 4
    assert count("--reason", "valueerror") == 2
    assert count("--reason", "ValueError", "--source", f"{route.source}/1") == 1
    assert count("--since", "1h", "--id", "e-2") == 1
    assert count("--until", "1h") == 0


@pytest.mark.long
def test_what_fails_again_is_a_dead_letter_of_its_own_and_can_be_replayed(route):
    (letter,) = failed(route, bad("e-1"))
    desk = Desk(route)
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    ran(route)
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    assert mended(route) == [b"e-1"]
    original = dict(letter.headers)["hapax-source"]
    assert [dict(one.headers)["hapax-replay-of"] for one in replays(route)] == [original] * 2


def test_one_dead_letter_is_shown_whole_and_harmless(route):
    value = b"\x1b[31m\xff"
    headers = (("message-id", b"e\x00\xfe"), ("raise", b"1"), ("n", None))
    (letter,) = failed(route, Given(value, b"k\x1b", headers, 1))
    desk = Desk(route)
    places = [str(letter.coordinates), f"{route.source}/1/0", "e\\x00\\xfe"]
    for place in places:
        shown = desk.type("dead-letters", "show", place)
        assert shown.exit_code == 0, shown.output
        assert "ValueError: the record says so" in shown.stdout
        assert "hex 1b5b33316dff" in shown.stdout
        assert shown.stdout.replace("\n", "").isprintable()
    told = desk.ask("dead-letters", "show", places[0])
    assert told["value"] == {"base64": "G1szMW3/"}
    assert ["n", None] in told["headers"]
    assert desk.type("dead-letters", "show", "nothing").exit_code == 1


@pytest.mark.long
def test_the_audit_finds_nothing_wrong_after_a_replay(route, spark):
    failed(route, bad("e-1"), Given(b"fine", b"k", (("message-id", b"e-2"),), 1))
    desk = Desk(route, TRANSFORM="tests.kit.orders:obey")
    assert desk.ask("dead-letters", "replay", "--yes")["replayed"] == 1
    ran(route)
    found = audited(spark, desk.environment)
    assert found.anomalies == {}
    assert found.totals["dead_letters"] == 2
    assert replay_id(route.app) not in [worker.instance for worker in route.workers]

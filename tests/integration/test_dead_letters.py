"""Dead letters: what becomes one, what it says, and a replay that has its effect once."""

import importlib.util
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from hapax.core.errors import DuplicateInstanceError
from hapax.core.records import Headers, Message, Record
from hapax.kafka.produce.standalone import KafkaReplay, ReplayInterruptedError
from hapax.processing.dead_letters import dead_letter
from hapax.sandbox import Sandbox
from hapax.settings import load_settings
from tests.kit.managed_process import WorkerProcess
from tests.kit.mirrors import an_other_cluster
from tests.kit.native import Raw, RawProducer
from tests.kit.night import Desk, ran, settle
from tests.kit.orders import told
from tests.kit.pipeline_under_test import Done, PipelineUnderTest, header, values
from tests.kit.routes import a_route
from tests.kit.secured import INSTANCE, login, needed
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given, produce, produce_open, read_back

# -- Outputs that a topic refuses for their key, their timestamp or their name: judged together.


RECORDS, EVERY = 200, 5
HOUR_MS = 3_600_000
COMPACT = {"cleanup.policy": "compact"}
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
AT_ONCE: dict[str, Any] = {"DEAD_LETTER__RATE_MAX": "1", "TRANSACTION__RECORDS_MAX": "100"}
other = an_other_cluster()

at_once = a_route(created=False, **AT_ONCE)


def ill(number: int) -> bool:
    return number % EVERY == 3


def errors(route: PipelineUnderTest) -> set[str]:
    return {header(one, "hapax-error") for one in route.dead()}


def accounted_for(route: PipelineUnderTest, **settings: str | None) -> Done:
    """Let a worker do all there is; each record has its effect, and no producer was lost for it."""
    done = Done(route, route.run_to_end(**settings))
    assert [one.value for one in route.outputs()] == [
        b"%d" % number for number in range(RECORDS) if not ill(number)
    ]
    assert len(done.worker.lines("producer_rebuilt")) <= 2
    assert len(done.worker.lines("batch_aborted")) <= RECORDS // 20
    return done


@pytest.mark.parametrize("fast", ["off", "auto"])
@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 10**15])
def test_timestamps_that_a_topic_refuses_are_judged_together_and_the_property_is_named(
    at_once, ahead_ms, fast
):
    now_ms = int(time.time() * 1000)
    at_once.create(source=ANY_TIME, target={"message.timestamp.before.max.ms": str(HOUR_MS)})
    given = [
        Given(b"%d" % number, timestamp_ms=now_ms + number + ahead_ms * ill(number))
        for number in range(RECORDS)
    ]
    at_once.write(*given)
    accounted_for(at_once, FAST=fast, TRANSFORM=None)
    (error,) = errors(at_once)
    assert "message.timestamp.after.max.ms=3600000" in error
    assert "HAPAX_OUTPUT__TIMESTAMP=now" in error
    letters = [dead_letter(one) for one in at_once.dead()]
    wanted = [given[number] for number in range(RECORDS) if ill(number)]
    assert [(one.record.value, one.record.timestamp_ms) for one in letters if one] == [
        (each.value, each.timestamp_ms) for each in wanted
    ]
    assert all(abs(one.timestamp_ms - now_ms) < HOUR_MS for one in at_once.dead())


def test_outputs_may_have_the_time_of_writing(at_once):
    now_ms = int(time.time() * 1000)
    at_once.create(source=ANY_TIME)
    at_once.write(Given(b"ahead", timestamp_ms=now_ms * 1000), Given(b"early", timestamp_ms=1))
    at_once.run_to_end(OUTPUT__TIMESTAMP="now", TRANSFORM=None)
    assert [one.value for one in at_once.outputs()] == [b"ahead", b"early"]
    assert all(0 <= one.timestamp_ms - now_ms < HOUR_MS for one in at_once.outputs())
    assert at_once.dead() == []


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_records_without_a_key_for_a_compacted_topic_are_judged_together(at_once, guarantee):
    at_once.create(target=COMPACT, dead_letters=COMPACT)
    at_once.write(
        *(
            Given(b"%d" % number, None if ill(number) else b"k%d" % number)
            for number in range(RECORDS)
        )
    )
    if guarantee == "exactly_once":
        accounted_for(at_once, TRANSFORM=None)
    else:
        at_once.run_to_end(TRANSFORM=None, GUARANTEE=guarantee)
    (error,) = errors(at_once)
    assert f"no key, and topic {at_once.target} is compacted" in error
    numbers = [number for number in range(RECORDS) if ill(number)]
    dead = at_once.dead()
    assert [one.value for one in dead] == [b"%d" % number for number in numbers]
    assert [one.key for one in dead] == [f"{at_once.source}/0/{at}".encode() for at in numbers]
    restored = [dead_letter(one) for one in dead]
    assert {one.record.key for one in restored if one} == {None}
    assert {one.truncated for one in restored if one} == {""}


def test_a_dead_letter_that_its_topic_would_refuse_is_replayed_as_the_record_was(at_once):
    ahead_ms = int(time.time() * 1_000_000)
    at_once.create(source=ANY_TIME, target=COMPACT, dead_letters=COMPACT)
    at_once.write(Given(b"v", None, (("h", b"1"),), timestamp_ms=ahead_ms))
    at_once.run_to_end(TRANSFORM=None)
    (dead,) = at_once.dead()
    assert dict(dead.headers)["hapax-truncated"] == b"key=0,timestamp=%d" % ahead_ms
    assert Desk(at_once).ask("dead-letters", "replay", "--yes")["replayed"] == 1
    first, again = read_back(at_once.bootstrap, at_once.source)
    assert (again.key, again.value, again.timestamp_ms) == (None, b"v", ahead_ms)
    assert (first.key, first.value, first.timestamp_ms) == (None, b"v", ahead_ms)


def test_without_the_right_to_read_settings_the_property_is_named_and_no_value_is_lost(
    route_of, guarded, unique
):
    user, password = unique("least"), "ask-me-anything"
    guarded.rights.set_password(user, password, "SCRAM-SHA-256")
    way = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD=password)
    route = route_of(config={"source": ANY_TIME}, servers=guarded, **way)
    now_ms = int(time.time() * 1000)
    route.write(Given(b"late", timestamp_ms=now_ms * 1000), Given(b"fine", timestamp_ms=now_ms))
    guarded.rights.allow(user, *needed(route))
    route.worker(INSTANCE, STOP_AFTER__AT_END="true", TRANSFORM=None).ends_with(0)
    assert [one.value for one in route.outputs()] == [b"fine"]
    assert [one.value for one in route.dead()] == [b"late"]
    (error,) = errors(route)
    assert "INVALID_TIMESTAMP" in error
    assert "message.timestamp.after.max.ms" in error


def test_a_task_of_spark_judges_in_the_same_way(route_of):
    route = route_of(config={"source": ANY_TIME}, kind=SparkProcess, **AT_ONCE)
    now_ms = int(time.time() * 1000)
    route.write(
        *(
            Given(b"%d" % number, timestamp_ms=now_ms * (1000 if ill(number) else 1))
            for number in range(RECORDS)
        )
    )
    route.start(SparkProcess, "s-0", TRANSFORM=None, STOP_AFTER__AT_END="true").ends_with(0)
    assert [one.value for one in route.outputs()] == [
        b"%d" % number for number in range(RECORDS) if not ill(number)
    ]
    assert len(route.dead()) == sum(map(ill, range(RECORDS)))
    assert all("message.timestamp.after.max.ms" in error for error in errors(route))


@pytest.fixture(scope="module")
def creating():
    """A broker that creates topics by itself, as Kafka does by default."""
    with Sandbox(redis=False, properties={"auto.create.topics.enable": "true"}) as sandbox:
        yield sandbox


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_misspelt_topic_is_never_created_and_its_records_are_dead_letters(
    route_of, creating, guarantee
):
    route = route_of(servers=creating, GUARANTEE=guarantee, **AT_ONCE)
    wrong = f"{route.target}s"
    order = told({"topic": wrong})
    given = (
        Given(b"%d" % number, headers=(order,)) if ill(number) else Given(b"%d" % number)
        for number in range(RECORDS)
    )
    route.write(*given)
    accounted_for(route)
    assert errors(route) == {
        f"Refused: topic {wrong} does not exist: correct the name, or create it"
    }
    found = AdminClient({"bootstrap.servers": route.bootstrap}).list_topics(timeout=10)
    assert wrong not in found.topics


# -- Header names as other programs write them: kept, or a dead letter that says why -------

LONG = "x" * 40_000
"""Longer than the 32,767 bytes of a short."""

KEPT: Headers = (
    ("twice", b"1"),
    ("", b"no name"),
    ("twice", None),
    ("twice", b""),
    ("naïve ☃", b"\x00\xff"),
    (LONG, b"long"),
    ("message-id", b"1"),
)

UNREADABLE = {
    b"NUL": ((b"message-id\0x", b"1"),),
    b"NUL, null": ((b"other", b"2"), (b"message-id\0", None)),
    b"NUL before its twin": ((b"a\0b", b"1"), (b"a", b"1")),
    b"NUL after its twin": ((b"a", None), (b"a\0b", None)),
    b"not UTF-8": ((b"\xff", b"1"),),
}

ODD_NAMES = [
    Raw(b"k", b"kept", tuple((name.encode(), value) for name, value in KEPT)),
    *(Raw(b"k", name, headers) for name, headers in UNREADABLE.items()),
    Raw(b"k", b"last", ((b"message-id", b"2"),)),
]

NATIVE = pytest.mark.skipif(
    importlib.util.find_spec("hapax_fast") is None, reason="hapax_fast is not installed"
)

CUT = pytest.mark.xfail(
    strict=True,
    reason="confluent-kafka alone hands a name out up to its NUL: docs/ids.md says when",
)

FORMS: dict[str, tuple[type[WorkerProcess], dict[str, Any]]] = {
    "nothing called": (WorkerProcess, {"TRANSFORM": None}),
    "a function": (WorkerProcess, {}),
    "Spark": (SparkProcess, {}),
    "Python alone": (WorkerProcess, {"FAST": "off"}),
}


@pytest.fixture(scope="module")
def made(request, sandbox, tmp_path_factory):
    kind, settings = FORMS[request.param]
    route = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("names"), kind=kind, **settings)
    route.create()
    producer = RawProducer(route.bootstrap)
    producer.send(route.source, ODD_NAMES)
    producer.close()
    yield Done(route, route.run_to_end())
    route.close()


def each(cut: pytest.MarkDecorator | tuple[()]) -> pytest.MarkDecorator:
    native = [pytest.param(form, marks=NATIVE) for form in list(FORMS)[:-1]]
    forms = [*native, pytest.param("Python alone", marks=cut)]
    return pytest.mark.parametrize("made", forms, indirect=True)


@each(cut=())
def test_names_that_are_text_leave_as_they_came_with_their_order_and_their_nulls(made):
    (kept, *_rest) = made.outputs_of(0)
    assert tuple(pair for pair in kept.headers if not pair[0].startswith("hapax-")) == KEPT
    assert values(made.outputs_of(len(ODD_NAMES) - 1)) == [b"last"]


@each(cut=CUT)
def test_a_name_that_cannot_be_read_whole_makes_a_dead_letter_and_no_other_id(made):
    dead = made.route.dead()
    assert values(dead) == list(UNREADABLE)
    for record in dead:
        assert "not UTF-8, or holds a NUL" in header(record, "hapax-error")
        assert [name for name, _ in record.headers if not name.startswith("hapax-")] == []
        assert header(record, "hapax-id") == header(record, "hapax-source")
    assert made.route.committed() == {0: len(ODD_NAMES)}


# -- A replay of dead letters has its effect once, whatever ends it and however often it is run.


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
    route.write(*records)
    ran(route)
    return route.dead()


def mended(route: PipelineUnderTest) -> list[bytes | None]:
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

"""Calls and records that hang, kill or cannot be read: what ends, what is named, what goes on."""

import json
import signal
import time
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer

from hapax.cluster.offset_moves import Unreadable
from hapax.core.records import Coordinates
from hapax.kafka.read.range_reader import first_from
from hapax.processing.retry_later import LEVELS
from hapax.sandbox import Sandbox
from tests.kit.calls import MODULE
from tests.kit.damage import bomb, damage, reseal
from tests.kit.killers import FAULTS, FORMS, KILLED, LATER, supervise
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest, header, metric
from tests.kit.probes import ask, free_port
from tests.kit.routes import a_route
from tests.kit.secured import settings_of
from tests.kit.topics import Given, read_back
from tests.kit.waiting import await_

# -- Calls that take too long: a coroutine is cancelled, a thread ends its process ---------

COROUTINE = {"TRANSFORM": f"{MODULE}:coroutine", "CALL__CONCURRENCY": "16"}
THREADS = {"TRANSFORM": f"{MODULE}:function", "CALL__CONCURRENCY": "8"}
LIST = {"TRANSFORM": f"{MODULE}:batch", "CALL__TIMEOUT": "20s"}
"""One call at a time, which may take longer than the poll interval."""

POLL = {
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__SESSION_TIMEOUT": "6s",
    "GROUP__MAX_POLL_INTERVAL": "7s",
    "TRANSACTION__TIMEOUT": "4s",
    "WATCHDOG__TIMEOUT": "5s",
}

DEATHS_MAX = 3


def quick(*numbers: int, partition: int = 0) -> list[Given]:
    return [Given(b"%d" % each, b"key-%d" % each, (), partition) for each in numbers]


def slow(seconds: float, name: str = "sleep-s", partition: int = 0) -> Given:
    return Given(b"slow", b"slow", ((name, b"%g" % seconds),), partition)


def values(route: PipelineUnderTest) -> list[bytes]:
    return sorted(each.value or b"" for each in route.outputs())


def expected(*numbers: int, more: tuple[bytes, ...] = ()) -> list[bytes]:
    return sorted([*(b"%d" % number for number in numbers), *more])


def test_while_one_call_runs_other_partitions_are_committed_and_its_own_waits_for_it(route):
    route.write(*quick(0), slow(8), *quick(*range(1, 20)), *quick(*range(20, 40), partition=1))
    port = free_port()
    worker = route.worker(**COROUTINE, TELEMETRY__PORT=str(port))
    await_(lambda: route.committed() == {0: 1, 1: 20}, 6, worker.text)
    assert values(route) == expected(0, *range(20, 40))
    metrics = ask(port, "/metrics")[1]
    assert metric(metrics, "hapax_calls_in_flight") >= 1
    assert metric(metrics, "hapax_call_oldest_seconds") > 0
    assert '"in_flight"' in ask(port, "/status.json")[1]
    route.await_lag_0()
    assert values(route) == expected(*range(40), more=(b"slow",))
    # A tick of the watchdog takes note of the calls.
    await_(lambda: metric(ask(port, "/metrics")[1], "hapax_calls_in_flight") == 0, 6, worker.text)
    assert worker.terminate() == 0


def test_a_record_in_a_call_is_traced_as_waiting_for_it_by_the_port_of_its_process(route):
    route.write(*quick(0), slow(3600), *quick(2))
    port = free_port()
    worker = route.worker(**COROUTINE, TELEMETRY__PORT=str(port), TELEMETRY__LAG_INTERVAL="1s")
    await_(lambda: route.committed().get(0) == 1, 20, worker.text)
    desk = Desk(route)

    def traced(at: int, *words: str) -> dict[str, Any]:
        (one,) = desk.ask("trace", f"{route.source}/0/{at}", *words)["records"]
        assert isinstance(one, dict)
        return one

    asked = ("--port", str(port))
    assert traced(0, *asked)["verdict"] == "done: 1 output"
    assert traced(1)["verdict"] == "waiting: not processed yet", "only the process knows more"
    called = traced(1, *asked)
    assert called["verdict"].startswith("waiting for its call, which has taken")
    assert called["in_call_seconds"] > 0
    behind = f"waiting for its call or its commit: read by w-0, alongside {route.source}/0/1"
    await_(lambda: traced(2, *asked)["verdict"].startswith(behind), 10, worker.text)
    other = Desk(route, APP="other").type("trace", f"{route.source}/0/1", *asked)
    assert other.exit_code == 1, other.output
    assert "is none of other" in other.stderr
    worker.kill()


@pytest.mark.parametrize("form", [COROUTINE, THREADS, LIST], ids=["coroutine", "threads", "list"])
def test_a_call_longer_than_the_poll_interval_does_not_cost_the_membership(route, stamps, form):
    route.write(slow(10), *quick(*range(20)))
    worker = route.worker(**form, **POLL)
    route.await_lag_0()
    assert worker.terminate() == 0, worker.text()
    assert values(route) == expected(*range(20), more=(b"slow",))
    assert worker.lines("partitions_lost") == worker.lines("call_hung") == []
    assert worker.lines("partitions_assigned")[1:] == []
    assert len(stamps.called()) == 21, "nothing was called again"


# -- A record that kills or hangs its process: real workers, killed by their own transform -

INNOCENT = [b"%d" % number for number in range(3000)]

DYNAMIC = {
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__SESSION_TIMEOUT": "6s",
    "TRANSACTION__TIMEOUT": "3s",
}

killing = a_route(partitions=2, TRANSFORM="tests.kit.killers:obey")


def write(route: PipelineUnderTest, culprit: bytes, place: int) -> None:
    """Write innocents to both partitions, and the culprit among those of the first."""
    records = [Given(value, partition=number % 2) for number, value in enumerate(INNOCENT)]
    route.write(*records[:place], Given(culprit, partition=0), *records[place:])


def judge(route: PipelineUnderTest, culprit: bytes) -> str:
    """Every innocent has passed once, the culprit is the only dead letter; return its error."""
    assert sorted(record.value or b"" for record in route.outputs()) == sorted(INNOCENT)
    (letter,) = route.dead()
    assert letter.value == culprit
    assert route.lag() == 0
    return (dict(letter.headers)["hapax-error"] or b"").decode()


@pytest.mark.parametrize(
    ("culprit", "code"),
    [(b"segfault", -signal.SIGSEGV), (b"exit", 3), (b"killed", -signal.SIGKILL)],
)
@pytest.mark.parametrize("place", [0, 2000])
def test_a_record_that_kills_its_process_is_a_dead_letter_after_at_most_three_deaths(
    killing, culprit, code, place
):
    write(killing, culprit, place)
    codes, workers = supervise(killing, starts_max=DEATHS_MAX + 1)
    assert codes[-1] == 0, workers[-1].text()
    assert set(codes[:-1]) == {code}
    assert len(codes) - 1 <= DEATHS_MAX
    assert "killed its process" in judge(killing, culprit)
    (line,) = workers[-1].lines("crashing_record_found")
    assert str(line["record"]).startswith(f"{killing.source}/0/")


def test_another_process_of_a_dynamic_group_takes_over_and_condemns_the_culprit(killing):
    write(killing, b"segfault", 2000)
    codes, workers = supervise(
        killing, starts_max=DEATHS_MAX + 1, names="w-{}", within_s=90.0, **DYNAMIC
    )
    assert codes[-1] == 0, workers[-1].text()
    judge(killing, b"segfault")


def test_control_without_marks_it_is_killed_at_every_start(killing):
    write(killing, b"segfault", 2000)
    codes, workers = supervise(killing, starts_max=5, TRANSFORM="tests.kit.killers_unmarked:obey")
    assert codes == [-signal.SIGSEGV] * 5, workers[-1].text()
    assert killing.dead() == []


@pytest.mark.parametrize("culprit", [b"hang", b"spin"])
def test_a_call_that_hangs_ends_with_8_and_names_the_record(killing, culprit, in_time):
    write(killing, culprit, 2000)
    began_s = time.monotonic()
    codes, workers = supervise(killing, starts_max=DEATHS_MAX + 1, CALL__TIMEOUT="1s")
    assert codes[-1] == 0, workers[-1].text()
    assert set(codes[:-1]) == {8}
    assert len(codes) - 1 <= DEATHS_MAX
    in_time(time.monotonic() - began_s, 30)
    (line,) = workers[0].lines("call_hung")
    assert str(line["record"]).startswith(f"{killing.source}/0/")
    assert f"from record {line['record']} for" in workers[0].text()
    assert "did not return within 1 s" in judge(killing, culprit)


# -- Whose attempt it is: outages, pauses, kills from outside, and a loop that is held ------

OUTAGE = {
    "TRANSFORM": "tests.kit.killers:obey",
    "CALL__TIMEOUT": "800ms",
    "CALL__RECORDS_MAX": "2",
    "RETRY__LATER": "ConnectionError",
    "RETRY__DELAY": "60m",
}


@pytest.mark.parametrize(("form", "fast"), [*((form, "auto") for form in FORMS), ("`def`", "off")])
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_an_attempt_has_its_outcome_in_each_form(route, fault, form, fast):
    retry, (deed, outcomes) = f"{route.app}-retry", FAULTS[fault]
    route.sandbox.create_topic(retry, LEVELS)
    three = enumerate([b"fine", deed, b"fine"])
    route.write(*(Given(value, b"k%d" % at, (), 0) for at, value in three))
    settings = OUTAGE | FORMS[form] | {"RETRY__TOPIC": retry, "FAST": fast}
    if fault == KILLED:
        long = {"RETRY__BACKOFF": "1s", "RETRY__ATTEMPTS": "20"}  # it is not done so soon
        first = route.worker(**settings | long)
        await_(lambda: set(route.committed().values()) & {0, 1}, 30, first.text)
        first.kill()
    codes, workers = supervise(route, starts_max=DEATHS_MAX + 1, **settings)
    assert codes[-1] == 0, workers[-1].text()
    waits, dead = read_back(route.bootstrap, retry), route.dead()
    assert [one.value for one in (*waits, *dead)] == [deed]
    assert [one.value for one in route.outputs()] == [b"fine"] * 2
    found = LATER if waits else header(dead[0], "hapax-error").replace("timeout:", "`timeout`")
    end = {8: "exit code 8", -signal.SIGSEGV: "the process dies"}
    for code in set(codes[:-1]):
        assert found.startswith("Killed")
        found = f"{end[code]}, then, called alone, a dead letter"
    if "`timeout`" in found:
        found = "a dead letter: `timeout`"
    assert found == outcomes[list(FORMS).index(form)]
    hung = [line["record"] for line in workers[0].lines("call_hung")]
    named = 0 if form == "of a list" else 1  # of a list the first
    assert hung == [f"{route.source}/0/{named}"] * (8 in codes)
    assert bool(workers[-1].lines("records_isolated")) == (fault == KILLED or len(codes) > 1)


@pytest.mark.parametrize("size", [20_000, 10], ids=["inputs", "outputs"])
def test_one_slow_call_does_not_stop_other_partitions_and_what_waits_for_it_is_bounded(route, size):
    """Records of 20 kB, or of 10 bytes with outputs of 100 kB."""
    fast = [Given(b"x" * size, partition=at % 2) for at in range(300)]
    route.write(Given(b"slow", partition=0), *fast[::2] * 20)
    worker = route.worker(
        TRANSFORM="tests.kit.killers:enriched",
        CALL__CONCURRENCY="16",
        TRANSACTION__BYTES_MAX="4MiB",
    )
    await_(lambda: bool(worker.lines("service_ready")), 30, worker.text)
    before = worker.peak_bytes()
    await_(lambda: "asleep" in worker.text(), 30, worker.text)
    route.write(*fast[1::2])
    await_(lambda: route.committed().get(1) == len(fast) // 2, 30, worker.text)
    assert route.committed().get(0) in {None, 0}, "its first call has not ended"
    assert worker.peak_bytes() - before < 100 << 20
    worker.kill()


@pytest.mark.parametrize("form", ["LeavingSlowly", "LeavingSlowlyToo"])
def test_a_close_that_hangs_ends_with_7_in_every_form(route, form):
    route.write(*quick(*range(5)))
    worker = route.worker(
        TRANSFORM=f"tests.kit.killers:{form}", SHUTDOWN__TIMEOUT="1s", TRANSACTION__TIMEOUT="2s"
    )
    route.await_lag_0()
    assert worker.terminate(60) == 7, worker.text()


# -- A set that cannot be decoded: its partition is held and named, and the others go on ---

BOMB = 400 << 20
MEMORY_MAX = 400 << 20
stuck = a_route(partitions=2, TRANSFORM=None)


def write_set(route: PipelineUnderTest, size: int = 150, before: int = 2) -> None:
    """Write 0 and 1 to partition 0, a set of 2 to 4, and 5; one record to partition 1."""
    for value in (b"a", b"b")[:before]:
        route.write(Given(value, partition=0))
    compressed = "gzip" if size == 150 else "none"
    producer = Producer(
        {"bootstrap.servers": route.bootstrap, "compression.type": compressed, "linger.ms": 200}
    )
    producer.list_topics(timeout=30)
    for name in (b"c", b"d", b"e"):
        producer.produce(route.source, name * (size // 3), b"k", 0)
    assert producer.flush(30) == 0
    route.write(Given(b"f", partition=0), Given(b"other", partition=1))


def spoil(route: PipelineUnderTest, sandbox: Sandbox, kind: str, at: int = 2) -> None:
    """Write a set of three records that begins ``at`` 0 or 2, and spoil it."""
    write_set(route, 300_000 if kind == "bomb" else 150, before=at)
    if kind == "bomb":
        assert bomb(sandbox, route.source, at, BOMB) < 100_000
        return
    damage(sandbox, route.source, at, codec=kind == "codec")
    if kind != "checksum":
        reseal(sandbox, route.source, at)


def found_values(route: PipelineUnderTest) -> set[bytes]:
    return {record.value or b"" for record in route.outputs()}


@pytest.mark.parametrize("kind", ["checksum", "content", "codec", "bomb"])
def test_a_set_that_cannot_be_decoded_is_named_and_other_partitions_go_on(stuck, sandbox, kind):
    spoil(stuck, sandbox, kind)
    port = free_port()
    worker = stuck.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    (line,) = worker.lines("partition_stuck")
    assert (line["partition"], line["offset"]) == (f"{stuck.source}/0", 2)
    await_(lambda: stuck.committed() == {0: 2, 1: 1}, 30, worker.text)
    code, answer = ask(port, "/readyz")
    assert code == 503
    assert f"{stuck.source}/0 is stuck: the set at offset 2 cannot be read" in answer
    found = json.loads(ask(port, "/status.json")[1])
    assert (found["state"], found["ready"]) == ("stuck", False)
    series = f'hapax_partition_stuck_offset{{partition="0",topic="{stuck.source}"}} 2.0'
    assert series in ask(port, "/metrics")[1]
    stuck.write(Given(b"later", partition=1))
    await_(lambda: b"later" in found_values(stuck), 15, worker.text)
    stuck.write(Given(b"beyond", partition=0))
    await_(lambda: len(worker.lines("partition_stuck")) == 1, 1, worker.text)
    assert stuck.committed()[0] == 2
    assert found_values(stuck) == {b"a", b"b", b"other", b"later"}
    assert ask(port, "/livez")[0] == 200
    assert worker.peak_bytes() < MEMORY_MAX
    desk, place = Desk(stuck), f"{stuck.source}/0/2"
    command = f"hapax offsets skip {place} --dead-letter"
    (row,) = [one for one in desk.ask("offsets")["partitions"] if one["partition"] == 0]
    assert (row["stuck"]["offset"], row["committed"]) == (2, 2)
    assert "STUCK" in desk.type("offsets").stdout
    (traced,) = desk.ask("trace", f"{stuck.source}/0/3")["records"]
    assert traced["verdict"].startswith("STUCK: ")
    assert command in traced["undecodable"]
    told = desk.type("doctor")
    assert (told.exit_code, place in told.stdout) == (1, True), told.stdout
    assert command in " ".join(told.stdout.split())
    assert worker.terminate() == 0


def test_skipped_by_the_command_the_partition_goes_on(stuck, sandbox):
    spoil(stuck, sandbox, "codec")
    worker = stuck.worker()
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    (line,) = worker.lines("partition_stuck")
    await_(lambda: stuck.committed() == {0: 2, 1: 1}, 30, worker.text)
    assert worker.terminate() == 0
    words = str(line["skip"]).split()
    assert words[:3] == ["hapax", "offsets", "skip"]
    await_(lambda: Desk(stuck).type(*words[1:], "--yes").exit_code == 0, 30, worker.text)
    assert not stuck.run_to_end().lines("partition_stuck")
    assert found_values(stuck) == {b"a", b"b", b"f", b"other"}
    assert len(stuck.dead()) == 1


def test_a_set_that_is_whole_again_is_read(stuck, sandbox):
    """As when a replica that has it whole becomes the leader."""
    write_set(stuck)
    damage(sandbox, stuck.source, 2, codec=True)
    port = free_port()
    worker = stuck.worker(TELEMETRY__PORT=str(port))
    await_(lambda: bool(worker.lines("partition_stuck")), 30, worker.text)
    damage(sandbox, stuck.source, 2, codec=True, number=1)
    await_(lambda: b"f" in found_values(stuck), 30, worker.text)
    assert found_values(stuck) == {b"a", b"b", b"c" * 50, b"d" * 50, b"e" * 50, b"f", b"other"}
    await_(lambda: ask(port, "/readyz")[0] == 200, 10, worker.text)
    assert "\nhapax_partition_stuck" not in ask(port, "/metrics")[1]


@pytest.mark.parametrize("kind", ["checksum", "content", "codec", "bomb"])
@pytest.mark.parametrize("at", [0, 2])
def test_the_end_of_a_damaged_set_is_found_from_any_of_its_offsets(stuck, sandbox, kind, at):
    spoil(stuck, sandbox, kind, at)
    settings = settings_of(stuck)
    for offset in range(at, at + 3):
        found = first_from(settings, Coordinates(stuck.source, 0, offset), at + 4)
        assert isinstance(found, Unreadable)
        assert (found.first, found.last) == (offset, at + 2)
    whole = first_from(settings, Coordinates(stuck.source, 0, at + 3), at + 4)
    assert isinstance(whole, tuple)
    assert whole[0].value == b"f"


def test_the_end_of_a_damaged_set_is_found_before_another_one_and_at_the_end(stuck, sandbox):
    firsts = [0]
    for count in (37, 1, 300):  # the last ends where the log does
        producer = Producer(
            {"bootstrap.servers": stuck.bootstrap, "compression.type": "gzip", "linger.ms": 500}
        )
        producer.list_topics(timeout=30)
        for _ in range(count):
            producer.produce(stuck.source, b"x" * 200, b"k", 0)
        assert producer.flush(30) == 0
        damage(sandbox, stuck.source, firsts[-1])
        firsts.append(firsts[-1] + count)
    settings, end = settings_of(stuck), firsts[-1]
    for first, beyond in pairwise(firsts):
        for offset in {first, (first + beyond) // 2, beyond - 1}:
            found = first_from(settings, Coordinates(stuck.source, 0, offset), end)
            assert isinstance(found, Unreadable)
            assert (found.first, found.last) == (offset, beyond - 1)

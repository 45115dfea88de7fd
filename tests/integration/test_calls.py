"""Every form of a transform: effects and order, what is refused, kills, stops and aborts."""

import time

import pytest

from hapax.core.records import Record
from tests.fault.rules import is_poison
from tests.fault.striking.strikes_requests import ILLEGAL_GENERATION
from tests.kit.at_work import at_work, await_told, refused, untouched
from tests.kit.calls import MODULE, PAUSE_MAX_S
from tests.kit.faults import Rule
from tests.kit.flow import Flow
from tests.kit.leaving import DEEDS, FINE, MODULE as LEAVING
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, header, metric, source, values
from tests.kit.probes import ask, free_port
from tests.kit.proof import at_length
from tests.kit.routes import a_route
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- Each record has its effect once, in input order, per key in series --------------------

EVERY_FORM = {
    # 1 is what it is unless set.
    "function": ("function", "1"),
    "threads": ("function", "16"),
    "coroutine in series": ("coroutine", "1"),
    "coroutine": ("coroutine", "16"),
    "list": ("batch", "1"),
    "list in threads": ("batch", "4"),
    "coroutine of a list": ("coroutine_batch", "4"),
    "class": ("Client", "16"),
    "class of a list": ("Model", "1"),
    "context": ("opened", "16"),
}

PARTITIONS, KEYS, RECORDS = 4, 40, 600
OVERLAPPING = ["threads", "coroutine", "coroutine of a list", "class", "context"]
OPENED = ["class", "class of a list", "context"]


@pytest.fixture
def stamped(route_of, stamps, monkeypatch):
    monkeypatch.setenv(PAUSE_MAX_S, "0.004")
    return route_of(PARTITIONS, CALL__RECORDS_MAX="32")


def given(form: str) -> dict[str, str]:
    name, concurrency = EVERY_FORM[form]
    more = {} if concurrency == "1" else {"CALL__CONCURRENCY": concurrency}
    return {"TRANSFORM": f"{MODULE}:{name}", **more}


def keyed(records: int = RECORDS) -> list[Given]:
    return [
        Given(b"%d" % number, b"key-%d" % (number % KEYS), partition=number % KEYS % PARTITIONS)
        for number in range(records)
    ]


def in_order(outputs: list[Record]) -> bool:
    """Whether each output partition has the records of each input partition in their order."""
    last: dict[tuple[int, str], int] = {}
    for output in outputs:
        lane = (output.partition, header(output, "hapax-source").rsplit("/", 1)[0])
        if last.get(lane, -1) >= source(output):
            return False
        last[lane] = source(output)
    return True


@pytest.mark.parametrize("form", EVERY_FORM)
def test_each_form_gives_every_event_its_effect_once_and_in_order(
    sandbox, tmp_path, monkeypatch, form
):
    monkeypatch.setenv(PAUSE_MAX_S, "0.002")
    flow = Flow(sandbox, tmp_path, **given(form))
    try:
        flow.feed(2000)
        flow.worker("w-0")
        judgement = flow.finish()
    finally:
        flow.close()
    assert judgement.anomalies == {}
    counts = judgement.counts
    assert counts.outputs > 2000
    assert counts.dead_letters == sum(map(is_poison, range(counts.distinct))) > 0


@pytest.mark.parametrize("form", OVERLAPPING)
def test_calls_of_one_key_never_overlap_and_those_of_several_do(stamped, stamps, form):
    stamped.write(*keyed())
    stamped.run_to_end(**given(form))
    outputs = stamped.outputs()
    assert sorted(int(each.value or b"") for each in outputs) == list(range(RECORDS))
    assert in_order(outputs)
    assert sorted(stamps.called()) == sorted(set(stamps.called()))
    assert len(stamps.called()) == RECORDS
    assert stamps.overlaps() == []
    assert 1 < stamps.together_most() <= int(EVERY_FORM[form][1])


@pytest.mark.parametrize("form", OPENED)
def test_what_a_form_needs_is_opened_once_and_closed_after_the_last_call(stamped, stamps, form):
    stamped.write(*keyed(100))
    worker = stamped.worker(**given(form))
    await_(lambda: stamped.lag() == 0, 30, worker.text)
    assert (stamps.times("setup"), stamps.times("teardown")) == (1, 0)
    assert worker.terminate() == 0, worker.text()
    assert (stamps.times("setup"), stamps.times("teardown")) == (1, 1)
    words = [line.split(" ")[2] for line in stamps.path.read_text().splitlines()]
    assert (words[0], words[-1]) == ("setup", "teardown")


def test_a_record_has_the_id_of_its_event_or_its_own_coordinates(stamped):
    stamped.write(
        Given(b"named", b"k", (("message-id", b"order-7"),), partition=0),
        Given(b"nameless", b"k", partition=1),
    )
    stamped.run_to_end(TRANSFORM=f"{MODULE}:identify", CALL__CONCURRENCY="2")
    assert {header(each, "hapax-id"): each.value for each in stamped.outputs()} == {
        "order-7": b"order-7",
        f"{stamped.source}/1/0": f"{stamped.source}/1/0".encode(),
    }


def test_an_idle_worker_of_coroutines_commits_and_waits(stamped):
    """Records that trickle in are each answered, not collected until a window is full."""
    worker = stamped.worker(**given("coroutine"))
    await_told(worker, "partitions_assigned")
    for number in range(3):
        stamped.write(Given(b"%d" % number, b"k", partition=0))
        stamped.await_outputs(number + 1)
    assert worker.terminate() == 0


# -- Kills, rebalances, stops and aborts while calls are in flight -------------------------

LISTS = ("list", "coroutine of a list")

FORMS = {
    "coroutine": {"TRANSFORM": f"{MODULE}:coroutine", "CALL__CONCURRENCY": "32"},
    "threads": {"TRANSFORM": f"{MODULE}:function", "CALL__CONCURRENCY": "8"},
    "list": {"TRANSFORM": f"{MODULE}:batch", "CALL__RECORDS_MAX": "64"},
    "coroutine of a list": {
        "TRANSFORM": f"{MODULE}:coroutine_batch",
        "CALL__CONCURRENCY": "4",
        "CALL__RECORDS_MAX": "16",
    },
}

KEYS_OF_TWO = 40
SHUTDOWN_S = 4


@pytest.fixture
def flowing(sandbox, tmp_path, monkeypatch):
    """Makes a flow whose calls take up to 10 ms."""
    monkeypatch.setenv(PAUSE_MAX_S, "0.01")
    made: list[Flow] = []

    def flow(form: str, **more: str) -> Flow:
        quick = {"GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}
        made.append(Flow(sandbox, tmp_path, **quick, **FORMS[form], **more))
        return made[-1]

    yield flow
    for each in made:
        each.close()


def of_two_partitions(records: int, sleep_s: float = 0.0) -> list[Given]:
    headers = (("sleep-s", b"%g" % sleep_s),)
    return [
        Given(b"%d" % number, b"key-%d" % (number % KEYS_OF_TWO), headers, number % 2)
        for number in range(records)
    ]


def numbers(route: PipelineUnderTest) -> list[int]:
    return sorted(int(each.value or b"") for each in route.outputs())


@pytest.mark.rounds
@pytest.mark.parametrize(
    "form", ["coroutine", "threads", *(pytest.param(form, marks=at_length) for form in LISTS)]
)
def test_workers_killed_with_calls_in_flight_lose_and_double_nothing(flowing, form):
    flow = flowing(form)
    flow.feed_beside(800)
    worker = flow.worker("w-0")
    for _ in range(3):
        at_work(worker, 3)
        worker.kill()
        worker.start()
    at_work(worker)
    assert flow.finish().anomalies == {}


@pytest.mark.parametrize("form", ["coroutine", "list"])
def test_after_a_kill_only_what_was_in_flight_is_called_one_at_a_time(route, form):
    """One at a time, as where a record is suspected of the kill, all of it would take 80 s."""
    route.write(*of_two_partitions(4000, 0.02))
    worker = route.worker(**FORMS[form])
    at_work(worker)
    worker.kill()
    worker.start()
    route.await_lag_0(25)
    assert numbers(route) == list(range(4000))


@pytest.mark.parametrize("form", ["coroutine", "list"])
def test_a_member_that_joins_and_leaves_while_calls_are_in_flight_doubles_nothing(flowing, form):
    flow = flowing(form, GROUP__MEMBERSHIP="dynamic")
    flow.feed_beside(800)
    first = flow.worker("w-0")
    at_work(first, 3)
    second = flow.worker("w-1")
    at_work(second, 3)
    at_work(first, 3)
    assert second.terminate() == 0, second.text()
    await_(lambda: len(first.lines("partitions_assigned")) >= 2, 40, first.text)
    at_work(first, 3)
    assert flow.finish().anomalies == {}


@pytest.mark.parametrize("form", FORMS)
def test_sigterm_under_load_leaves_with_0_and_outputs_are_those_below_the_committed_offset(
    route, form, in_time
):
    """All of it would take the fastest form 12 s."""
    route.write(*of_two_partitions(4000, 0.2))
    worker = route.worker(**FORMS[form], SHUTDOWN__TIMEOUT=f"{SHUTDOWN_S}s")
    at_work(worker, 2)
    began_s = time.monotonic()
    assert worker.terminate() == 0, worker.text()
    in_time(time.monotonic() - began_s, SHUTDOWN_S + 2)
    done = route.committed()
    assert 0 < sum(offset or 0 for offset in done.values()) < 4000
    below = [
        number for number in range(4000) if number // 2 < (done[number % 2] or 0)
    ]  # the n-th record of each partition has offset n // 2
    assert numbers(route) == below


def test_calls_longer_than_the_shutdown_are_left_and_made_by_the_next_process(
    route, stamps, in_time
):
    route.write(*of_two_partitions(10), *of_two_partitions(4, 60.0))
    worker = route.worker(**FORMS["coroutine"], SHUTDOWN__TIMEOUT=f"{SHUTDOWN_S}s")
    at_work(worker)
    await_(lambda: len(stamps.calls()) == 14, 20, worker.text)
    began_s = time.monotonic()
    assert worker.terminate() == 0, worker.text()
    in_time(time.monotonic() - began_s, SHUTDOWN_S + 5)
    assert numbers(route) == list(range(10))
    again = route.worker(**FORMS["coroutine"])
    await_(lambda: len(stamps.calls()) == 18, 20, again.text)
    assert again.lines("records_isolated") == [], "a stop is no death"
    again.kill()


@pytest.mark.parametrize("form", FORMS)
def test_after_an_abort_without_a_crash_no_record_is_called_again(
    route, proxied_broker, stamps, form
):
    """The group refuses the offsets of every second transaction."""
    route.write(*of_two_partitions(300))
    # The first offsets of an assignment are the mark that a process works on them (suspicion.py).
    rules = [
        proxied_broker.proxy.add(
            Rule("TxnOffsetCommit", "refuse", nth=2 * at, code=ILLEGAL_GENERATION)
        )
        for at in range(1, 11)
    ]
    worker = route.worker(
        **FORMS[form],
        KAFKA__BOOTSTRAP_SERVERS=proxied_broker.proxied,
        TRANSACTION__RECORDS_MAX="20",
    )
    await_(lambda: not worker.running or all(rule.hits for rule in rules), 1500, worker.text)
    route.await_lag_0(120)  # a third of the records is still to come
    assert worker.terminate() == 0, worker.text()
    assert numbers(route) == list(range(300))
    called = stamps.called()
    assert len(called) == len(set(called)), "a record was called again after an abort"
    assert len(called) == 300
    assert len(worker.lines("batch_aborted")) >= 10


def test_an_abort_costs_no_call_that_is_still_in_flight(route, proxied_broker, stamps):
    """A call of 3 s runs while the transactions of other records are aborted: it goes on."""
    slow = Given(b"0", b"slow", (("sleep-s", b"3"),), 0)
    quick = [Given(b"%d" % number, b"key-%d" % number, partition=1) for number in range(1, 200)]
    for nth in (2, 3, 5):
        proxied_broker.proxy.add(
            Rule("TxnOffsetCommit", "refuse", nth=nth, code=ILLEGAL_GENERATION)
        )
    route.write(slow, *quick)
    worker = route.worker(
        **FORMS["coroutine"],
        KAFKA__BOOTSTRAP_SERVERS=proxied_broker.proxied,
        TRANSACTION__RECORDS_MAX="20",
    )
    await_told(worker, "batch_aborted")
    route.await_lag_0()
    assert worker.terminate() == 0, worker.text()
    assert numbers(route) == list(range(200))
    assert len(stamps.called()) == len(set(stamps.called())) == 200


# -- No business code ends the service with 0: whatever it raises is the failure of its record.


NAMES = {
    b"exit-0": "SystemExit",
    b"exit-text": "SystemExit",
    b"cancelled": "CancelledError",
    b"interrupt": "KeyboardInterrupt",
    b"generator": "GeneratorExit",
    b"own": "OwnError",
}

LEAVING_FORMS = {
    "native": {"TRANSFORM": f"{LEAVING}:function", "FAST": "on"},
    "python": {"TRANSFORM": f"{LEAVING}:function", "FAST": "off"},
    "generator": {"TRANSFORM": f"{LEAVING}:generator"},
    "threads": {"TRANSFORM": f"{LEAVING}:function", "CALL__CONCURRENCY": "4"},
    "list": {"TRANSFORM": f"{LEAVING}:batch"},
    "coroutine": {"TRANSFORM": f"{LEAVING}:coroutine"},
    "coroutine of a list": {"TRANSFORM": f"{LEAVING}:coroutine_batch"},
}

plain = a_route()


def judge(route: PipelineUnderTest) -> None:
    """All others have passed, and each that raised is a dead letter that names what it raised."""
    assert {*values(route.outputs())} == {*FINE}
    assert len(route.outputs()) == len(FINE)
    told = {
        letter.value: header(letter, "hapax-error").partition(":")[0] for letter in route.dead()
    }
    assert (told, route.lag()) == (NAMES, 0)


@pytest.mark.parametrize("form", LEAVING_FORMS)
def test_whatever_business_code_raises_is_a_dead_letter_and_the_others_pass(plain, form):
    plain.write(*FINE[:10], *DEEDS, *FINE[10:])
    plain.run_to_end(DEAD_LETTER__RATE_MAX="1", **LEAVING_FORMS[form])
    judge(plain)


def test_so_it_is_in_tasks_of_spark(plain):
    plain.write(*FINE[:10], *DEEDS, *FINE[10:])
    options = {"DEAD_LETTER__RATE_MAX": "1", "STOP_AFTER__AT_END": "true"}
    plain.start(SparkProcess, "s-0", **options, **LEAVING_FORMS["python"]).ends_with(0)
    judge(plain)


@pytest.mark.parametrize("kind", [WorkerProcess, SparkProcess])
def test_lines_and_counts_of_business_code_are_in_the_log_and_on_the_port(plain, kind):
    port = free_port()
    plain.write(*FINE)
    options = {"TRANSFORM": "tests.kit.noting:function", "TELEMETRY__PORT": str(port)}
    worker = plain.start(kind, "w-0", **options)
    plain.await_outputs(len(FINE))
    name = "noted_calls_total"
    await_(lambda: f'{name}{{form="function"}} {len(FINE)}.0' in ask(port, "/metrics")[1], 30)
    await_(lambda: len(worker.lines("function")) == len(FINE), 30, worker.text)
    for line in worker.lines("function"):
        assert line["mine"] == f"{line['topic']}/{line['partition']}/{line['offset']}"
        assert (line["instance"], line["level"]) == ("w-0", "warning")
    assert metric(ask(port, "/metrics")[1], "noted_seconds_sum") == len(FINE) / 2


@pytest.mark.parametrize("name", ["Unready", "Unmade"])
def test_what_leaves_before_the_first_call_leaves_with_2(plain, name):
    refused(plain, 2, "HAPAX_TRANSFORM", "SystemExit", TRANSFORM=f"{LEAVING}:{name}")
    assert untouched(plain)


@pytest.mark.parametrize("name", ["Unclosed", "unclosed"])
def test_what_leaves_after_the_last_call_leaves_with_1_and_all_is_done(plain, name):
    plain.write(*FINE)
    worker = plain.worker(STOP_AFTER__AT_END="true", TRANSFORM=f"{LEAVING}:{name}")
    worker.ends_with(1)
    assert "its teardown has raised SystemExit" in worker.text()
    assert (values(plain.outputs()), plain.lag()) == (FINE, 0)


def test_a_process_that_business_code_ends_with_0_ends_with_1_and_its_record_is_found(plain):
    plain.write(*FINE, b"exit-0")
    codes: list[int] = []
    while not codes or codes[-1] == 1:
        worker = plain.worker(STOP_AFTER__AT_END="true", TRANSFORM=f"{LEAVING}:at_once")
        codes.append(worker.process.wait(60))
    assert codes[-1] == 0
    assert 1 <= len(codes) - 1 <= 3
    assert values(plain.dead()) == [b"exit-0"]


# -- What is wrong with a transform is said clearly, before anything is read or in a dead letter.


TEN = [Given(b"%d" % number, b"key-%d" % number) for number in range(10)]
of_ten = a_route(*TEN)


@pytest.mark.parametrize("name", ["of_two", "of_none", "generator"])
def test_a_function_of_another_shape_leaves_with_2_before_anything_is_read(of_ten, name):
    refused(of_ten, 2, "HAPAX_TRANSFORM", name, TRANSFORM=f"{MODULE}:{name}")
    assert untouched(of_ten)

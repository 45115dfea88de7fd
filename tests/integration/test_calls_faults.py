"""Kills, rebalances, stops and aborts while calls are in flight."""

import time

import pytest

from tests.fault.striking.strikes_requests import ILLEGAL_GENERATION
from tests.kit.at_work import at_work, await_told
from tests.kit.calls import MODULE, PAUSE_MAX_S, Stamps
from tests.kit.faults import Rule
from tests.kit.flow import Flow
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.proxy import ProxiedBroker
from tests.kit.topics import Given
from tests.kit.waiting import await_

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
KEYS = 40
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


def keyed(records: int, sleep_s: float = 0.0) -> list[Given]:
    headers = (("sleep-s", b"%g" % sleep_s),)
    return [
        Given(b"%d" % number, b"key-%d" % (number % KEYS), headers, number % 2)
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
    route.write(*keyed(4000, 0.02))
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
    route.write(*keyed(4000, 0.2))
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
    route.write(*keyed(10), *keyed(4, 60.0))
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
    assert _aborted(route, proxied_broker, stamps, form, batches=10) >= 10


@pytest.mark.long
@pytest.mark.rounds
@at_length
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("form", ["coroutine", "list"])
def test_in_a_thousand_aborted_batches_each_record_is_called_exactly_once(
    route, proxied_broker, stamps, form
):
    """Each form takes 20 minutes; the same without a broker takes seconds (tests/unit)."""
    assert _aborted(route, proxied_broker, stamps, form, batches=1000) >= 1000


def _aborted(
    route: PipelineUnderTest, broker: ProxiedBroker, stamps: Stamps, form: str, *, batches: int
) -> int:
    """Let so many transactions be aborted, one in two; return how many the worker told."""
    records = batches * 30
    route.write(*keyed(records))
    # The first offsets of an assignment are the mark that a process works on them (suspicion.py).
    rules = [
        broker.proxy.add(Rule("TxnOffsetCommit", "refuse", nth=2 * at, code=ILLEGAL_GENERATION))
        for at in range(1, batches + 1)
    ]
    worker = route.worker(
        **FORMS[form],
        KAFKA__BOOTSTRAP_SERVERS=broker.proxied,
        TRANSACTION__RECORDS_MAX="20",
    )
    await_(lambda: not worker.running or all(rule.hits for rule in rules), 1500, worker.text)
    route.await_lag_0(max(120, batches))  # a third of the records is still to come
    assert worker.terminate() == 0, worker.text()
    assert numbers(route) == list(range(records))
    called = stamps.called()
    assert len(called) == len(set(called)), "a record was called again after an abort"
    assert len(called) == records
    return len(worker.lines("batch_aborted"))


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

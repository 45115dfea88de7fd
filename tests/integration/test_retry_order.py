"""Later tries in the order of their key on a real broker: through kills and rebalances."""

import json
import random
import time
from collections import defaultdict
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from hapax.operations.audit.result import Audit, Compare
from hapax.sandbox import metadata
from tests.kit.accounted import accounted
from tests.kit.configs import configure
from tests.kit.later import assigned
from tests.kit.managed_process import WorkerProcess
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proof import at_length
from tests.kit.topics import Given
from tests.kit.waiting import await_

QUICK = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1000"}
KEYS, PARTITIONS, AGAIN = 20, 3, 12
FORMS = {
    "plain": {},
    "threads": {"CALL__CONCURRENCY": "8"},
    "coroutine": {"TRANSFORM": "tests.kit.later:patient_coroutine", "CALL__CONCURRENCY": "8"},
    "list": {"TRANSFORM": "tests.kit.later:patient_list"},
}


@pytest.fixture
def route(sandbox, tmp_path):
    given: dict[str, Any] = {
        name.removeprefix("HAPAX_"): text for name, text in sandbox.environment().items()
    }
    given |= {
        "TRANSFORM": "tests.kit.later:patient",
        "DEDUP__ID": "header:id",
        "GROUP__PROTOCOL": "consumer",
        "GROUP__MEMBERSHIP": "dynamic",
        "RETRY__ORDER": "key",
        "RETRY__LATER_ATTEMPTS": "100",
        "TRANSACTION__TIMEOUT": "4s",
        "DEAD_LETTER__RATE_MAX": "1",
    }
    route = PipelineUnderTest(sandbox, tmp_path, partitions=PARTITIONS, **given)
    route.create()
    sandbox.create_topic(f"{route.app}-retry", PARTITIONS)
    # The brokers keep the session of a killed member for 45 s unless the group says otherwise.
    brokers = metadata.admin(sandbox.bootstrap_servers)
    configure(brokers, ResourceType.GROUP, [route.app], QUICK)
    route._environment["HAPAX_RETRY__TOPIC"] = f"{route.app}-retry"
    yield route
    route.close()


def wish(number: int, wait_s: float) -> Given:
    """Return a record that asks for later tries for so long; 0: for none."""
    value = {"n": number, "after": 1, "until": time.time() + wait_s}
    return Given(
        json.dumps(value).encode(), b"k%d" % (number % KEYS), (("id", b"%d" % number),), -1
    )


def by_key(route: PipelineUnderTest) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for output in route.outputs():
        found[output.key or b""].append(json.loads(output.value or b"")["n"])
    return found


def expected(count: int) -> dict[bytes, list[int]]:
    return {b"k%d" % key: list(range(key, count, KEYS)) for key in range(KEYS)}


def test_records_of_a_key_wait_behind_the_one_that_waits_and_others_do_not(route):
    worker = route.worker()
    await_(lambda: bool(worker.lines("service_ready")), 30, worker.text)
    until = time.time() + 20
    route.write(*(wish(number, 20 if number == 0 else 0) for number in range(3 * KEYS)))
    route.await_outputs(3 * (KEYS - 1))
    desk = Desk(route)
    (one,) = desk.ask("trace", "20")["records"]
    if time.time() < until:  # a slow machine is no failure
        assert b"k0" not in by_key(route)  # it waits, and two wait behind it
        assert one["verdict"].endswith("before it with the same key: not called yet")
    route.await_outputs(3 * KEYS)
    assert by_key(route) == expected(3 * KEYS)
    (one,) = desk.ask("trace", "20")["records"]
    assert "waiting" not in one["verdict"]
    assert worker.terminate() == 0


def test_a_retry_topic_of_another_number_of_partitions_and_calls_in_no_order_are_refused(route):
    wrong = f"{route.app}-wrong"
    route.sandbox.create_topic(wrong, PARTITIONS + 1)
    worker = route.worker(RETRY__TOPIC=wrong)
    worker.ends_with(3)
    assert f"{wrong} has 4 partitions, its inputs have 3" in worker.text()
    worker = route.worker("w-1", CALL__ORDER="none")
    worker.ends_with(2)
    assert "does not go with HAPAX_CALL__ORDER=none" in worker.text()


def _commits(worker: WorkerProcess, more_than: int) -> bool:
    return len(worker.lines("transaction_committed")) > more_than


@pytest.mark.rounds
@pytest.mark.parametrize(
    "form",
    [
        "plain",
        pytest.param("threads", marks=[pytest.mark.long, at_length]),
        pytest.param("coroutine", marks=[pytest.mark.long, at_length]),
        pytest.param("list", marks=pytest.mark.long),
    ],
)
def test_outputs_of_a_key_stand_in_input_order_through_kills(route, form):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance, count, written, starts = random.Random(seed), 400, 0, 0
    live: list[Audit] = []
    worker = route.worker(**FORMS[form])
    await_(lambda: bool(worker.lines("service_ready")), 30, worker.text)
    for _ in range(4):
        before = len(worker.lines("transaction_committed"))
        some = range(written, written + count // 4)
        written += count // 4
        # The first waits for so long that an audit on a busy machine still meets it.
        waits = {n: chance.choice((0, 0, 0, 0.5, 2.5)) for n in some} | {some[0]: 8}
        route.write(*(wish(n, wait_s) for n, wait_s in waits.items()))
        # The same events again, while the first of many wait.
        route.write(*(wish(n, 0) for n in chance.sample(some, AGAIN)))
        if form != "plain" or not live:  # a kill that meets no work proves little
            await_(partial(_commits, worker, before), 60, worker.text)
        time.sleep(chance.uniform(0.5, 2.0))
        live.append(accounted(route, compare=Compare.COUNTS))
        worker.kill()
        starts = len(worker.lines("service_ready"))
        worker.start()
    await_(lambda: len(route.outputs()) >= count, 90, route._logs)
    await_(lambda: route.lag() == 0, 30, route._logs)
    # All may have been done before the last kill: then it is still starting.
    await_(lambda: len(worker.lines("service_ready")) > starts, 30, worker.text)
    assert worker.terminate() == 0
    assert by_key(route) == expected(count)
    assert route.dead() == []
    end = accounted(route, compare=Compare.COUNTS)
    assert [audit.anomalies for audit in (*live, end)] == [{}] * 5
    assert max(audit.totals.get("waiting", 0) for audit in live) > 0
    assert "waiting" not in end.totals
    assert end.totals["duplicates"] == 4 * AGAIN


def test_outputs_of_a_key_stand_in_input_order_when_members_come_and_leave(route):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance, count = random.Random(seed), 300
    given = [(n, chance.choice((0, 0, 0, 2, 8))) for n in range(count)]
    staying = route.worker("w-0")
    await_(lambda: bool(staying.lines("service_ready")), 30, staying.text)
    route.write(*(wish(*each) for each in given[:100]))
    coming = route.worker("w-1")
    inputs = {f"{route.source}/{number}" for number in range(PARTITIONS)}
    await_(lambda: bool(assigned(coming) & inputs), 60, coming.text)
    route.write(*(wish(*each) for each in given[100:200]))
    await_(lambda: bool(coming.lines("transaction_committed")), 60, route._logs)
    assert coming.terminate() == 0  # while records wait that it has put there
    route.write(*(wish(*each) for each in given[200:]))
    await_(lambda: len(route.outputs()) >= count, 90, route._logs)
    assert staying.terminate() == 0
    assert by_key(route) == expected(count)
    assert route.dead() == []

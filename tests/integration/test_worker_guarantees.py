"""The three guarantees, each at the moment where it differs from the others, and leaving well."""

import time
from datetime import datetime

import pytest

from tests.kit.faults import Rule
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.waiting import await_

TWENTY = [b"%d" % number for number in range(20)]
GUARANTEES = ["exactly_once", "at_least_once", "at_most_once"]

route = a_route()


def values(route: PipelineUnderTest) -> list[bytes | None]:
    return [record.value for record in route.outputs()]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_without_failures_every_guarantee_delivers_everything_once(route, guarantee):
    route.write(*TWENTY)
    route.run_to_end(GUARANTEE=guarantee)
    route.write(*TWENTY)
    route.run_to_end(GUARANTEE=guarantee)
    assert values(route) == TWENTY * 2
    assert route.committed() == {0: 40}
    assert route.dead() == []


@pytest.mark.row("P7", "P13", "P16")
@pytest.mark.parametrize(
    ("guarantee", "lost_request", "effects"),
    [
        ("at_least_once", "OffsetCommit", 2),  # outputs are there, their offsets are not
        ("at_most_once", "Produce", 0),  # offsets are there, their outputs are not
        ("exactly_once", "EndTxn", 1),
        ("exactly_once", "Produce", 1),
        ("exactly_once", "TxnOffsetCommit", 1),
    ],
)
def test_a_kill_between_outputs_and_offsets_shows_the_nature_of_a_guarantee(
    route, proxied_broker, guarantee, lost_request, effects
):
    route.write(*TWENTY)
    # The first offsets of an assignment are the mark that a process works on them (suspicion.py).
    nth = 1 if lost_request == "Produce" else 2
    fault = proxied_broker.proxy.add(
        Rule(lost_request, "drop", nth=nth, times=1000, client_id=f"{route.app}-w-0")
    )
    worker = route.worker(
        GUARANTEE=guarantee,
        KAFKA__BOOTSTRAP_SERVERS=proxied_broker.proxied,
        TRANSACTION__TIMEOUT="4s",
    )
    fault.wait_hit()
    worker.kill()
    expected = {20} if guarantee == "at_most_once" else {0, None}
    assert set(route.committed().values()) <= expected
    route.write(b"after")
    route.run_to_end(GUARANTEE=guarantee)
    assert sorted(values(route)) == sorted([*TWENTY * effects, b"after"])  # type: ignore[type-var]


@pytest.mark.row("T4", "H1")
def test_sigterm_under_load_leaves_with_0_within_5_s_and_nothing_is_torn(route, in_time):
    route.write(*(b"%d" % number for number in range(20_000)))
    worker = route.worker(TRANSFORM="tests.kit.orders:slow", TRANSACTION__INTERVAL="2s")
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    began_s = time.monotonic()
    assert worker.terminate() == 0
    in_time(time.monotonic() - began_s, 5)
    (done,) = route.committed().values()
    assert done is not None
    assert 0 < done < 20_000
    assert values(route) == [b"%d" % number for number in range(done)]


@pytest.mark.row("H1")
def test_a_killed_worker_commits_again_within_5_s_of_its_start(route, in_time):
    route.write(*TWENTY)
    worker = route.worker()
    await_(lambda: bool(worker.lines("transaction_committed")), 20, worker.text)
    worker.kill()
    route.write(b"after")
    began_s = time.time()
    worker.start()
    await_(lambda: len(worker.lines("transaction_committed")) > 1, 20, worker.text)
    settled = str(worker.lines("transaction_committed")[-1]["timestamp"])
    in_time(datetime.fromisoformat(settled).timestamp() - began_s, 5)
    assert values(route) == [*TWENTY, b"after"]


@pytest.mark.long
def test_a_static_member_that_left_is_replaced_within_its_session_timeout(route, in_time):
    quick = {"GROUP__SESSION_TIMEOUT": "6s", "TRANSACTION__TIMEOUT": "4s"}
    route.write(*TWENTY)
    first = route.worker("w-0", **quick)
    await_(lambda: bool(first.lines("transaction_committed")), 20, first.text)
    second = route.worker("w-1", **quick)
    await_(lambda: bool(second.lines("partitions_assigned")), 20, second.text)
    assert second.lines("transaction_committed") == []
    first.terminate()
    route.write(b"after")
    began_s = time.monotonic()
    await_(lambda: bool(second.lines("transaction_committed")), 20, second.text)
    in_time(time.monotonic() - began_s, 6 + 6)  # without a word to the group it could be for ever
    assert values(route) == [*TWENTY, b"after"]

"""A record that kills or hangs its process: real workers, killed by their own transform."""

import signal
import time

import pytest

from tests.kit.killers import supervise
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.topics import Given

DEATHS_MAX = 3
INNOCENT = [b"%d" % number for number in range(3000)]
DYNAMIC = {
    "GROUP__MEMBERSHIP": "dynamic",
    "GROUP__SESSION_TIMEOUT": "6s",
    "TRANSACTION__TIMEOUT": "3s",
}

route = a_route(partitions=2, TRANSFORM="tests.kit.killers:obey")


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
    route, culprit, code, place
):
    write(route, culprit, place)
    codes, workers = supervise(route, starts_max=DEATHS_MAX + 1)
    assert codes[-1] == 0, workers[-1].text()
    assert set(codes[:-1]) == {code}
    assert len(codes) - 1 <= DEATHS_MAX
    assert "killed its process" in judge(route, culprit)
    (line,) = workers[-1].lines("crashing_record_found")
    assert str(line["record"]).startswith(f"{route.source}/0/")


def test_another_process_of_a_dynamic_group_takes_over_and_condemns_the_culprit(route):
    write(route, b"segfault", 2000)
    codes, workers = supervise(
        route, starts_max=DEATHS_MAX + 1, names="w-{}", within_s=90.0, **DYNAMIC
    )
    assert codes[-1] == 0, workers[-1].text()
    judge(route, b"segfault")


def test_control_without_marks_it_is_killed_at_every_start(route):
    write(route, b"segfault", 2000)
    codes, workers = supervise(route, starts_max=5, TRANSFORM="tests.kit.killers_unmarked:obey")
    assert codes == [-signal.SIGSEGV] * 5, workers[-1].text()
    assert route.dead() == []


@pytest.mark.parametrize("culprit", [b"hang", b"spin"])
def test_a_call_that_hangs_ends_with_8_and_names_the_record(route, culprit, in_time):
    write(route, culprit, 2000)
    began_s = time.monotonic()
    codes, workers = supervise(route, starts_max=DEATHS_MAX + 1, CALL__TIMEOUT="1s")
    assert codes[-1] == 0, workers[-1].text()
    assert set(codes[:-1]) == {8}
    assert len(codes) - 1 <= DEATHS_MAX
    in_time(time.monotonic() - began_s, 30)
    (line,) = workers[0].lines("call_hung")
    assert str(line["record"]).startswith(f"{route.source}/0/")
    assert f"from record {line['record']} for" in workers[0].text()
    assert "did not return within 1 s" in judge(route, culprit)


def test_without_a_dead_letter_topic_the_culprit_stops_the_service_with_5(route):
    write(route, b"segfault", 0)
    codes, workers = supervise(route, starts_max=2, DEAD_LETTER__TOPIC=None)
    assert codes == [-signal.SIGSEGV, 5]
    assert "HAPAX_DEAD_LETTER__TOPIC" in workers[-1].text()


def test_kills_from_outside_condemn_nobody(route):
    """Killed as soon as it commits, again and again: the marks of the dead suspect innocents."""
    write(route, b"last", len(INNOCENT))
    for _ in range(6):
        worker = route.worker("w-0", TRANSACTION__RECORDS_MAX="100")
        while not worker.lines("transaction_committed") and worker.running:
            time.sleep(0.01)
        worker.kill()
    route.run_to_end()
    assert route.dead() == []
    assert len(route.outputs()) == len(INNOCENT) + 1

"""One claim store, and another Kafka cluster with the same topics behind the same settings."""

import pytest
from confluent_kafka.admin import AdminClient

from hapax.sandbox import Sandbox
from tests.kit.managed_process import WorkerProcess
from tests.kit.mirrors import an_other_cluster
from tests.kit.night import Desk
from tests.kit.pages import type_section
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given, produce, read_back
from tests.kit.waiting import await_

IN_FLIGHT = [f"e-{number}" for number in range(5)]

other = an_other_cluster()


@pytest.fixture
def route(sandbox, other, tmp_path, redis_url):
    """A pipeline whose topics are in both clusters."""
    made = PipelineUnderTest(sandbox, tmp_path, DEDUP__REDIS_URL=redis_url)
    made.create()
    for topic in (made.source, made.target, made.dead_letters):
        other.create_topic(topic)
    yield made
    made.close()


def events(*names: str) -> list[Given]:
    return [Given(name.encode(), b"k", (("message-id", name.encode()),)) for name in names]


def cluster_id(sandbox: Sandbox) -> str:
    client = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    return str(client.list_topics(timeout=30).cluster_id)


def elsewhere(other: Sandbox) -> dict[str, str]:
    return {"KAFKA__BOOTSTRAP_SERVERS": other.bootstrap_servers}


def left_in_flight(route: PipelineUnderTest, desk: Desk) -> None:
    """Process two events here, claim five more, and kill the worker before it commits them."""
    route.write(*events("done-0", "done-1"))
    route.run_to_end()
    route.write(*events(*IN_FLIGHT))
    worker = route.worker("w-0", TRANSFORM="tests.kit.orders:hang")
    await_(
        lambda: desk.type("claims", "show", IN_FLIGHT[-1]).exit_code == 0, 60, lambda: tail(worker)
    )
    worker.kill()


def tail(worker: WorkerProcess) -> str:
    return worker.text()[-3000:]


def refused(worker: WorkerProcess, code: int, *ids: str) -> None:
    worker.ends_with(code)
    (line,) = [line for line in worker.text().splitlines() if '"service_stopped"' in line]
    for word in (*ids, "HAPAX_APP", "hapax claims adopt"):
        assert word in line


def test_what_was_in_flight_on_one_cluster_is_processed_on_the_other_after_adopt(
    route, other, sandbox
):
    desk = Desk(route)
    left_in_flight(route, desk)
    produce(other.bootstrap_servers, route.source, *events("new", *reversed(IN_FLIGHT)))
    here, there = cluster_id(sandbox), cluster_id(other)
    refused(route.worker("w-1", **elsewhere(other)), 3, here, there)
    assert read_back(other.bootstrap_servers, route.target) == []

    abroad = Desk(route, **elsewhere(other))
    assert abroad.type("claims", "adopt").exit_code == 2  # nobody can be asked
    assert abroad.ask("claims", "adopt", "--dry-run")["adopted"] is False
    refused(route.worker("w-1", **elsewhere(other)), 3, here, there)
    assert abroad.ask("claims", "adopt", "--yes") == {
        "adopted": True,
        "cluster": there,
        "before": here,
        "claims": True,
        "offsets": [],
    }
    route.run_to_end(**elsewhere(other))
    found = [record.value for record in read_back(other.bootstrap_servers, route.target)]
    assert found == [b"new", *(name.encode() for name in reversed(IN_FLIGHT))]
    refused(route.worker("w-2"), 3, here, there)


def test_a_worker_leaves_with_6_when_its_claims_go_to_another_cluster(route, other, sandbox):
    worker = route.worker()
    route.write(*events("a"))
    route.await_outputs(1)
    assert Desk(route, **elsewhere(other)).ask("claims", "adopt", "--yes")["adopted"] is True
    route.write(*events("b"))
    refused(worker, 6, cluster_id(sandbox), cluster_id(other))
    assert [record.value for record in route.outputs()] == [b"a"]


def test_adopting_is_refused_while_the_group_has_members(route, other):
    worker = route.worker(**elsewhere(other))
    produce(other.bootstrap_servers, route.source, *events("a"))
    await_(
        lambda: len(read_back(other.bootstrap_servers, route.target)) == 1,
        60,
        lambda: tail(worker),
    )
    abroad = Desk(route, **elsewhere(other))
    for words in (("--yes",), ("--dry-run",)):
        done = abroad.type("claims", "adopt", *words)
        assert done.exit_code == 3
        assert "has members" in done.stderr
    assert worker.terminate() == 0


def test_staging_beside_production_with_one_store_and_one_app_does_not_start(route, other, sandbox):
    production = route.worker()
    route.write(*events("a"))
    route.await_outputs(1)
    produce(other.bootstrap_servers, route.source, *events("a", "b"))
    refused(route.worker("w-0", **elsewhere(other)), 3, cluster_id(sandbox), cluster_id(other))
    route.write(*events("b"))
    route.await_outputs(2)
    assert production.terminate() == 0


def taken_over(
    route: PipelineUnderTest, other: Sandbox, *, by_the_page: bool, redis: Sandbox
) -> list[bytes | None]:
    """Lose a cluster whose mirror lacks two events; return the values of the mirror at the end.

    Two events that are new there get the offsets that the two had; then senders repeat these.
    """
    route.write(*events("copied", "gap-1", "gap-2"))
    route.run_to_end()
    produce(other.bootstrap_servers, route.source, *events("copied"))
    desk = Desk(route, **elsewhere(other))
    if by_the_page:
        redis.redis.flush()  # its claims alone: test_disaster_page.py has the pattern
        type_section(desk, route, "disaster-recovery.md", "A mirror takes over")
    else:
        desk.ask("claims", "adopt", "--yes")
    produce(other.bootstrap_servers, route.source, *events("new-1", "new-2"))
    route.run_to_end(**elsewhere(other))
    produce(other.bootstrap_servers, route.source, *events("gap-1", "gap-2", "new-2"))
    route.run_to_end(**elsewhere(other))
    return [record.value for record in read_back(other.bootstrap_servers, route.target)]


def test_a_mirror_takes_over_by_the_commands_of_the_page(route, other, sandbox):
    assert taken_over(route, other, by_the_page=True, redis=sandbox) == [
        *(b"copied", b"new-1", b"new-2"),
        *(b"gap-1", b"gap-2"),
    ]


def test_claims_of_records_that_a_mirror_lacks_drop_their_repeats_once_its_offsets_pass_them(
    route, other, sandbox
):
    found = taken_over(route, other, by_the_page=False, redis=sandbox)
    assert found == [b"copied", b"new-1", b"new-2"]

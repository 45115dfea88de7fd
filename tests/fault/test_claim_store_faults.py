"""The claim store loses or moves what it knew: nothing is lost, and it is said."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hapax.sandbox import Redis
from tests.kit.at_work import QUICK, at_work, await_told, event, values
from tests.kit.claim_stores import admin, redis_server, tell
from tests.kit.forwarder import Forwarder
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.redis_cluster import move_slot, redis_cluster
from tests.kit.waiting import await_

EVENTS = range(10_000)
NAMES = sorted(b"event-%d" % number for number in EVENTS)


@pytest.fixture
def store(tmp_path):
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def route(store, route_of):
    return route_of(
        DEDUP__REDIS_URL=store.url,
        DEDUP__TIMEOUT="500ms",
        TRANSFORM="tests.kit.orders:slow",
        TRANSACTION__RECORDS_MAX="100",
        **QUICK,
    )


# -- emptied ------------------------------------------------------------------------------


@pytest.mark.row("R3")
def test_a_store_that_is_emptied_under_load_loses_nothing_and_is_noticed_each_time(
    route, store, proof
):
    route.write(*map(event, EVENTS))
    worker = route.worker()
    for emptied in (1, 2):
        at_work(worker, 3)
        store.flush()
        await_told(worker, "claims_lost", emptied)
    store.kill()
    for path in (store.log.parent).glob("appendonly*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    store.start()
    store.await_ready()
    await_told(worker, "claims_lost", 3)
    route.await_lag_0()
    assert values(route) == NAMES
    # What was claimed before and comes again passes, which is said; what was claimed since, not.
    route.write(*map(event, (*range(100), *range(EVENTS.stop - 100, EVENTS.stop))))
    route.await_lag_0()
    twice = [name for name, count in Counter(values(route)).items() if count > 1]
    assert sorted(twice) == sorted(b"event-%d" % number for number in range(100))
    assert len(worker.lines("claims_lost")) == 3
    proof.note(struck=3, note="twins of events from before pass once, as documented")


@pytest.mark.row("R3")
def test_a_store_that_was_emptied_while_nobody_ran_is_noticed_at_the_start(route, store, proof):
    route.write(*map(event, range(10)))
    route.run_to_end()
    store.flush()
    route.write(*map(event, range(10, 20)))
    worker = route.run_to_end()
    proof.note(struck=1)
    assert worker.lines("claims_lost")


# -- time to live -------------------------------------------------------------------------


@pytest.mark.row("R6")
def test_a_time_to_live_below_that_of_a_batch_is_refused_at_the_start(route, proof):
    """How long a record may wait in the input, the operator has to compare."""
    worker = route.worker(DEDUP__TTL="2m")
    worker.ends_with(2)
    proof.note(struck=1)
    assert (
        "HAPAX_GROUP__MAX_POLL_INTERVAL=5m must be shorter than HAPAX_DEDUP__TTL=2m"
        in worker.text()
    )


@pytest.mark.row("R9")
def test_claims_that_move_to_another_node_of_a_cluster_hold_the_batch_until_they_are_back(
    sandbox, tmp_path, proof, request
):
    settings = {"TRANSFORM": "tests.kit.orders:slow", "TRANSACTION__RECORDS_MAX": "100"}
    with redis_cluster(tmp_path / "cluster") as (ours, other):
        route = PipelineUnderTest(
            sandbox, tmp_path, DEDUP__REDIS_URL=ours.url, **(QUICK | settings)
        )
        request.addfinalizer(route.close)
        route.create()
        route.write(*map(event, EVENTS), *map(event, EVENTS[:100]))
        worker = at_work(route.worker())
        keys = move_slot(f"hapax:{{{route.app}}}:claims", ours, other)
        await_told(worker, "claims_unavailable")
        assert "another node of its cluster" in worker.text()
        assert move_slot(f"hapax:{{{route.app}}}:claims", other, ours) == keys
        route.end(worker)
    assert values(route) == NAMES
    proof.note(struck=keys, note="keys of claims moved to another node and back")


# -- Redis fails over to a replica that has not seen the last claims -----------------------

BEFORE, LAST, AFTER = range(100), range(100, 200), range(200, 300)


@contextmanager
def replicated(folder: Path) -> Iterator[tuple[Redis, Redis]]:
    """Give a primary and its replica, which has caught up."""
    with redis_server(folder / "primary") as primary, redis_server(folder / "replica") as replica:
        tell(replica, "replicaof", "127.0.0.1", primary.port)
        await_(lambda: _caught_up(replica), 30, replica.last_words)
        yield primary, replica


def _caught_up(replica: Redis) -> bool:
    return str(admin(replica).info("replication").get("master_link_status")) == "up"


@pytest.mark.row("R4", "R9")
def test_a_failover_that_lost_claims_lets_only_their_twins_pass_and_loses_nothing(
    route_of, tmp_path, proof
):
    route = route_of(**QUICK)
    with replicated(tmp_path) as (primary, replica), Forwarder(primary.port) as address:
        worker = route.worker(DEDUP__REDIS_URL=f"redis://127.0.0.1:{address.port}/0")
        route.write(*map(event, BEFORE))
        route.await_lag_0()
        admin(primary).wait(1, 5000)
        tell(replica, "replicaof", "127.0.0.1", 1)  # hears nothing more, and stays a replica
        route.write(*map(event, LAST))
        route.await_lag_0()
        primary.kill()
        # First the address leads to what is still a replica: READONLY counts as away.
        address.lead_to(replica.port)
        route.write(*map(event, AFTER))
        await_told(worker, "claims_unavailable")
        assert len(values(route)) == len(BEFORE) + len(LAST)
        tell(replica, "replicaof", "no", "one")
        route.await_lag_0()
        route.write(*map(event, (*BEFORE, *LAST, *AFTER)))
        route.end(worker)
    seen = Counter(values(route))
    assert {seen[b"event-%d" % number] for number in (*BEFORE, *AFTER)} == {1}
    assert {seen[b"event-%d" % number] for number in LAST} == {2}
    proof.note(struck=len(LAST), note="claims lost by the failover; their twins pass, no others")

"""Redis fails over to a replica that has not seen the last claims."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hapax.sandbox import Redis
from tests.kit.at_work import QUICK, await_told, event, values
from tests.kit.claim_stores import admin, redis_server, tell
from tests.kit.forwarder import Forwarder
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.waiting import await_

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
    sandbox, tmp_path, proof
):
    route = PipelineUnderTest(sandbox, tmp_path, **QUICK)
    route.create()
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
        route.await_lag_0()
        assert worker.terminate() == 0
    seen = Counter(values(route))
    route.close()
    assert {seen[b"event-%d" % number] for number in (*BEFORE, *AFTER)} == {1}
    assert {seen[b"event-%d" % number] for number in LAST} == {2}
    proof.note(struck=len(LAST), note="claims lost by the failover; their twins pass, no others")

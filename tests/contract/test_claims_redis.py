"""What Redis can do to a claim store: die, hang, forget, fill up, refuse, and follow another."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hapax.claims.redis import SCRIPT
from hapax.core.errors import ClaimsUnavailableError, OtherClusterError
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates
from tests.kit.claim_stores import admin, bare, claimed_x, ids, live, mutate, records
from tests.kit.waiting import await_

pytestmark = pytest.mark.real

META = "hapax:{shop}:claims"
FIRST = {0: Coordinates("orders", 0, 0)}


def test_claims_survive_a_kill_and_the_same_object_goes_on(server):
    emptied: list[int] = []
    store = claimed_x(server.url, on_emptied=lambda: emptied.append(1))
    server.kill()
    for _ in range(2):
        with pytest.raises(ClaimsUnavailableError, match="connection refused"):
            store.claim([b"x"], records(1), {})
    with pytest.raises(ClaimsUnavailableError, match="connection refused"):
        store.ping()
    server.start()
    server.await_ready()
    store.ping()
    assert store.claim([b"x"], records(1), {}) == {}
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST
    assert emptied == []


def test_an_idle_connection_that_the_server_closed_costs_no_outage(server):
    store = claimed_x(server.url)
    admin(server).client_kill_filter(_type="normal", skipme=True)
    assert store.claim([b"x"], records(1), {}) == {}


@pytest.mark.row("R3")
def test_every_worker_notices_once_that_the_store_was_emptied(server):
    emptied: list[str] = []
    one = bare(server.url, on_emptied=lambda: emptied.append("one"))
    two = bare(server.url, on_emptied=lambda: emptied.append("two"))
    for store in (one, two, one, two):
        store.claim([b"x"], records(1), {})
    assert emptied == []
    for at in (1, 2):
        server.flush()
        for store in (two, one, two, one):
            assert store.claim([b"x"], records(1, at=at), {}) == {}
    assert emptied == ["two", "one"] * 2


def test_the_first_worker_of_an_app_finds_the_store_fresh(server):
    one, two = bare(server.url), bare(server.url)
    for store in (one, two):
        store.claim([b"x"], records(1), {})
    assert (one.fresh, two.fresh) == (True, False)


def test_a_store_whose_first_answer_was_lost_is_still_found_fresh(server):
    store = bare(server.url, answer_timeout_s=0.3)
    store.ping()
    admin(server).script_load(SCRIPT.read_text())
    server.pause()
    with pytest.raises(ClaimsUnavailableError):
        store.claim([b"x"], records(1), {})
    server.resume()
    await_(lambda: admin(server).exists(f"{META}:meta") == 1)
    assert store.claim([b"x"], records(1), {}) == {}
    assert store.fresh


def test_claims_of_an_epoch_that_was_lost_are_never_taken_for_another_topics(server):
    bare(server.url).claim(ids(2), [*records(1), *records(1, topic="returns")], {})
    admin(server).delete(f"{META}:meta")
    for _ in range(2):
        assert bare(server.url).claim(ids(2)[1:], records(1, topic="returns"), {}) == {}


@pytest.mark.row("R9")
def test_a_script_that_redis_forgot_is_loaded_again(server):
    store = claimed_x(server.url)
    admin(server).script_flush()
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST


def test_ten_thousand_ids_are_one_round_trip(server):
    store = claimed_x(server.url)
    admin(server).config_resetstat()
    store.claim(ids(10_000), records(10_000), {})
    stats = admin(server).info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
    inside = {"time", "get", "hget", "hmget", "hlen", "hset", "pexpireat"}
    seen = {name.removeprefix("cmdstat_").partition("|")[0] for name in stats}
    assert seen == {"evalsha", "config"} | inside


@pytest.mark.parametrize("partition", [0, 1], ids=["own", "foreign"])
def test_ids_that_are_known_are_one_round_trip_and_write_nothing(server, partition):
    store = bare(server.url)
    store.claim(ids(500), records(500), {})
    admin(server).config_resetstat()
    assert len(store.claim(ids(500), records(500, partition=partition), {})) == 500 * partition
    stats = admin(server).info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] == 1
    assert "cmdstat_hset" not in stats


@pytest.mark.row("R7")
def test_of_workers_that_claim_the_same_ids_at_once_one_owns_each(server):
    def work(partition: int) -> None:
        store, mine = bare(server.url), records(500, partition=partition)
        start.wait()
        foreign[partition] = set(store.claim(ids(500), mine, {}))

    foreign: dict[int, set[int]] = {}
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    for index in range(500):
        assert sum(index not in each for each in foreign.values()) == 1


@pytest.mark.row("R2")
def test_a_server_that_hangs_is_an_outage_within_the_timeout(server):
    store = claimed_x(server.url, answer_timeout_s=0.3)
    server.pause()
    for call in (lambda: store.claim([b"y"], records(1), {}), store.ping):
        before = time.monotonic()
        with pytest.raises(ClaimsUnavailableError, match="took too long"):
            call()
        assert time.monotonic() - before < 1.9  # the default is 2 s
    server.resume()
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST


def test_a_batch_whose_answer_was_lost_is_ours_when_it_is_claimed_again(server):
    store, witness = bare(server.url, answer_timeout_s=0.3), bare(server.url)
    store.claim([b"w"], records(1), {})
    twins = [b"x", b"y", b"x"]
    server.pause()
    with pytest.raises(ClaimsUnavailableError):
        store.claim(twins, records(3, at=1), {})
    server.resume()
    # The request was in the socket: Redis runs it now, and nobody hears the answer.
    await_(lambda: sum(map(len, live(server).values())) == 3)
    assert witness.claim([b"x"], records(1, at=9), {}) == {0: Coordinates("orders", 0, 1)}
    assert store.claim(twins, records(3, at=1), {}) == {2: Coordinates("orders", 0, 1)}


@pytest.mark.row("R5")
def test_a_full_memory_is_an_outage_and_claims_nothing(server):
    store = claimed_x(server.url)
    admin(server).config_set("maxmemory", 1)
    with pytest.raises(ClaimsUnavailableError, match="memory is full"):
        store.claim([b"x", b"y"], records(2), {})
    admin(server).config_set("maxmemory", 0)
    assert store.claim([b"y"], records(1, at=5), {}) == {}


@pytest.mark.row("R9")
def test_a_replica_is_an_outage_at_the_start_too_for_it_may_be_a_failover(server):
    store = claimed_x(server.url)
    admin(server).replicaof("127.0.0.1", "1")
    with pytest.raises(ClaimsUnavailableError, match="it is a replica"):
        store.claim([b"y"], records(1), {})
    with pytest.raises(ClaimsUnavailableError, match="the URL must lead to the primary"):
        store.check()
    admin(server).replicaof("no", "one")
    assert store.check().problems == []


def test_control_without_the_comparison_of_owners_a_second_attempt_drops_the_batch(server):
    store = mutate(
        bare(server.url),
        {
            "claims and are_own(values, places[first], places[last])": "false",
            "value == part(owners, place) then\n    return false": "false then\n    return false",
        },
    )
    store.claim(ids(3), records(3), {})
    assert sorted(store.claim(ids(3), records(3), {})) == [0, 1, 2]
    assert bare(server.url).claim(ids(3), records(3), {}) == {}


def test_the_first_call_that_knows_the_cluster_writes_it_and_another_cluster_claims_nothing(server):
    bare(server.url).claim([b"x"], records(1), {})  # before Kafka named its cluster
    here, there = bare(server.url, cluster_id="A-id"), bare(server.url, cluster_id="B-id")
    assert here.claim([b"x"], records(1), {}) == {}
    for _ in range(2):
        with pytest.raises(
            OtherClusterError, match=r"cluster A-id.*cluster B-id.*HAPAX_APP.*adopt"
        ):
            there.claim([b"y"], records(1, at=1), {})
    with pytest.raises(OtherClusterError) as raised:
        there.claim([b"y"], records(1), {})
    assert there.check().problems == [str(raised.value)]
    assert bare(server.url).claim([b"y"], records(1, at=2), {}) == {}
    assert there.adopt() == "A-id"
    assert there.claim([b"x"], records(1, at=1), {}) == FIRST
    with pytest.raises(OtherClusterError):
        here.claim([b"x"], records(1), {})


class Behind:
    """Our clock, when it stood still for as long as we slept."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() - self.slept_s

    def sleep(self, seconds: float) -> None:
        before = time.monotonic()
        time.sleep(seconds)
        self.slept_s += time.monotonic() - before


def test_a_clock_that_is_set_forward_past_what_went_by_is_told_once(server):
    clock, jumps = Behind(), list[float]()
    store = claimed_x(server.url, ttl_ms=200, monotonic=clock.monotonic, on_clock_jump=jumps.append)
    clock.sleep(0.5)  # Redis' clock goes on, ours does not: as if Redis' had been set forward
    assert store.claim([b"x"], records(1, at=1), {}) == {}, "the claim is over"
    (jump_s,) = jumps
    assert 0.4 < jump_s < 5
    store.claim([b"x"], records(1, at=1), {})
    assert len(jumps) == 1


def test_time_that_went_by_here_too_is_no_jump(server):
    jumps = list[float]()
    store = claimed_x(server.url, ttl_ms=200, on_clock_jump=jumps.append)
    time.sleep(0.5)
    store.claim([b"x"], records(1), {})
    assert not jumps


def test_what_goes_wrong_with_a_request_is_told_where_its_answer_is_wanted(server):
    store = claimed_x(server.url, answer_timeout_s=0.3)
    server.pause()
    asked = store.ask(ClaimRequest([b"y"], records(1, at=1), {}))
    with pytest.raises(ClaimsUnavailableError, match="took too long"):
        asked.answer()
    server.resume()
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST
    admin(server).script_flush()
    assert store.ask(ClaimRequest([b"x"], records(1, at=1), {})).answer() == FIRST
    asked = store.ask(ClaimRequest([b"x"], records(1, at=1), {}))
    server.kill()
    refused = store.ask(ClaimRequest([b"x"], records(1), {}))
    with pytest.raises(ClaimsUnavailableError, match="connection refused"):
        refused.answer()
    asked.drop()
    server.start()
    server.await_ready()
    assert store.ask(ClaimRequest([b"x"], records(1), {})).answer() == {}

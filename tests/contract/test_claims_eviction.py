"""A Redis that is changed while it is in use: policy for a full memory, disk, rights, refusals."""

import shlex

import pytest

from hapax.claims.redis_connection import PERMISSIONS
from hapax.claims.redis_health import health_of
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates
from hapax.sandbox.servers import Redis
from tests.kit.claim_stores import admin, bare, claimed_x, ids, live, records, tell
from tests.kit.waiting import await_

pytestmark = pytest.mark.real

POLICIES = ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl"]
FIRST = {0: Coordinates("orders", 0, 0)}
KEPT = ("", 0)


def evict(server: Redis) -> int:
    """Let Redis delete keys of ours for want of memory; return how many."""
    client = admin(server)
    before = evicted(server)
    client.config_set("maxmemory-policy", "allkeys-random")
    client.config_set("maxmemory", 1)  # below what it uses: it deletes all that it may
    while client.dbsize():  # it deletes some with each command
        pass
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "noeviction")
    return evicted(server) - before


def evicted(server: Redis) -> int:
    return int(admin(server).info("stats")["evicted_keys"])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_evicts_is_named_and_nothing_is_claimed_until_it_is_put_back(server, policy):
    looks: list[tuple[str, int]] = []
    store = claimed_x(server.url, on_look=lambda *look: looks.append(look))
    store.ping()
    admin(server).config_set("maxmemory-policy", policy)
    with pytest.raises(ClaimsUnavailableError, match=f"{policy}.*noeviction") as caught:
        store.ping()
    with pytest.raises(ClaimsUnavailableError):
        store.ping()
    asked = store.ask(ClaimRequest([b"x"], records(1, at=1), {}))
    with pytest.raises(ClaimsUnavailableError, match=policy):
        asked.answer()
    asked.drop()
    admin(server).config_set("maxmemory-policy", "noeviction")
    store.ping()
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST
    assert looks == [KEPT, (str(caught.value), 0), (str(caught.value), 0), KEPT]


def test_keys_that_were_evicted_between_two_looks_are_counted_once(server):
    looks: list[tuple[str, int]] = []
    store = bare(server.url, on_look=lambda *look: looks.append(look))
    evict(server)
    store.ping()  # what was evicted before it is not ours to tell
    store.claim(ids(1000), records(1000), {})
    gone = evict(server)
    assert gone >= 17, "a key for each shard, and what says which they are"
    for _ in range(2):
        store.ping()
    assert looks == [KEPT, ("", gone), KEPT]
    assert not live(server)


def test_another_server_under_the_same_address_has_evicted_nothing_of_ours(server):
    looks: list[tuple[str, int]] = []
    store = claimed_x(server.url, on_look=lambda *look: looks.append(look))
    store.ping()
    server.kill()
    server.start()
    server.await_ready()
    evict(server)
    store.ping()
    assert looks == [KEPT, KEPT]


def test_with_the_documented_permissions_it_is_seen_and_without_info_the_store_still_answers(
    server,
):
    admin(server).config_set("maxmemory-policy", "allkeys-lfu")
    for rules, seen in ((PERMISSIONS.split()[1:], True), ([*PERMISSIONS.split()[1:], "-info"], 0)):
        tell(server, "ACL", "SETUSER", "hapax", "reset", "on", ">s3cret", *rules)
        store = bare(f"redis://hapax:s3cret@127.0.0.1:{server.port}/0")
        if seen:
            with pytest.raises(ClaimsUnavailableError, match="allkeys-lfu") as caught:
                store.ping()
            assert "s3cret" not in str(caught.value)
        else:
            store.ping()
            assert store.claim([b"x"], records(1), {}) == {}


def test_start_and_doctor_name_what_was_evicted_before(server):
    store = bare(server.url)
    store.claim(ids(10), records(10), {})
    assert store.check().warnings == []
    gone = evict(server)
    [warning] = store.check().warnings
    assert f"has evicted {gone} keys" in warning
    judged = health_of(admin(server), "hapax:{shop}:claims").judgements["eviction"]
    assert [one.verdict for one in judged] == ["PASS", "WARN"]
    assert f"has evicted {gone} keys" in judged[1].saw


REFUSALS = {
    "permission": ("ACL SETUSER default -hset", "ACL SETUSER default +hset", "lacks a permission"),
    "keys": ("ACL SETUSER default resetkeys", "ACL SETUSER default allkeys", "lacks a permission"),
    "MISCONF": ("CONFIG SET save '3600 1'\nBGSAVE", "CONFIG SET save ''", "write its snapshots"),
    "OOM": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "memory is full"),
    "BUSY": ("CONFIG SET lua-time-limit 10\nEVAL 'while 1 do end' 0", "SCRIPT KILL", "blocks it"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_look_finds_that_claims_are_refused_although_the_server_answers(
    server, tmp_path, refusal
):
    begin, end, reason = REFUSALS[refusal]
    store = bare(server.url)
    store.ping()
    (tmp_path / "redis" / "dump.rdb").mkdir()  # no snapshot can be written
    connection = admin(server).connection_pool.get_connection()
    for command in begin.splitlines():
        connection.send_command(*shlex.split(command))  # type: ignore[no-untyped-call]

    def found() -> str:
        try:
            store.ping()
        except ClaimsUnavailableError as error:
            return str(error)
        return ""

    await_(lambda: reason in found(), 20, found)
    tell(server, *shlex.split(end))
    await_(lambda: found() == "", 20, found)  # a script ends within moments of SCRIPT KILL


def test_each_look_says_why_a_restart_would_forget_claims_and_claims_go_on(server):
    told: list[str] = []
    store = bare(server.url, on_volatile=told.append)
    for name, value in (("save", "3600 1"), ("appendonly", "no"), ("save", ""), ("save", "")):
        store.ping()
        admin(server).config_set(name, value)
    store.ping()
    words = [" ".join(text.split()[2:4]) for text in told]
    assert words == ["", "", "snapshots only:", "nothing on", "nothing on"]

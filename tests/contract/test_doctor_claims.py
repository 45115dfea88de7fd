"""What the doctor asks of a real Redis, and what it leaves there: nothing."""

from contextlib import closing

import pytest

from hapax.claims.redis_url import CLAIM_COMMANDS
from hapax.core.ports import StoreHealth
from hapax.sandbox.servers import Redis
from tests.kit.claim_stores import admin, bare, ids, records, redis_server, tell
from tests.kit.waiting import await_

KEYS = ("~hapax:{shop}:claims*",)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def store(server):
    server.flush()
    return server


def health(url: str, app: str) -> StoreHealth:
    with closing(bare(url, app)) as store:
        return store.health()


def user(store: Redis, *commands: str) -> str:
    """Return the URL of a user that may do just this."""
    tell(store, "ACL", "SETUSER", "u", "reset", "on", ">p", *KEYS, *(f"+{one}" for one in commands))
    return store.url.replace("redis://", "redis://u:p@")


def test_a_look_leaves_no_key_and_begins_no_epoch(store):
    found = health(store.url, "shop")
    assert (found.problem, found.refused, found.claimed) == (None, (), False)
    await_(lambda: admin(store).keys("*") == [])


def test_claims_of_the_app_are_seen_and_those_of_others_are_not(store):
    bare(store.url).claim(ids(1), records(1), {})
    assert health(store.url, "shop").claimed is True
    assert health(store.url, "other").claimed is False


def test_the_rights_of_a_claim_are_enough(store):
    found = health(user(store, *CLAIM_COMMANDS), "shop")
    assert (found.problem, found.refused, found.claimed) == (None, (), False)
    assert found.info["maxmemory_policy"] == "noeviction"
    assert found.settings == {}  # CONFIG is nothing that claims need


@pytest.mark.parametrize("missing", ["hset", "pexpireat", "evalsha"])
def test_a_right_that_is_missing_is_named(store, missing):
    found = health(user(store, *(set(CLAIM_COMMANDS) - {missing})), "shop")
    assert [one.partition(":")[0] for one in found.refused] == [missing]
    assert found.claimed is None


def test_the_clock_of_this_machine_agrees_with_itself(store):
    skew_ms = health(store.url, "shop").skew_ms
    assert skew_ms is not None
    assert abs(skew_ms) < 5000

"""A claim store whose server changes: sentinels name another one, or a slot has another node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates
from tests.kit.claim_stores import bare, ids, records
from tests.kit.redis_cluster import follows, move_slot, redis_cluster, take_over
from tests.kit.redis_sentinel import redis_sentinel
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.claims.redis import RedisClaims

pytestmark = pytest.mark.real

CLAIMED = ids(500)
KNOWN = {place: Coordinates("orders", 0, place) for place in range(len(CLAIMED))}
KEY = "hapax:{shop}:claims"


def claimed(store: RedisClaims) -> Mapping[int, Coordinates] | None:
    """Claim for records of another offset; None: the store is away."""
    try:
        return store.claim(CLAIMED, records(len(CLAIMED), at=1000), {})
    except ClaimsUnavailableError:
        return None


def test_a_sentinels_primary_is_killed_and_the_next_call_that_succeeds_asks_its_successor(tmp_path):
    with redis_sentinel(tmp_path) as (primary, replica, url):
        store = bare(url)
        assert store.claim(CLAIMED, records(len(CLAIMED)), {}) == {}
        assert store.health().place == f"127.0.0.1:{primary.port} of the sentinels' mymaster"
        await_(lambda: follows(replica, primary), 30, replica.last_words)
        primary.kill()
        with pytest.raises(ClaimsUnavailableError):
            store.claim(CLAIMED, records(len(CLAIMED)), {})
        await_(lambda: claimed(store) == KNOWN, 60, replica.last_words)
        assert store.check().problems == []
        assert f":{replica.port} of" in store.health().place
        assert bare(url).claim(CLAIMED, records(len(CLAIMED), at=1000), {}) == KNOWN


def test_a_demoted_primary_that_still_runs_is_left_for_its_successor(tmp_path):
    with redis_sentinel(tmp_path) as (primary, replica, url):
        store = bare(url)
        assert store.claim(CLAIMED, records(len(CLAIMED)), {}) == {}
        await_(lambda: follows(replica, primary), 30, replica.last_words)
        primary.pause()
        await_(lambda: claimed(store) == KNOWN, 60, replica.last_words)
        primary.resume()
        assert claimed(store) == KNOWN


def test_each_named_node_of_a_cluster_leads_to_the_one_that_has_the_claims(tmp_path):
    with redis_cluster(tmp_path) as (first, second):
        urls = [f"redis+cluster://127.0.0.1:{node.port}" for node in (first, second)]
        stores = [bare(url) for url in urls]
        for store in stores:
            assert store.check().problems == []
        assert stores[1].claim(CLAIMED, records(len(CLAIMED)), {}) == {}
        assert claimed(stores[0]) == KNOWN
        assert move_slot(KEY, first, second) > 0
        for store in stores:
            await_(lambda store=store: claimed(store) == KNOWN, 30, second.last_words)  # type: ignore[misc]
            assert f":{second.port} of the cluster of" in store.health().place


def test_control_the_address_of_one_node_leads_to_no_other(tmp_path):
    with redis_cluster(tmp_path) as (_first, second):
        store = bare(second.url)
        assert "begin the URL with redis+cluster://" in store.check().problems[0]


def test_a_node_is_killed_and_its_replica_goes_on_with_the_claims(tmp_path):
    with redis_cluster(tmp_path, 3) as (first, second, replica):
        named = f"127.0.0.1:{first.port},127.0.0.1:{second.port},127.0.0.1:{replica.port}"
        store = bare(f"redis+cluster://{named}")
        assert store.claim(CLAIMED, records(len(CLAIMED)), {}) == {}
        await_(lambda: follows(replica, first), 30, replica.last_words)
        first.kill()
        assert claimed(store) is None
        take_over(replica)
        await_(lambda: claimed(store) == KNOWN, 60, replica.last_words)
        assert bare(f"redis+cluster://{named}").check().problems == []

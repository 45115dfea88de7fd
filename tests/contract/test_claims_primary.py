"""A claim store whose server changes: sentinels name another one, or a slot has another node."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hapax.claims.redis import RedisClaims
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates
from hapax.sandbox import machine
from hapax.sandbox.processes import LOOPBACK, ManagedProcess, Ports
from hapax.sandbox.servers import Redis
from hapax.sandbox.watchdog import ChildWatchdog
from tests.kit.claim_stores import bare, ids, records
from tests.kit.redis_cluster import follows, move_slot, redis_cluster, take_over
from tests.kit.waiting import await_

# A Redis with a replica, and a sentinel that makes the replica the primary when it dies.

SERVICE = "mymaster"
DOWN_AFTER_MS = 500
FAILOVER_TIMEOUT_MS = 2000


class Replica(Redis):
    """A Redis that follows another one from its start."""

    def __init__(self, folder: Path, ports: Ports, watchdog: ChildWatchdog, primary: Redis) -> None:
        self._primary = primary
        super().__init__(folder, ports, watchdog)

    def _arguments(self, folder: Path) -> list[str | Path]:
        return [*super()._arguments(folder), "--replicaof", LOOPBACK, str(self._primary.port)]


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[tuple[Redis, Replica, str]]:
    """Run all three; give the servers and the address that names the sentinel."""
    watchdog, ports = ChildWatchdog(), Ports()
    primary = Redis(folder / "0", ports, watchdog)
    replica = Replica(folder / "1", ports, watchdog, primary)
    port = ports.reserve()
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"bind {LOOPBACK}\nport {port}\n"
        f"sentinel monitor {SERVICE} {LOOPBACK} {primary.port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
    )
    command: list[str | Path] = [machine.redis_server(), configuration, "--sentinel"]
    sentinel = ManagedProcess("Sentinel", command, folder / "sentinel.log", watchdog)
    try:
        for server in (primary, replica):
            server.start()
            server.await_ready()
        sentinel.start()
        await_(lambda: follows(replica, primary), 30, replica.last_words)
        # Until it has seen the replica it has nobody to promote.
        await_(lambda: "+slave" in sentinel.last_words(), 30, sentinel.last_words)
        yield primary, replica, f"redis+sentinel://{LOOPBACK}:{port}/{SERVICE}"
    finally:
        servers: tuple[ManagedProcess, ...] = (sentinel, replica, primary)
        for each in servers:
            if each.running:
                each.kill()
        ports.close()
        watchdog.close()


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
        assert "begin the URL with redis+cluster://" in bare(second.url).check().problems[0]


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

"""Two formats of the store: which one a worker uses, and how claims move to the one of today."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner

from hapax.claims.redis import RedisClaims
from hapax.claims.redis_claim import IdBatch
from hapax.claims.redis_migrate import Migration
from hapax.commands.tree import app
from hapax.core.errors import ClaimsUnavailableError, OtherClusterError
from hapax.core.records import Coordinates, Record
from tests.kit.claim_stores import (
    HOUR_MS,
    OLD_SMALL_BUCKETS,
    admin,
    bare,
    field,
    ids,
    live,
    mutate_old,
    old,
    records,
)
from tests.unit.test_settings import REQUIRED

pytestmark = pytest.mark.real

RUN = CliRunner()
BASE = "hapax:{shop}:claims"
FIRST = {0: Coordinates("orders", 0, 0)}


class EarlierVersion:
    """A worker of the version before: its script on the keys that it knows, and nothing else."""

    def __init__(self, url: str, **options: Any) -> None:
        self._store = bare(url, **options)

    def claim(self, names: list[bytes], mine: list[Record]) -> Mapping[int, Coordinates]:
        digests = self._store._digests(names)
        split = [digests[at : at + 16] for at in range(0, len(digests), 16)]
        return self._store._old.claim(IdBatch(split, mine))


def migrate(store: RedisClaims) -> int | None:
    return store.migrate(lambda _: None)


def test_a_new_app_begins_in_the_format_of_today_and_an_earlier_version_waits(server):
    store, earlier = bare(server.url), EarlierVersion(server.url)
    store.claim([b"x"], records(1), {})
    for _ in range(2):
        with pytest.raises(ClaimsUnavailableError, match="another program writes to the keys"):
            earlier.claim([b"x", b"y"], records(2, at=5))
    assert store.claim([b"y"], records(1, at=9), {}) == {}, "it claimed nothing"
    assert admin(server).get(BASE) == b"2"


def test_a_store_of_the_format_before_is_used_as_it_is_by_both_versions(server):
    earlier = EarlierVersion(server.url)
    assert earlier.claim(ids(3), records(3)) == {}
    store = bare(server.url)
    for _ in range(2):
        assert store.claim(ids(3), records(3), {}) == {}
        assert store.claim(ids(3)[:1], records(1, at=7), {}) == FIRST
        assert store.ask(ids(3)[:1], records(1, at=7), {}).answer() == FIRST
    assert store.claim([b"y"], records(1, at=8), {}) == {}
    assert earlier.claim([b"y"], records(1, at=9)) == {0: Coordinates("orders", 0, 8)}
    assert live(server) == {}
    assert store.check().problems == []
    assert store.health().claimed
    assert store.owner(b"y") is not None
    assert store.forget(b"y")
    assert store.release([(b"event-0", FIRST[0])]) == 1


def test_workers_of_both_versions_that_claim_the_same_ids_own_each_once(server):
    """A rolling upgrade: half of the workers are of the version before."""
    EarlierVersion(server.url).claim([b"w"], records(1, at=10**6))

    def work(partition: int) -> None:
        earlier, store = EarlierVersion(server.url), bare(server.url)
        start.wait()
        for at in range(0, 400, 40):
            mine = records(40, partition=partition, at=at)
            names = ids(40, at=at)
            others = earlier.claim(names, mine) if partition % 2 else store.claim(names, mine, {})
            owned[partition] |= {at + place for place in range(40) if place not in others}

    owned: dict[int, set[int]] = {partition: set() for partition in range(4)}
    start = threading.Barrier(4)
    threads = [threading.Thread(target=work, args=(partition,)) for partition in owned]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, owned.values())) == 400
    assert set().union(*owned.values()) == set(range(400))


@pytest.mark.parametrize("changes", [{}, OLD_SMALL_BUCKETS], ids=["", "several segments"])
def test_every_claim_moves_with_its_owner_and_no_worker_sees_an_emptied_store(server, changes):
    emptied: list[int] = []
    before = mutate_old(
        old(server.url, topic_ids={"orders": "JoNxSTLoTjmNbcFvJPY3xg"}, cluster_id="A-id"), changes
    )
    worker = bare(
        server.url,
        topic_ids={"orders": "JoNxSTLoTjmNbcFvJPY3xg"},
        cluster_id="A-id",
        on_emptied=lambda: emptied.append(1),
    )
    far = [Record("returns", 200, 7 * 2**32 + 5, None, None)]
    for at in range(0, 300, 60):
        before.claim(ids(60, at=at), records(60, at=at), {})
    before.claim([b"far"], far, {})
    worker.claim([b"far"], far, {})
    told: list[int] = []
    assert bare(server.url).migrate(told.append) == 301
    assert told[-1] == 301
    assert admin(server).get(BASE) == b"2"
    assert worker.claim([b"far"], far, {}) == {}
    assert worker.claim(ids(300), records(300), {}) == {}
    others = worker.claim([b"far", *ids(300)], records(301, partition=9), {})
    assert others[0] == far[0].coordinates
    assert others[300] == Coordinates("orders", 0, 299)
    assert len(others) == 301
    assert emptied == []
    owned = worker.owner(b"far")
    assert owned is not None
    assert owned.owner == far[0].coordinates
    assert owned.life_ms > HOUR_MS
    with pytest.raises(OtherClusterError):
        bare(server.url, cluster_id="B-id").claim([b"y"], records(1), {})
    assert admin(server).keys(f"{BASE}:*") == [f"{BASE}:meta".encode()], "old buckets are gone"
    assert migrate(bare(server.url)) is None


def test_an_earlier_version_waits_once_its_claims_have_moved(server):
    earlier = EarlierVersion(server.url)
    earlier.claim([b"x"], records(1))
    assert migrate(bare(server.url)) == 1
    with pytest.raises(ClaimsUnavailableError, match="another program writes to the keys"):
        earlier.claim([b"z"], records(1, at=1))


def test_while_claims_move_the_store_is_closed_and_a_migration_that_broke_off_goes_on(
    server, monkeypatch
):
    earlier, worker = EarlierVersion(server.url), bare(server.url)
    earlier.claim(ids(100), records(100))
    worker.claim([b"w"], records(1, partition=3), {})

    def broken(_migration: Migration, _keys: object, _kept: object) -> int:
        raise ClaimsUnavailableError("the machine of the operator is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Migration, "_copy_buckets", broken)
        with pytest.raises(ClaimsUnavailableError, match="is gone"):
            migrate(bare(server.url))
    for call in (
        lambda: worker.claim([b"y"], records(1), {}),
        lambda: bare(server.url).claim([b"y"], records(1), {}),
        lambda: bare(server.url).owner(b"y"),
        lambda: bare(server.url).check(),
    ):
        with pytest.raises(ClaimsUnavailableError, match="hapax claims migrate"):
            call()
    with pytest.raises(ClaimsUnavailableError):
        earlier.claim([b"y"], records(1))
    assert "hapax claims migrate" in str(bare(server.url).health().problem)
    assert migrate(bare(server.url)) == 101
    assert len(worker.claim(ids(100), records(100, partition=1), {})) == 100
    assert worker.claim([b"y"], records(1, partition=1), {}) == {}


def test_a_store_that_was_emptied_begins_in_the_format_of_today(server):
    emptied: list[int] = []
    EarlierVersion(server.url).claim([b"x"], records(1))
    worker = bare(server.url, on_emptied=lambda: emptied.append(1))
    worker.claim([b"x"], records(1), {})
    server.flush()
    # In the format before the script begins another, as an earlier version would.
    assert worker.claim([b"x"], records(1, at=1), {}) == {}
    assert emptied == [1]
    assert bare(server.url).claim([b"x"], records(1, at=2), {}) == {0: Coordinates("orders", 0, 1)}


def test_a_store_that_an_earlier_version_began_while_we_looked_away_is_found(server):
    emptied: list[int] = []
    worker = bare(server.url, on_emptied=lambda: emptied.append(1))
    worker.claim([b"x"], records(1), {})
    server.flush()
    EarlierVersion(server.url).claim([b"y"], records(1, at=3))
    assert worker.claim([b"y"], records(1, at=4), {}) == {0: Coordinates("orders", 0, 3)}
    assert emptied == [1]


def test_control_without_the_closed_door_a_claim_behind_the_copy_is_lost(server, monkeypatch):
    """What the door is for: the old script would claim in a bucket that was copied already."""
    earlier = EarlierVersion(server.url)
    earlier.claim(ids(10), records(10))
    copy = Migration._copy_buckets

    def late(migration: Migration, keys: Any, kept: Any) -> int:
        copied = copy(migration, keys, kept)
        if not late_claims:
            late_claims.append(1)
            # Behind the door's back: the old hash under its old name again.
            name = admin(server).getdel(BASE)
            admin(server).hset(BASE, mapping=kept)
            earlier.claim([b"late-%d" % at for at in range(400)], records(400, at=50))
            admin(server).delete(BASE)
            admin(server).set(BASE, name or b"")
        return copied

    late_claims: list[int] = []
    monkeypatch.setattr(Migration, "_copy_buckets", late)
    migrate(bare(server.url))
    twins = [b"late-%d" % at for at in range(400)]
    assert len(bare(server.url).claim(twins, records(400, partition=7), {})) < 400
    assert field(server, f"{BASE}:meta", "epoch")


def test_the_command_moves_claims_once_and_says_how_many(server):
    env = {**REQUIRED, "HAPAX_APP": "shop", "HAPAX_DEDUP__REDIS_URL": server.url}
    worker = bare(server.url)
    EarlierVersion(server.url).claim(ids(20), records(20))
    asked = RUN.invoke(app, ["claims", "migrate"], env=env, input="n\n")
    assert asked.exit_code != 0
    assert "pause until they are upgraded" in asked.output
    assert worker.claim(ids(1), records(1, at=5), {}) == FIRST
    done = RUN.invoke(app, ["claims", "migrate", "--yes", "--json"], env=env)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"migrated": True, "claims": 20}
    again = RUN.invoke(app, ["claims", "migrate", "--yes"], env=env)
    assert again.exit_code == 0, again.output
    assert "nothing was done" in again.stdout
    assert worker.claim(ids(1), records(1, at=5), {}) == FIRST


def test_the_command_says_when_the_store_is_away():
    env = {**REQUIRED, "HAPAX_APP": "shop", "HAPAX_DEDUP__REDIS_URL": "redis://127.0.0.1:1/0"}
    done = RUN.invoke(app, ["claims", "migrate", "--yes"], env=env)
    assert done.exit_code == 1, done.output
    assert "connection refused" in done.stderr

"""How claims are forgotten: by date, in buckets that a cursor sweeps, divides and joins."""

import contextlib
import threading
import time
from typing import Any

import pytest

from hapax.claims.redis import RedisClaims
from hapax.claims.redis_layout import bucket_prefix
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates
from hapax.sandbox.redis_server import Redis
from tests.kit.claim_stores import (
    HOUR_MS,
    SMALL_BUCKETS,
    admin,
    bare,
    field,
    ids,
    live,
    lives_ms,
    make_older,
    mutate,
    records,
)
from tests.kit.waiting import await_

pytestmark = [
    pytest.mark.real,
    pytest.mark.deep,
]  # how claims are stored; what they promise is in test_claims.py

META = "hapax:{shop}:claims:meta"
FIRST = {0: Coordinates("orders", 0, 0)}


def number(server: Redis, name: str) -> int:
    return int(field(server, META, name))


def sweep_again(server: Redis) -> None:
    """Let the last sweep have begun more than a TTL ago."""
    admin(server).hset(META, "start", number(server, "start") - 2 * HOUR_MS)


def swept(store: RedisClaims, server: Redis) -> None:
    """Call the store until a sweep has met every bucket."""
    sweep_again(server)
    began, client = number(server, "start"), admin(server)
    for at in range(10_000):
        store.claim([b"sweeper"], records(1, topic="sweeper"), {})
        found: Any = client.hmget(META, "start", "cursor", "from")
        start, cursor, bits = map(int, found)
        if start != began and cursor >= 2**bits:
            return
        client.hset(META, "start", start - HOUR_MS)
        assert at < 9_999


def test_nothing_outlives_an_app_that_is_gone_but_its_epoch(server):
    store = bare(server.url, ttl_ms=100)
    store.claim(ids(1_000), records(1_000), {})
    assert admin(server).dbsize() > 100
    await_(lambda: admin(server).dbsize() == 2)
    assert sorted(admin(server).keys()) == [META.removesuffix(":meta").encode(), META.encode()]
    assert store.claim(ids(1_000), records(1_000, at=5), {}) == {}


def test_every_bucket_has_an_end_however_many_there_are(server):
    store = mutate(bare(server.url), SMALL_BUCKETS)
    for at in range(0, 600, 30):
        store.claim(ids(30, at=at), records(30, at=at), {})
        ends = lives_ms(server)
        assert min(ends) > HOUR_MS, "long enough for what is claimed now"
    assert len(live(server)) > 64


def test_a_claim_in_the_last_of_its_time_counts(server):
    store = bare(server.url)
    store.claim([b"x"], records(1), {})
    make_older(server, HOUR_MS)
    assert store.claim([b"x", b"y"], records(2, at=1), {}) == FIRST
    for _ in range(2):
        assert store.claim([b"x"], records(1), {}) == {}
        assert store.claim([b"y"], records(1), {}) == {0: Coordinates("orders", 0, 2)}


def test_a_claim_past_its_time_is_forgotten_before_it_is_swept(server):
    store, other = bare(server.url), bare(server.url)
    store.claim([b"x"], records(1), {})
    make_older(server, HOUR_MS + HOUR_MS // 8)
    assert store.owner(b"x") is None
    assert store.claim([b"x"], records(1, at=1), {}) == {}
    assert other.claim([b"x"], records(1, at=2), {}) == {0: Coordinates("orders", 0, 1)}


def test_our_own_claim_past_its_time_is_claimed_for_another_ttl(server):
    store = bare(server.url)
    store.claim([b"x"], records(1), {})
    make_older(server, HOUR_MS + HOUR_MS // 8)
    assert store.claim([b"x"], records(1), {}) == {}
    owned = store.owner(b"x")
    assert owned is not None
    assert owned.life_ms > HOUR_MS


def test_a_sweep_deletes_what_is_over_and_nothing_else(server):
    store = mutate(bare(server.url), {"= 14, 14, 24": "= 5, 5, 24"})
    store.claim(ids(300), records(300), {})
    make_older(server, HOUR_MS + HOUR_MS // 8)
    store.claim(ids(100, at=300), records(100, at=300), {})
    swept(store, server)
    assert sum(map(len, live(server).values())) == 101  # the sweeper's own
    others = store.claim(ids(400), records(400, partition=1), {})
    assert sorted(others) == list(range(300, 400))


def test_a_sweep_lets_buckets_live_on_as_long_as_the_app_does(server):
    store = mutate(bare(server.url), {"= 14, 14, 24": "= 5, 5, 24"})
    store.claim([b"x"], records(1), {})
    client = admin(server)
    for key in live(server):
        client.pexpire(key, HOUR_MS)
    swept(store, server)
    assert min(lives_ms(server)) > 3 * HOUR_MS


def test_buckets_that_ended_while_an_app_slept_are_made_before_it_claims(server):
    store = bare(server.url)
    store.claim([b"x"], records(1), {})
    admin(server).hset(META, mapping={"alive": 1, "start": 1})
    admin(server).delete(*live(server))
    late = bare(server.url)
    assert late.claim([b"y"], records(1), {}) == {}
    assert len(live(server)) == 2**14
    assert min(lives_ms(server)) > HOUR_MS


def test_a_date_that_was_too_early_is_set_right(server):
    """As when the request of a worker waits in the socket of a server that hangs."""
    store = bare(server.url)
    store.claim([b"w"], records(1), {})
    world = store._buckets.world
    assert world is not None
    store._buckets.world = world._replace(now_ms=world.now_ms - HOUR_MS // 2)
    assert store.claim(ids(3), records(3), {}) == {}
    for each in ids(3):
        owned = store.owner(each)
        assert owned is not None
        assert owned.life_ms > HOUR_MS


def test_a_longer_ttl_holds_from_its_first_call_and_a_shorter_one_after_a_sweep(server):
    short, long = bare(server.url, ttl_ms=HOUR_MS), bare(server.url, ttl_ms=10 * HOUR_MS)
    short.claim([b"x"], records(1), {})
    long.claim([b"y"], records(1), {})
    make_older(server, 5 * HOUR_MS)
    assert short.claim([b"x", b"y"], records(2, at=7), {}).keys() == {0, 1}
    assert min(lives_ms(server)) > 10 * HOUR_MS


def test_workers_with_different_ttls_do_not_sweep_in_turn(server):
    short, long = bare(server.url, ttl_ms=HOUR_MS), bare(server.url, ttl_ms=10 * HOUR_MS)
    for at in range(3):
        for store in (short, long):
            store.claim([b"x"], records(1, at=at), {})
    admin(server).config_resetstat()
    for at in range(10):
        for store in (short, long):
            store.claim([b"x"], records(1, at=at), {})
    assert "cmdstat_hgetall" not in admin(server).info("commandstats")


def test_full_buckets_are_divided_while_claims_go_on(server):
    store = mutate(bare(server.url), SMALL_BUCKETS)
    bits = []
    for at in range(0, 200, 10):
        store.claim(ids(10, at=at), records(10, at=at), {})
        bits.append(number(server, "from"))
    assert bits[0] == 3
    assert bits[-1] >= 5
    assert bits == sorted(bits)
    assert sorted(store.claim(ids(200), records(200, partition=1), {})) == list(range(200))
    prefix = bucket_prefix(b"hapax:{shop}:claims", field(server, META, "epoch"))
    assert len({key[: len(prefix) + 1] for key in live(server)}) <= 2, "the old ones are gone"


def test_buckets_that_stayed_nearly_empty_are_joined(server):
    store = mutate(bare(server.url), {"= 14, 14, 24": "= 9, 7, 24"})
    store.claim(ids(20), records(20), {})
    for _ in range(3):
        swept(store, server)
    assert number(server, "from") < 9
    assert sorted(store.claim(ids(20), records(20, partition=1), {})) == list(range(20))


def test_a_request_that_met_divided_buckets_is_claimed_again_where_it_counts(server):
    """A worker that knows an old layout, beside one that divides buckets with every call."""
    stale, busy = (mutate(bare(server.url), SMALL_BUCKETS) for _ in range(2))
    stale.claim([b"w"], records(1, partition=1), {})
    for at in range(0, 300, 20):
        busy.claim(ids(20, at=at), records(20, at=at), {})
        mine = records(10, partition=1, at=at)
        twins = [b"event-%d" % each for each in range(at, at + 5)]
        news = [b"new-%d" % each for each in range(at, at + 5)]
        assert sorted(stale.claim(twins + news, mine, {})) == [0, 1, 2, 3, 4]
        assert sorted(busy.claim(news, records(5, partition=2), {})) == [0, 1, 2, 3, 4]
    assert number(server, "from") > 4
    ends = lives_ms(server)
    assert min(ends) > HOUR_MS, "nothing is left where it was claimed in vain"


def test_what_was_claimed_in_an_epoch_that_is_gone_is_taken_back(server):
    store = bare(server.url)
    store.claim([b"w"], records(1), {})
    server.flush()
    assert store.claim(ids(50), records(50), {}) == {}
    ends = lives_ms(server)
    assert min(ends) > HOUR_MS
    assert sum(map(len, live(server).values())) == 50


def test_control_a_layout_that_is_not_compared_lets_a_duplicate_pass(server, monkeypatch):
    stale, busy = (mutate(bare(server.url), SMALL_BUCKETS) for _ in range(2))
    stale.claim([b"w"], records(1, partition=1), {})
    for at in range(0, 300, 20):
        busy.claim(ids(20, at=at), records(20, at=at), {})
    monkeypatch.setattr("hapax.claims.redis_layout.Layout.agrees", lambda *_: True)
    assert len(stale.claim(ids(300), records(300, partition=1), {})) < 300


@pytest.mark.row("R7")
def test_of_workers_that_claim_the_same_ids_while_buckets_move_one_owns_each(server):
    def work(partition: int) -> None:
        store = mutate(bare(server.url), SMALL_BUCKETS)
        start.wait()
        for at in range(0, 600, 40):
            mine = records(40, partition=partition, at=at)
            others = store.claim(ids(40, at=at), mine, {})
            owned[partition] |= {at + place for place in range(40) if place not in others}
            again = store.claim(ids(40, at=at), mine, {})
            if again.keys() != others.keys():
                changed.append((partition, at))

    owned: dict[int, set[int]] = {partition: set() for partition in range(4)}
    changed: list[tuple[int, int]] = []
    start = threading.Barrier(4)
    threads = [threading.Thread(target=work, args=(partition,)) for partition in owned]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert changed == []
    assert sum(map(len, owned.values())) == 600
    assert set().union(*owned.values()) == set(range(600))
    assert number(server, "from") > 5


def test_of_workers_that_meet_claims_past_their_time_while_they_are_swept_one_owns_each(server):
    small = {"= 14, 14, 24": "= 5, 5, 24", "IDS_PER_STEP = 512, 8, 16": "IDS_PER_STEP = 2, 1, 4"}
    first = mutate(bare(server.url), small)
    for round_ in range(4):
        first.claim(ids(200, at=round_ * 200), records(200), {})
    make_older(server, HOUR_MS + HOUR_MS // 8)
    sweep_again(server)

    def work(partition: int) -> None:
        store = mutate(bare(server.url), small)
        start.wait()
        for at in range(0, 800, 40):
            others = store.claim(ids(40, at=at), records(40, partition=partition, at=at), {})
            owned[partition] |= {at + place for place in range(40) if place not in others}

    owned: dict[int, set[int]] = {partition: set() for partition in range(1, 5)}
    start = threading.Barrier(4)
    threads = [threading.Thread(target=work, args=(partition,)) for partition in owned]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(map(len, owned.values())) == 800
    assert set().union(*owned.values()) == set(range(800))


def test_a_bucket_is_kept_packed(server):
    store = bare(server.url)
    for at in range(0, 100_000, 10_000):
        store.claim(ids(10_000, at=at), records(10_000, at=at), {})
    packed = {"listpack", "ziplist"}  # Redis 7, Redis 6.2
    client = admin(server)
    assert {client.object("encoding", key).decode() for key in live(server)} < packed


def test_an_id_with_its_owner_and_end_costs_40_bytes_at_most(server):
    store = bare(server.url)
    store.claim([b"warm"], records(1), {})
    before = admin(server).info("memory")
    for at in range(0, 50_000, 5_000):
        store.claim(ids(5_000, at=at), records(5_000, at=at), {})
    after = admin(server).info("memory")
    used = [
        each["used_memory"] - each["mem_clients_normal"] - each["mem_aof_buffer"]
        for each in (before, after)
    ]
    assert (used[1] - used[0]) / 50_000 <= 40


def test_a_claim_that_is_asked_long_before_its_answer_is_dated_by_redis(server):
    store = bare(server.url, ttl_ms=640)
    store.claim([b"w"], records(1), {})
    asked = store.ask([b"x"], records(1), {})
    time.sleep(0.2)
    assert asked.answer() == {}
    owned = store.owner(b"x")
    assert owned is not None
    assert owned.life_ms <= 640 - 150


def test_a_number_that_another_topic_has_is_not_given_twice(server, monkeypatch):
    monkeypatch.setattr("hapax.claims.redis_buckets.first_number", lambda _topic: 2**24 - 1)
    store = bare(server.url)
    assert store.claim(ids(2), [*records(1), *records(1, topic="returns")], {}) == {}
    others = store.claim(ids(2)[::-1], [*records(1), *records(1, topic="returns")], {})
    assert others == {0: Coordinates("returns", 0, 0), 1: Coordinates("orders", 0, 0)}
    assert bare(server.url).claim(ids(2)[1:], records(1, topic="returns"), {}) == {}


@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_script_that_fails_between_two_buckets_loses_no_claim(server, at):
    """As when the slot of the app moves to another node in the middle of it."""
    store = mutate(bare(server.url), SMALL_BUCKETS)
    failing = SMALL_BUCKETS | {
        "local moves = at.from ~= at.to\n": "local moves = at.from ~= at.to\n"
        f"if moves and at.cursor == {at} then error('a key moved') end\n"
    }
    mutate(store, failing)
    for start in range(0, 60, 6):
        try:
            store.claim(ids(6, at=start), records(6, at=start), {})
        except ClaimsUnavailableError:
            break
    else:
        pytest.fail("no bucket was moved")
    mutate(store, SMALL_BUCKETS)
    for each in range(0, 60, 6):
        assert store.claim(ids(6, at=each), records(6, at=each), {}) == {}
    assert sorted(store.claim(ids(60), records(60, partition=1), {})) == list(range(60))


def test_control_a_cursor_that_is_written_at_the_end_alone_loses_claims(server):
    store = mutate(bare(server.url), SMALL_BUCKETS)
    late = {"  if moves then call('HSET', meta, 'cursor', format('%.0f', at.cursor)) end\n": ""}
    failing = late | {
        "local moves = at.from ~= at.to\n": "local moves = at.from ~= at.to\n"
        "if moves and at.cursor == 5 then error('a key moved') end\n"
    }
    mutate(store, SMALL_BUCKETS | failing)
    for start in range(0, 60, 6):
        with contextlib.suppress(ClaimsUnavailableError):
            store.claim(ids(6, at=start), records(6, at=start), {})
    mutate(store, SMALL_BUCKETS | late)
    assert len(store.claim(ids(60), records(60, partition=1), {})) < 60

"""How claims are forgotten: by generations, which begin and end by the server's clock."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hapax.claims.redis import RedisClaims
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates
from hapax.sandbox.servers import Redis
from tests.kit.claim_stores import (
    HOUR_MS,
    SMALL_PIECES,
    admin,
    bare,
    claimed_x,
    field,
    generations,
    ids,
    live,
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
HALF_MS = HOUR_MS // 2
A_BIT_MS = HOUR_MS // 20


def claimed(server: Redis) -> dict[int, int]:
    """Return how many ids each generation has, by number."""
    counts: dict[int, int] = {}
    for key, found in live(server).items():
        number = int(key.split(b":")[-2])
        counts[number] = counts.get(number, 0) + len(found)
    return counts


def test_ids_of_half_a_time_to_live_are_in_one_generation_and_the_next_in_another(server):
    store = bare(server.url)
    store.claim(ids(100), records(100), {})
    make_older(server, HALF_MS - A_BIT_MS)
    store.claim(ids(100, at=100), records(100, at=100), {})
    assert claimed(server) == {1: 200}
    make_older(server, A_BIT_MS)
    store.claim(ids(100, at=200), records(100, at=200), {})
    assert claimed(server) == {1: 200, 2: 100}
    assert sorted(store.claim(ids(300), records(300, partition=1), {})) == list(range(300))
    assert claimed(server) == {1: 200, 2: 100}, "an id is in one generation"


def test_an_id_is_remembered_for_a_whole_time_to_live_and_half_as_long_at_most_after_it(server):
    store = bare(server.url)
    store.claim([b"early"], records(1), {})
    make_older(server, HALF_MS - A_BIT_MS)
    store.claim([b"late"], records(1, at=1), {})
    make_older(server, HOUR_MS)
    asked = [b"early", b"late"]
    assert store.claim(asked, records(2, at=5), {}).keys() == {0, 1}
    make_older(server, A_BIT_MS)
    assert store.owner(b"late") is None
    assert store.claim(asked, records(2, at=7), {}) == {}
    owned = store.owner(b"late")
    assert owned is not None
    assert owned.owner.offset == 8
    assert HOUR_MS < owned.life_ms <= 1.5 * HOUR_MS


def test_a_generation_that_is_over_is_deleted_by_the_next_claim_and_nothing_else_is(server):
    store = bare(server.url)
    for at in range(0, 400, 100):
        store.claim(ids(100, at=at), records(100, at=at), {})
        make_older(server, HALF_MS)
    store.claim([b"x"], records(1, at=900), {})
    assert claimed(server) == {3: 100, 4: 100, 5: 1}
    assert [number for number, *_ in generations(server)] == [5, 4, 3]
    assert sorted(store.claim(ids(400), records(400, partition=1), {})) == list(range(200, 400))


def test_nothing_outlives_an_app_that_is_gone_but_its_epoch(server):
    store = bare(server.url, ttl_ms=100)
    store.claim(ids(1_000), records(1_000), {})
    assert admin(server).dbsize() == 18
    await_(lambda: admin(server).dbsize() == 2)
    assert sorted(admin(server).keys()) == [META.removesuffix(":meta").encode(), META.encode()]
    assert store.claim(ids(1_000), records(1_000, at=5), {}) == {}


def test_every_key_has_an_end_after_that_of_its_generation(server):
    store = mutate(bare(server.url), SMALL_PIECES)
    for at in range(0, 100, 10):
        store.claim(ids(10, at=at), records(10, at=at), {})
    assert len(generations(server)) == 10
    lives_ms = [admin(server).pttl(key) for key in live(server)]
    assert 1.5 * HOUR_MS < min(lives_ms) <= max(lives_ms) <= 2.5 * HOUR_MS


def test_a_claim_that_is_taken_over_moves_into_the_newest_generation(server):
    store = bare(server.url)
    store.claim(ids(3), records(3), {})
    make_older(server, HALF_MS)
    assert store.claim([b"event-1"], records(1, at=9), {}, [Coordinates("orders", 0, 1)]) == {}
    assert claimed(server) == {1: 2, 2: 1}
    make_older(server, HOUR_MS + A_BIT_MS)
    assert store.claim(ids(3), records(3, at=20), {}) == {1: Coordinates("orders", 0, 9)}


def test_a_longer_time_to_live_holds_at_once_for_all_ids_that_are_there(server):
    short, long = bare(server.url, ttl_ms=HOUR_MS), bare(server.url, ttl_ms=10 * HOUR_MS)
    short.claim([b"x"], records(1), {})
    long.claim([b"y"], records(1, at=1), {})
    assert min(admin(server).pttl(key) for key in live(server)) > 20 * HOUR_MS
    make_older(server, 9 * HOUR_MS)
    assert short.claim([b"x", b"y"], records(2, at=7), {}).keys() == {0, 1}


def test_a_shorter_time_to_live_holds_from_the_next_generation_on(server):
    long, short = bare(server.url, ttl_ms=10 * HOUR_MS), bare(server.url, ttl_ms=HOUR_MS)
    long.claim([b"x"], records(1), {})
    make_older(server, HALF_MS)
    short.claim([b"y"], records(1, at=1), {})
    assert [ttl_ms for *_, ttl_ms in generations(server)] == [HOUR_MS, 10 * HOUR_MS]
    make_older(server, 2 * HOUR_MS)
    assert short.claim([b"x", b"y"], records(2, at=7), {}) == FIRST


def test_workers_with_different_times_to_live_do_not_begin_a_generation_in_turn(server):
    short, long = bare(server.url, ttl_ms=HOUR_MS), bare(server.url, ttl_ms=100 * HOUR_MS)
    for at in range(30):
        for store in (short, long):
            store.claim([b"x-%d" % at], records(1, at=at), {})
        make_older(server, HOUR_MS)
    assert len(generations(server)) == 4


def test_a_clock_that_is_set_back_ends_no_claim_early_and_keeps_none_for_ever(server):
    store = claimed_x(server.url)
    make_older(server, -1000 * HOUR_MS)
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST
    make_older(server, HOUR_MS)
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST
    make_older(server, HALF_MS)
    assert store.claim([b"x"], records(1, at=1), {}) == {}


def test_a_claim_that_is_asked_long_before_its_answer_lives_from_when_the_server_served_it(server):
    store = bare(server.url)
    store.claim([b"w"], records(1), {})
    make_older(server, HALF_MS)
    assert store.ask(ClaimRequest([b"x"], records(1), {})).answer() == {}
    assert claimed(server) == {1: 1, 2: 1}


def test_what_is_claimed_after_a_store_was_emptied_is_claimed_in_its_new_epoch(server):
    emptied: list[int] = []
    store = bare(server.url, on_emptied=lambda: emptied.append(1))
    store.claim([b"w"], records(1), {})
    before = field(server, META, "epoch")
    server.flush()
    assert store.claim(ids(50), records(50), {}) == {}
    assert emptied == [1]
    assert field(server, META, "epoch") != before
    assert {key.split(b":")[3] for key in live(server)} == {field(server, META, "epoch")}
    assert claimed(server) == {1: 50}


def test_control_where_the_generation_before_is_not_asked_a_duplicate_passes(server):
    all_of_them = "for age, generation in ipairs("
    store = mutate(
        bare(server.url), {f"{all_of_them}generations)": f"{all_of_them}{{generations[1]}})"}
    )
    store.claim([b"x"], records(1), {})
    make_older(server, HALF_MS)
    assert store.claim([b"x"], records(1, at=1), {}) == {}


@pytest.mark.row("R7")
def test_of_workers_that_claim_the_same_ids_while_generations_begin_one_owns_each(server):
    def work(partition: int) -> None:
        store = mutate(bare(server.url), SMALL_PIECES)
        start.wait()
        for at in range(0, 600, 40):
            mine = records(40, partition=partition, at=at)
            others = store.claim(ids(40, at=at), mine, {})
            owned[partition] |= {at + place for place in range(40) if place not in others}
            if store.claim(ids(40, at=at), mine, {}).keys() != others.keys():
                changed.append((partition, at))

    owned: dict[int, set[int]] = {partition: set() for partition in range(4)}
    changed: list[tuple[int, int]] = []
    start = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, owned))
    assert changed == []
    assert sum(map(len, owned.values())) == 600
    assert set().union(*owned.values()) == set(range(600))


def test_a_batch_of_any_size_is_claimed_in_pieces_and_its_repeats_belong_to_the_first(server):
    store = bare(server.url)
    found = store.claim([b"%d" % (place % 15_000) for place in range(25_000)], records(25_000), {})
    assert found == {at: Coordinates("orders", 0, at - 15_000) for at in range(15_000, 25_000)}


def test_ids_that_all_fall_into_one_shard_are_claimed_like_others(server, monkeypatch):
    def alike(wanted: ClaimRequest, salt: bytes, packed: Any = ClaimRequest.digests) -> bytes:
        digests = packed(wanted, salt)
        return b"".join(digests[at : at + 15] + b"\0" for at in range(0, len(digests), 16))

    monkeypatch.setattr(ClaimRequest, "digests", alike)
    store = bare(server.url)
    assert store.claim(ids(9_000), records(9_000), {}) == {}
    assert store.claim(ids(9_000), records(9_000), {}) == {}
    assert len(store.claim(ids(9_000), records(9_000, partition=1), {})) == 9_000
    assert len(live(server)) == 1


def test_an_id_costs_as_much_memory_as_capacity_says(server):
    store = bare(server.url)
    store.claim([b"warm"], records(1), {})
    before = admin(server).info("memory")
    for at in range(0, 100_000, 10_000):
        store.claim(ids(10_000, at=at), records(10_000, at=at), {})
    after = admin(server).info("memory")
    used = [
        each["used_memory"] - each["mem_clients_normal"] - each["mem_aof_buffer"]
        for each in (before, after)
    ]
    assert (used[1] - used[0]) / 100_000 <= 98


def test_a_number_that_another_topic_has_is_not_given_twice(server, monkeypatch):
    monkeypatch.setattr("hapax.claims.redis.first_number", lambda _topic: b"\xff\xff\xff")
    store = bare(server.url)
    assert store.claim(ids(2), [*records(1), *records(1, topic="returns")], {}) == {}
    others = store.claim(ids(2)[::-1], [*records(1), *records(1, topic="returns")], {})
    assert others == {0: Coordinates("returns", 0, 0), 1: Coordinates("orders", 0, 0)}
    assert bare(server.url).claim(ids(2)[1:], records(1, topic="returns"), {}) == {}


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_script_that_fails_between_two_shards_loses_no_claim(server, shard):
    """As when the slot of the app moves to another node in the middle of it."""
    failing = SMALL_PIECES | {
        "  local is_new = false\n": f"  local is_new = false\n"
        f"if shard == {shard} and #digests > 14 then error('a key moved') end\n"
    }
    store: RedisClaims = mutate(bare(server.url), SMALL_PIECES)
    store.claim([b"event-0"], records(1), {})
    with pytest.raises(ClaimsUnavailableError):
        mutate(store, failing).claim(ids(60), records(60), {})
    mutate(store, SMALL_PIECES)
    assert store.claim(ids(60), records(60), {}) == {}
    assert sorted(store.claim(ids(60), records(60, partition=1), {})) == list(range(60))

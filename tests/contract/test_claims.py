"""What every claim store must do: in memory, and in Redis, with one generation and with many."""

import itertools
from typing import Protocol

import pytest
from hypothesis import given, settings, strategies as st

from hapax.claims.kind import StoreOptions
from hapax.claims.store import kind_of
from hapax.core.ports import Claims
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates, Record
from hapax.testing.claims import MemoryClaims
from tests.kit.claim_stores import (
    HOUR_MS,
    SMALL_PIECES,
    Hand,
    bare,
    ids,
    mutate,
    records,
    redis_server,
    registered,
)

apps = (f"app-{number}" for number in itertools.count())


class NewStore(Protocol):
    """Makes an empty store, as seen by so many workers."""

    def __call__(self, workers: int = 1) -> list[Claims]: ...


@pytest.fixture(
    scope="module",
    params=[
        "memory",
        "memory, by its address",
        pytest.param("redis", marks=pytest.mark.real),
        pytest.param("redis, a generation for each call", marks=pytest.mark.real),
    ],
)
def stores(request, tmp_path_factory):
    if request.param == "memory":

        def in_memory(workers: int = 1) -> list[Claims]:
            first = MemoryClaims(clock=Hand(), ttl_ms=HOUR_MS)
            return [first.seen_by() for _ in range(workers)]

        yield in_memory
        return
    if request.param == "memory, by its address":

        def by_address(workers: int = 1) -> list[Claims]:
            address, options = "memory://contract", StoreOptions(next(apps), HOUR_MS)
            first = kind_of(address).open(address, options)
            assert isinstance(first, MemoryClaims)
            return [first.seen_by() for _ in range(workers)]

        with registered(Hand()):
            yield by_address
        return
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        changes = SMALL_PIECES if "each call" in request.param else {}

        def in_redis(workers: int = 1) -> list[Claims]:
            app = next(apps)
            return [mutate(bare(server.url, app), changes) for _ in range(workers)]

        yield in_redis


@pytest.fixture
def store(stores):
    return stores()[0]


def test_a_claim_with_our_own_coordinates_is_processed_again(store):
    for _ in range(3):
        assert store.claim(ids(3), records(3), {}) == {}


@pytest.mark.parametrize(
    "other",
    [
        Record("returns", 1, 5, None, None),
        Record("orders", 2, 5, None, None),
        Record("orders", 1, 6, None, None),
        Record("orders", 1, 5 + 2**32, None, None),
        Record("orders", 1 + 128, 5, None, None),
    ],
)
def test_topic_partition_and_offset_all_count(store, other):
    store.claim([b"x"], [Record("orders", 1, 5, None, None)], {})
    assert store.claim([b"x"], [other], {}) == {0: Coordinates("orders", 1, 5)}


def test_a_batch_without_ids_claims_nothing_and_numbers_that_differ_are_refused(store):
    assert store.claim([], [], {}) == {}
    with pytest.raises(ValueError, match="1 ids for 2 records"):
        store.claim([b"x"], records(2), {})
    with pytest.raises(ValueError, match="2 ids for 1 owners"):
        store.claim(ids(2), records(2), {}, [Coordinates("orders", 0, 0)])


def test_ids_are_bytes_of_any_kind_and_length(store):
    odd = [b"", b"\0", b"\r\n", b"{}", b"\xff" * 70_000, b"\xff" * 70_001]
    assert store.claim(odd, records(6), {}) == {}
    assert sorted(store.claim(odd, records(6, at=10), {})) == [0, 1, 2, 3, 4, 5]


topics = st.sampled_from(["orders", "returns", "a.b-c_d", "t" * 249])
offsets = st.sampled_from([0, 1, 2, 127, 128, 2**32 - 1, 2**32, 2**40 + 3, 2**63 - 1])
places = st.builds(Coordinates, topics, st.sampled_from([0, 1, 127, 128, 20_000]), offsets)
sightings = st.tuples(st.integers(0, 40), places, st.none() | places)
batches = st.lists(st.tuples(st.integers(0, 1), st.lists(sightings, max_size=30)), max_size=6)


@settings(max_examples=40, deadline=None)
@given(batches=batches)
def test_the_first_owner_of_an_id_stays_its_owner(
    stores: NewStore, batches: list[tuple[int, list[tuple[int, Coordinates, Coordinates | None]]]]
) -> None:
    workers = stores(2)
    owners: dict[int, Coordinates] = {}
    for worker, batch in batches:
        foreign = {}
        for index, (number, own, original) in enumerate(batch):
            owner = owners.setdefault(number, original or own)
            if owner != (original or own):
                foreign[index] = owner
        found = workers[worker].claim(
            [b"%d" % number for number, *_ in batch],
            [Record(*own, key=None, value=None) for _, own, _ in batch],
            {index: replay for index, (*_, replay) in enumerate(batch) if replay},
        )
        assert found == foreign


def test_an_owner_that_is_gone_loses_its_claim_to_the_record_that_meets_it(store):
    gone = Coordinates("orders", 0, 1)
    store.claim(ids(3), records(3), {})
    after = records(1, at=9)
    assert store.claim([b"event-1"], after, {}, [gone]) == {}
    assert store.claim([b"event-1"], after, {}) == {}
    assert store.claim(ids(3), records(3), {}) == {1: after[0].coordinates}


def test_of_two_that_take_a_claim_over_one_owns_it(stores):
    first, second = stores(2)
    gone = Coordinates("gone.topic", 7, 2**40)
    first.claim([b"x"], [Record(*gone, None, None)], {})
    assert first.claim([b"x"], records(1, at=5), {}, [gone]) == {}
    other = records(1, partition=3, at=6)
    assert second.claim([b"x"], other, {}, [gone]) == {0: Coordinates("orders", 0, 5)}


def test_of_two_records_of_one_batch_the_first_takes_the_claim_over(store):
    gone = Coordinates("orders", 0, 0)
    store.claim([b"x"], records(1), {})
    twins = records(3, at=4)
    assert store.claim([b"x", b"y", b"x"], twins, {}, [gone] * 3) == {2: twins[0].coordinates}


def test_a_claim_that_is_asked_first_and_answered_later_is_the_same_claim(store):
    first = Coordinates("orders", 0, 1)
    assert store.ask(ClaimRequest(ids(3), records(3))).answer() == {}
    assert store.ask(ClaimRequest(ids(3), records(3))).answer() == {}
    replayed = ClaimRequest([b"event-1", b"w"], records(2, topic="dead"), {0: first})
    assert store.ask(replayed).answer() == {}
    assert store.ask(ClaimRequest([b"event-1"], records(1, at=9))).answer() == {0: first}
    assert store.ask(ClaimRequest([], [])).answer() == {}
    with pytest.raises(ValueError, match="1 ids for 2 records"):
        store.ask(ClaimRequest([b"x"], records(2)))


def test_other_calls_between_request_and_answer_do_not_disturb_it(store):
    store.claim(ids(2), records(2), {})
    asked = store.ask(ClaimRequest(ids(4), records(4, at=50)))
    assert store.claim([b"other"], records(1, at=70), {}) == {}
    store.ping()
    assert store.claim([b"event-0"], records(1, at=80), {}) == {0: Coordinates("orders", 0, 0)}
    assert asked.answer() == {0: Coordinates("orders", 0, 0), 1: Coordinates("orders", 0, 1)}
    assert store.claim(ids(4), records(4, at=50), {}).keys() == {0, 1}


def test_an_answer_that_is_not_wanted_is_not_read_as_that_of_another_call(store):
    store.claim(ids(2), records(2), {})
    for at in range(5):
        dropped = store.ask(ClaimRequest(ids(2), records(2, at=90)))
        if at % 2:
            dropped.drop()
        del dropped
        assert store.claim([b"mine"], records(1), {}) == {}
        assert store.claim(ids(2), records(2), {}) == {}
        assert store.ask(ClaimRequest(ids(2), records(2))).answer() == {}

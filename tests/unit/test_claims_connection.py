import socket
import threading
from typing import Any

import pytest
from redis.connection import SSLConnection

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.claims.redis_connection import Tls, connect, is_away, place
from hapax.claims.redis_health import preflight, server_name
from hapax.core.errors import ClaimsUnavailableError, ConfigurationError
from tests.kit.claim_stores import bare, records


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
        ("LOADING Redis is loading the dataset in memory", "still loading"),
        ("READONLY You can't write against a read only replica.", "it is a replica"),
        ("ERR Error running script (call to f_1): @user_script:7: -READONLY You", "a replica"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "memory is full"),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no", "without a"),
        ("MOVED 3999 127.0.0.1:6381", "another node of its cluster"),
        ("ASK 3999 127.0.0.1:6381", "another node of its cluster"),
        ("CLUSTERDOWN The cluster is down", "is incomplete"),
        ("TRYAGAIN Multiple keys request during rehashing of slot", "is incomplete"),
        ("BUSY Redis is busy running a script.", "another script"),
        ("MISCONF Redis is configured to save RDB snapshots", "refuses writes"),
        ("NOREPLICAS Not enough good replicas to write.", "too few replicas"),
        ("NOAUTH Authentication required.", "user or password"),
        ("NOPERM this user has no permissions", "lacks a permission: allow ~hapax*"),
        (
            "ERR The user executing the script can't run this command or subcommand",
            "lacks a permission",
        ),
        (
            "ERR ACL failure in script: User u has no permissions to run the 'get' command",
            "lacks a permission",
        ),
        ("ERR max number of clients reached", "raise maxclients"),
        ("ERR unknown command 'EVALSHA', with args beginning with: 's3cret'", "lacks a command"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "another program"),
        ("STRANGE s3cret", "the error STRANGE"),
    ],
)
def test_every_answer_that_decides_nothing_is_an_outage_with_one_plain_line(
    answering, answer, reason
):
    store = bare(answering(f"-{answer}\r\n".encode()))
    with pytest.raises(ClaimsUnavailableError) as caught:
        store.claim([b"x"], records(1), {})
    store.close()
    text = str(caught.value)
    assert reason in text
    assert text.startswith("Redis at 127.0.0.1:")
    assert "\n" not in text
    assert "s3cret" not in text


def test_an_answer_that_is_not_redis_is_an_outage(answering):
    store = bare(answering(b"?\r\n"))
    with pytest.raises(ClaimsUnavailableError):
        store.claim([b"x"], records(1), {})
    store.close()


def test_a_refused_connection_tells_the_place_but_not_the_password():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = bare(f"redis://hapax:s3cret@127.0.0.1:{port}/3")
    with pytest.raises(ClaimsUnavailableError) as caught:
        store.ping()
    assert str(caught.value) == (f"Redis at 127.0.0.1:{port}/3 does not answer: connection refused")


def test_a_server_that_accepts_and_stays_silent_is_an_outage():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        store = bare(f"redis://127.0.0.1:{listener.getsockname()[1]}", answer_timeout_s=0.05)
        with pytest.raises(ClaimsUnavailableError, match="took too long"):
            store.ping()


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret/@host:6379/0",
        "redis://:s3cret#@host:6379/0",
        "redis://host:s3cret",
        "http://:s3cret@host",
        "host:6379",
        "redis://:s3cret@host/zero",
        "redis://:s3cret@host/0?socket_tiemout=1",
        "redis://:s3cret@host/0?socket_timeout=s3cret",
    ],
)
def test_a_url_that_cannot_work_is_refused_without_telling_it(url):
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_ca_file_needs_tls():
    with pytest.raises(ConfigurationError, match="rediss://"):
        connect("redis://host", tls=Tls("ca.pem"))


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
    kind = connect(url).connection_pool.connection_class
    assert issubclass(kind, SSLConnection) is tls


def test_no_sentinel_that_answers_is_an_outage():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        url = f"redis+sentinel://127.0.0.1:{port},127.0.0.1:{port}/mymaster"
        store = bare(url, answer_timeout_s=0.05)
        with pytest.raises(ClaimsUnavailableError, match="sentinels' mymaster") as caught:
            store.ping()
    assert caught.value.__cause__ is not None
    assert is_away(caught.value.__cause__)


def test_nodes_that_are_all_gone_are_an_outage():
    with pytest.raises(ClaimsUnavailableError, match="connection refused"):
        bare("redis+cluster://127.0.0.1:1,127.0.0.1:2").ping()


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

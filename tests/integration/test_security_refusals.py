"""Who is not let in says why, in one sentence, and shows no secret to anybody.

All workers of this file start together: each waits ten seconds for a broker to change its mind.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hapax.sandbox import Sandbox
from hapax.sandbox.guard import Authority
from tests.kit.at_work import untouched
from tests.kit.forwarder import Forwarder
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.secured import KEY_PASSWORD, way
from tests.kit.waiting import await_

SECURITY = "KAFKA__SECURITY__"
ELSEWHERE = "127.0.0.2"
WRONG = "wr0ng-and-secret-4711"
WITHIN_S = 90.0

Settings = dict[str, Any]


class Refusal(NamedTuple):
    """What is wrong, what the exit code is, and what the reason says."""

    settings: Settings
    code: int
    words: list[str]


def _logins(guarded: Sandbox) -> dict[str, Refusal]:
    plain, scram = way(guarded, "PLAIN").settings, way(guarded, "SCRAM-SHA-256").settings
    tokens = way(guarded, "tokens").settings
    return {
        "another password": Refusal(scram | {f"{SECURITY}PASSWORD": WRONG}, 3, ["AUTHENTICATION"]),
        "another password, PLAIN": Refusal(
            plain | {f"{SECURITY}PASSWORD": WRONG}, 3, ["AUTHENTICATION"]
        ),
        "another secret for tokens": Refusal(
            tokens | {f"{SECURITY}OAUTH_CLIENT_SECRET": WRONG}, 3, ["token", "invalid_client"]
        ),
        "a token file that is not there": Refusal(
            way(guarded, "token file").settings | {f"{SECURITY}OAUTH_TOKEN_FILE": "/nowhere"},
            3,
            ["OAUTH_TOKEN_FILE: /nowhere: No such file"],
        ),
        "no encryption": Refusal(
            scram | {f"{SECURITY}PROTOCOL": "sasl_plaintext", f"{SECURITY}CA_FILE": None},
            3,
            ["no broker answered", "speaks TLS"],
        ),
    }


def _certificates(guarded: Sandbox, folder: Path) -> dict[str, Refusal]:
    authority, stranger = guarded.guard.authority, Authority(folder / "stranger")
    known = way(guarded, "certificate").settings
    locked = way(guarded, "locked key").settings
    old, strange = authority.issue("old", days=-1), stranger.issue("strange")
    ca, certificate, key = (
        f"{SECURITY}{name}" for name in ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")
    )
    return {
        "an unknown authority": Refusal(
            known | {ca: str(stranger.ca_file)}, 3, ["SSL", "certificate verify failed"]
        ),
        "no certificate": Refusal(
            known | {certificate: None, key: None}, 3, ["the client certificate is refused"]
        ),
        "an expired certificate": Refusal(
            known | {certificate: str(old.certificate_file), key: str(old.key_file)},
            3,
            ["the client certificate is refused"],
        ),
        "a stranger's certificate": Refusal(
            known | {certificate: str(strange.certificate_file), key: str(strange.key_file)},
            3,
            ["the client certificate is refused"],
        ),
        "a missing file": Refusal(
            known | {ca: str(folder / "nowhere.pem")}, 2, ["nowhere.pem", "No such file"]
        ),
        "a wrong password of the key": Refusal(
            locked | {f"{SECURITY}KEY_PASSWORD": WRONG}, 2, ["ssl.key"]
        ),
    }


def _elsewhere(guarded: Sandbox, stack: ExitStack) -> dict[str, Refusal]:
    """Servers whose certificates are good, at an address that does not stand in them."""
    known = way(guarded, "certificate").settings
    server = "KAFKA__BOOTSTRAP_SERVERS"
    port = int(known[server].rpartition(":")[2])
    broker = stack.enter_context(Forwarder(port, ELSEWHERE))
    redis = stack.enter_context(Forwarder(guarded.redis.tls_port or 0, ELSEWHERE))
    return {
        "a broker at another address": Refusal(
            known | {server: f"{ELSEWHERE}:{broker.port}"}, 3, ["SSL", "certificate verify failed"]
        ),
        "Redis at another address": Refusal(
            {
                "KAFKA__BOOTSTRAP_SERVERS": guarded.bootstrap_servers,
                "DEDUP__REDIS_URL": f"rediss://nobody:{WRONG}@{ELSEWHERE}:{redis.port}/0",
                "DEDUP__CA_FILE": str(guarded.guard.authority.ca_file),
            },
            3,
            ["certificate is not", ELSEWHERE],
        ),
    }


def _claims(guarded: Sandbox, folder: Path) -> dict[str, Refusal]:
    stranger = Authority(folder / "redis-stranger")
    plain = {"KAFKA__BOOTSTRAP_SERVERS": guarded.bootstrap_servers}
    ca = str(guarded.guard.authority.ca_file)
    url = guarded.redis.tls_url("nobody", WRONG)
    return {
        "Redis, another password": Refusal(
            plain | {"DEDUP__REDIS_URL": url, "DEDUP__CA_FILE": ca}, 3, ["user or password"]
        ),
        "Redis, an unknown authority": Refusal(
            plain | {"DEDUP__REDIS_URL": url, "DEDUP__CA_FILE": str(stranger.ca_file)},
            3,
            ["certificate is not trusted"],
        ),
        "Redis, a missing file": Refusal(
            plain | {"DEDUP__REDIS_URL": url, "DEDUP__CA_FILE": str(folder / "none.pem")},
            2,
            ["none.pem", "No such file"],
        ),
    }


NAMES = [
    "another password",
    "another password, PLAIN",
    "another secret for tokens",
    "a token file that is not there",
    "no encryption",
    "an unknown authority",
    "no certificate",
    "an expired certificate",
    "a stranger's certificate",
    "a missing file",
    "a wrong password of the key",
    "Redis, another password",
    "Redis, an unknown authority",
    "Redis, a missing file",
    "a broker at another address",
    "Redis at another address",
]


@pytest.fixture(scope="module")
def closed(guarded, tmp_path_factory):
    """A route on which nothing ever starts; its record must still be there."""
    route = PipelineUnderTest(guarded, tmp_path_factory.mktemp("closed"))
    route.create()
    route.write(b"1")
    yield route
    route.close()


@pytest.fixture(scope="module")
def refusals(guarded, closed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    wrong = _logins(guarded) | _certificates(guarded, folder) | _claims(guarded, folder)
    with ExitStack() as stack:
        wrong |= _elsewhere(guarded, stack)
        assert list(wrong) == NAMES
        yield {
            name: (closed.worker(f"w-{number}", **refusal.settings), refusal)
            for number, (name, refusal) in enumerate(wrong.items())
        }


@pytest.mark.parametrize("name", NAMES)
def test_who_is_not_let_in_leaves_with_the_reason_and_shows_no_secret(closed, refusals, name):
    worker, refusal = refusals[name]
    await_(lambda: not worker.running, WITHIN_S, worker.text)
    said = worker.text()
    assert worker.exit_code() == refusal.code, said
    reason = "\n".join(line for line in said.splitlines() if "service_started" not in line)
    assert all(word in reason for word in refusal.words), said
    assert WRONG not in said
    assert KEY_PASSWORD not in said
    assert "Traceback" not in said
    assert untouched(closed)

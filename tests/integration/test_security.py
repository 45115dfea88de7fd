"""Ways into a cluster that asks who it is: with the least rights, and refused with the reason."""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest

from hapax.cluster.cluster_state import Right
from hapax.kafka.connection import access
from hapax.sandbox import Sandbox
from hapax.sandbox.guard import Authority
from hapax.sandbox.processes import Ports
from hapax.settings import load_settings
from tests.kit.at_work import untouched
from tests.kit.doctor import ENVIRON
from tests.kit.forwarder import Forwarder
from tests.kit.guarded import tokens_of
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.probes import ask, free_port
from tests.kit.routes import a_route
from tests.kit.secured import (
    INSTANCE,
    KEY_PASSWORD,
    SCRAM_PASSWORD,
    WAYS,
    Way,
    login,
    needed,
    stand_in,
    token_file,
    way,
)
from tests.kit.waiting import await_

# -- The worker on every way in, with the least rights that it prints
# Its workers start together: what takes time is the start of a process.


TEN = [b"%d" % number for number in range(10)]
WITHIN_S = 90.0


class Journey(NamedTuple):
    """One worker, on topics of its own."""

    route: PipelineUnderTest
    worker: WorkerProcess


def _route(sandbox: Sandbox, folder: Path, chosen: Way, **more: Any) -> PipelineUnderTest:
    folder.mkdir()
    route = PipelineUnderTest(sandbox, folder, **chosen.settings, **more)
    route.create()
    route.write(*TEN)
    return route


def _leave(worker: WorkerProcess) -> int:
    await_(lambda: not worker.running, WITHIN_S, worker.text)
    return worker.exit_code()


# -- every way in -------------------------------------------------------------------------

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in WAYS},
    "names that change": (
        "SCRAM-SHA-256",
        {"GROUP__MEMBERSHIP": "dynamic", "GROUP__PROTOCOL": "consumer"},
    ),
    "no transactions": ("SCRAM-SHA-512", {"GUARANTEE": "at_least_once"}),
}
"""By name: the way in, and settings that ask for other rights."""


@pytest.fixture(scope="module")
def journeys(guarded, tmp_path_factory):
    folder, started = tmp_path_factory.mktemp("ways"), {}
    for name, (how, more) in KINDS.items():
        chosen = way(guarded, how)
        route = _route(guarded, folder / name.replace(" ", "-"), chosen, **more)
        if chosen.user is not None:
            guarded.rights.allow(chosen.user, *needed(route))
        started[name] = Journey(route, route.worker(INSTANCE, STOP_AFTER__AT_END="true"))
    yield started
    for journey in started.values():
        journey.route.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_worker_does_its_work_with_exactly_the_rights_that_are_printed(journeys, name):
    route, worker = journeys[name]
    assert _leave(worker) == 0, worker.text()
    assert sorted(record.value or b"" for record in route.outputs()) == TEN
    assert route.lag() == 0
    assert "AUTHORIZATION" not in str(worker.lines("lag_monitor_failed")), worker.text()


# -- each right, left out -----------------------------------------------------------------

LEFT_OUT = {
    "TOPIC READ in": (3, ["HAPAX_INPUT__TOPICS", "may not be read"]),
    "TOPIC WRITE out": (3, ["HAPAX_OUTPUT__TOPIC", "may not be read"]),
    "TOPIC WRITE dead": (3, ["HAPAX_DEAD_LETTER__TOPIC", "may not be read"]),
    "GROUP READ app": (1, ["not allowed", "GROUP_AUTHORIZATION"]),
    "TRANSACTIONAL_ID WRITE app:w-0": (3, ["TRANSACTIONAL_ID_AUTHORIZATION"]),
}


def _named(route: PipelineUnderTest, right: Right) -> str:
    name = right.name.removeprefix(f"{route.app}-") if right.resource == "TOPIC" else right.name
    return f"{right.resource} {right.operation} {name.replace(route.app, 'app')}"


@pytest.fixture(scope="module")
def deprived(guarded, tmp_path_factory):
    """Workers that lack one right each."""
    folder, started = tmp_path_factory.mktemp("rights"), {}
    for number in range(len(LEFT_OUT)):
        user = f"deprived-{number}"
        guarded.rights.set_password(user, SCRAM_PASSWORD)
        known = {"USERNAME": user, "PASSWORD": SCRAM_PASSWORD}
        route = _route(guarded, folder / user, Way(user, login(guarded, "SCRAM-SHA-256", **known)))
        rights = needed(route)
        assert len(rights) == len(LEFT_OUT)
        guarded.rights.allow(user, *(right for right in rights if right != rights[number]))
        started[_named(route, rights[number])] = Journey(route, route.worker(INSTANCE))
    yield started
    for journey in started.values():
        journey.route.close()


@pytest.mark.parametrize("which", LEFT_OUT)
def test_without_any_one_of_them_it_leaves_with_the_reason_and_has_done_nothing(deprived, which):
    route, worker = deprived[which]
    code, words = LEFT_OUT[which]
    assert _leave(worker) == code, worker.text()
    reason = "\n".join(line for line in worker.text().splitlines() if "service_started" not in line)
    assert all(word in reason for word in words), reason
    assert "Traceback" not in reason
    assert untouched(route)


# -- tokens of Amazon MSK, from something that stands for its signer ----------------------


def test_the_broker_sees_the_token_that_the_signer_gives(guarded, monkeypatch):
    chosen = login(guarded, "OAUTHBEARER", OAUTH_MSK_REGION="eu-central-1")
    settings = load_settings(
        {**ENVIRON, "HAPAX_DEDUP__REDIS_URL": ""} | {f"HAPAX_{k}": v for k, v in chosen.items()}
    )
    tokens, asked = tokens_of(guarded), []

    def sign(region: str) -> tuple[str, int]:
        asked.append(region)
        return tokens.token(), int((time.time() + 60) * 1000)

    stand_in(monkeypatch, sign)
    assert access(settings).text is None
    assert set(asked) == {"eu-central-1"}
    stand_in(monkeypatch, lambda _region: ("unsigned", int((time.time() + 60) * 1000)))
    assert access(settings).refused


# -- tokens that end ----------------------------------------------------------------------


@pytest.fixture
def tokens(guarded):
    """Tokens that live for ten seconds."""
    tokens = tokens_of(guarded)
    lifetime_s, tokens.lifetime_s = tokens.lifetime_s, 10
    yield tokens
    tokens.lifetime_s = lifetime_s


def _ends_with_one_producer(route: PipelineUnderTest, worker: WorkerProcess) -> None:
    route.write(*TEN)
    route.end(worker)
    assert not worker.lines("producer_rebuilt"), worker.text()
    assert len(route.outputs()) == 2 * len(TEN)


@pytest.mark.long
def test_a_token_file_is_read_again_before_its_token_ends(guarded, tokens, tmp_path):
    route, stop = _route(guarded, tmp_path / "file", way(guarded, "token file")), Event()
    written: list[float] = []

    def write() -> None:
        """Do what Kubernetes does: a new token long before the last one ends."""
        while not stop.is_set():
            new = tmp_path / "token.new"
            new.write_text(tokens.token(), encoding="ascii")
            new.replace(token_file(guarded))
            written.append(time.monotonic())
            stop.wait(3.0)

    writer = Thread(target=write)
    writer.start()
    try:
        await_(lambda: bool(written), WITHIN_S, lambda: "no token was written")
        guarded.rights.allow(tokens.client_id, *needed(route))
        worker = route.worker(INSTANCE)
        route.await_lag_0()
        since = len(written)
        await_(lambda: len(written) > since + 3 * tokens.lifetime_s / 3.0, WITHIN_S, worker.text)
        _ends_with_one_producer(route, worker)
    finally:
        stop.set()
        writer.join()
        route.close()


@pytest.mark.long
def test_tokens_are_fetched_anew_while_the_worker_works(guarded, tokens, tmp_path):
    route = _route(guarded, tmp_path / "tokens", way(guarded, "tokens"))
    try:
        guarded.rights.allow(tokens.client_id, *needed(route))
        worker = route.worker(INSTANCE)
        route.await_lag_0()
        served = tokens.served
        # Consumer, producer and whoever else asks have one each; the brokers end a session with
        # its token, and after 3 s in any case.
        await_(lambda: tokens.served >= served + 6, WITHIN_S, worker.text)
        _ends_with_one_producer(route, worker)
    finally:
        route.close()


# -- Who is not let in says why, in one sentence, and shows no secret to anybody.
# Its workers start together: each waits ten seconds for a broker to change its mind.


SECURITY = "KAFKA__SECURITY__"
ELSEWHERE = "127.0.0.2"
WRONG = "wr0ng-and-secret-4711"
Settings = dict[str, Any]

REFUSED = {
    "another password": (3, ["AUTHENTICATION"]),
    "another password, PLAIN": (3, ["AUTHENTICATION"]),
    "another secret for tokens": (3, ["token", "invalid_client"]),
    "a token file that is not there": (3, ["OAUTH_TOKEN_FILE: /nowhere: No such file"]),
    "no encryption": (3, ["no broker answered", "speaks TLS"]),
    "an unknown authority": (3, ["SSL", "certificate verify failed"]),
    "no certificate": (3, ["the client certificate is refused"]),
    "an expired certificate": (3, ["the client certificate is refused"]),
    "a stranger's certificate": (3, ["the client certificate is refused"]),
    "a missing file": (2, ["nowhere.pem", "No such file"]),
    "a wrong password of the key": (2, ["ssl.key"]),
    "Redis, another password": (3, ["user or password"]),
    "Redis, an unknown authority": (3, ["certificate is not trusted"]),
    "Redis, a missing file": (2, ["none.pem", "No such file"]),
    "a broker at another address": (3, ["SSL", "certificate verify failed"]),
    "Redis at another address": (3, ["certificate is not", ELSEWHERE]),
}
"""By what is wrong: the exit code, and what the reason says; below are their settings, in order."""


def _logins(guarded: Sandbox) -> Iterator[Settings]:
    plain, scram = way(guarded, "PLAIN").settings, way(guarded, "SCRAM-SHA-256").settings
    yield scram | {f"{SECURITY}PASSWORD": WRONG}
    yield plain | {f"{SECURITY}PASSWORD": WRONG}
    yield way(guarded, "tokens").settings | {f"{SECURITY}OAUTH_CLIENT_SECRET": WRONG}
    yield way(guarded, "token file").settings | {f"{SECURITY}OAUTH_TOKEN_FILE": "/nowhere"}
    yield scram | {f"{SECURITY}PROTOCOL": "sasl_plaintext", f"{SECURITY}CA_FILE": None}


def _certificates(guarded: Sandbox, folder: Path) -> Iterator[Settings]:
    authority, stranger = guarded.guard.authority, Authority(folder / "stranger")
    known = way(guarded, "certificate").settings
    old, strange = authority.issue("old", days=-1), stranger.issue("strange")
    ca, certificate, key = (
        f"{SECURITY}{name}" for name in ("CA_FILE", "CERTIFICATE_FILE", "KEY_FILE")
    )
    yield known | {ca: str(stranger.ca_file)}
    yield known | {certificate: None, key: None}
    for one in (old, strange):
        yield known | {certificate: str(one.certificate_file), key: str(one.key_file)}
    yield known | {ca: str(folder / "nowhere.pem")}
    yield way(guarded, "locked key").settings | {f"{SECURITY}KEY_PASSWORD": WRONG}


def _claims(guarded: Sandbox, folder: Path) -> Iterator[Settings]:
    url = guarded.redis.tls_url("nobody", WRONG)
    stranger = Authority(folder / "redis-stranger").ca_file
    for ca in (guarded.guard.authority.ca_file, stranger, folder / "none.pem"):
        yield _redis(guarded, url) | {"DEDUP__CA_FILE": str(ca)}


def _redis(guarded: Sandbox, url: str) -> Settings:
    return {"KAFKA__BOOTSTRAP_SERVERS": guarded.bootstrap_servers, "DEDUP__REDIS_URL": url}


def _elsewhere(guarded: Sandbox, stack: ExitStack) -> Iterator[Settings]:
    """Servers whose certificates are good, at an address that does not stand in them."""
    known = way(guarded, "certificate").settings
    server = "KAFKA__BOOTSTRAP_SERVERS"
    port = int(known[server].rpartition(":")[2])
    broker = stack.enter_context(Forwarder(port, ELSEWHERE))
    redis = stack.enter_context(Forwarder(guarded.redis.tls_port or 0, ELSEWHERE))
    yield known | {server: f"{ELSEWHERE}:{broker.port}"}
    ca = {"DEDUP__CA_FILE": str(guarded.guard.authority.ca_file)}
    yield _redis(guarded, f"rediss://nobody:{WRONG}@{ELSEWHERE}:{redis.port}/0") | ca


closed = a_route(b"1", servers="guarded", scope="module")
"""A route on which nothing ever starts; its record must still be there."""


@pytest.fixture(scope="module")
def refusals(guarded, closed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    wrong = [*_logins(guarded), *_certificates(guarded, folder), *_claims(guarded, folder)]
    with ExitStack() as stack:
        wrong += _elsewhere(guarded, stack)
        started = (closed.worker(f"w-{number}", **each) for number, each in enumerate(wrong))
        yield dict(zip(REFUSED, started, strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_who_is_not_let_in_leaves_with_the_reason_and_shows_no_secret(closed, refusals, name):
    worker, (code, words) = refusals[name], REFUSED[name]
    await_(lambda: not worker.running, WITHIN_S, worker.text)
    said = worker.text()
    assert worker.exit_code() == code, said
    reason = "\n".join(line for line in said.splitlines() if "service_started" not in line)
    assert all(word in reason for word in words), said
    assert WRONG not in said
    assert KEY_PASSWORD not in said
    assert "Traceback" not in said
    assert untouched(closed)


# -- A secret of its own in every place that can hold one, looked for in all that is written.
# No broker is needed: what a start, a refusal and a doctor without an answer say leaks first.


SAID_WITHIN_S = 60.0
PATHS = ("/", "/status.json", "/metrics", "/livez", "/readyz", "/startupz")
S = "HAPAX_KAFKA__SECURITY__"
MARK = "canary"

# Each has the mark in it, and no other letter in common that a test could mistake.
KAFKA_PROPERTIES = {
    "sasl.oauthbearer.extensions": "logicalCluster=lkc,secret=canary01",
    "client.rack": "http://u:canary02@rack.example/?token=canary03",
}

SPARK_PROPERTIES = {
    "spark.hadoop.fs.s3a.access.key": "canary04",
    "spark.hadoop.fs.s3a.secret.key": "canary05",
    "spark.hadoop.fs.azure.account.key.shop.blob.core.windows.net": "canary06",
    "spark.driver.extraJavaOptions": "-Xmx1g -Djavax.net.ssl.trustStorePassword=canary07",
    "spark.hadoop.orders.db": "jdbc:postgresql://db/orders?user=u&password=canary08",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "canary09",
    "spark.hadoop.fs.s3a.endpoint": "https://u:canary10@s3.example",
}


@pytest.fixture
def environ(tmp_path):
    ports = Ports()
    password = tmp_path / "password"
    password.write_text("canary11\n")
    kafka, redis = ports.reserve(), ports.reserve()
    yield {
        "PATH": os.environ["PATH"],
        "HAPAX_APP": "shop",
        "HAPAX_INSTANCE": "shop-0",
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka}",
        "HAPAX_INPUT__TOPICS": "in",
        "HAPAX_OUTPUT__TOPIC": "out",
        f"{S}PROTOCOL": "sasl_plaintext",
        f"{S}SASL_MECHANISM": "OAUTHBEARER",
        f"{S}OAUTH_TOKEN_URL": f"http://127.0.0.1:{kafka}/token?client=canary12#canary13",
        f"{S}OAUTH_CLIENT_ID": "shop",
        f"{S}OAUTH_CLIENT_SECRET": "canary14",
        f"{S}PASSWORD_FILE": str(password),
        f"{S}USERNAME": "shop",
        "HAPAX_DEDUP__REDIS_URL": f"redis://shop:canary15@127.0.0.1:{redis}/0?password=canary16",
        "HAPAX_KAFKA__PROPERTIES": json.dumps(KAFKA_PROPERTIES),
        "HAPAX_SPARK__PROPERTIES": json.dumps(SPARK_PROPERTIES),
        "HAPAX_SPARK__MASTER": "k8s://https://u:canary17@cluster.example:6443",
        "HAPAX_SPARK__CHECKPOINT": "s3a://id:canary18@orders/checkpoints",
        "AWS_SECRET_ACCESS_KEY": "canary19",
        "HAPAX_TELEMETRY__LOG_LEVEL": "debug",
        "HAPAX_TELEMETRY__ADDRESS": "127.0.0.1",
        "HAPAX_TELEMETRY__PORT": str(free_port()),
    }
    ports.close()


def said(environ: dict[str, str], *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hapax", *words],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SAID_WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_no_planted_secret_is_shown_by_commands_and_what_is_none_stays(environ, tmp_path):
    target = tmp_path / "support.tar.gz"
    seen = {
        " ".join(words): said(environ, *words)
        for words in (
            ["config", "show"],
            ["config", "show", "--json"],
            ["config", "check"],
            ["doctor", "--all"],
            ["doctor", "--json", "--bundle", str(target)],
            ["offsets"],
            ["doctor", "--acls"],
        )
    }
    assert {name: text for name, (_, text) in seen.items() if MARK in text} == {}
    shown = json.loads(seen["config show --json"][1])
    assert json.loads(shown["HAPAX_SPARK__PROPERTIES"]["value"]).keys() == SPARK_PROPERTIES.keys()
    assert "s3.example" in shown["HAPAX_SPARK__PROPERTIES"]["value"]
    assert shown["HAPAX_SPARK__CHECKPOINT"]["value"].endswith("@orders/checkpoints")
    assert seen["config check"][0] == 0, seen["config check"]
    with tarfile.open(target) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        content = {name: file.read() for name, file in files.items() if file is not None}
    assert len(content) >= 5
    assert {name for name, text in content.items() if MARK.encode() in text} == set()
    assert b"s3.example" in content["hapax-doctor/settings.json"]


def test_no_planted_secret_is_shown_by_a_start_that_finds_no_broker(environ):
    worker = subprocess.Popen(
        [sys.executable, "-m", "hapax", "run"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        pages = _pages(int(environ["HAPAX_TELEMETRY__PORT"]), worker)
    finally:
        worker.terminate()
        log = worker.communicate(timeout=SAID_WITHIN_S)[0].decode()
    first = json.loads(log.splitlines()[0])
    assert first["event"] == "service_started"
    assert "s3.example" in first["settings"]["HAPAX_SPARK__PROPERTIES"]
    assert MARK not in log
    assert {path for path, text in pages.items() if MARK in text} == set()
    assert set(pages) == set(PATHS)


def _pages(port: int, worker: subprocess.Popen[bytes]) -> dict[str, str]:
    until_s = time.monotonic() + SAID_WITHIN_S
    while worker.poll() is None and time.monotonic() < until_s:
        try:
            return {path: ask(port, path)[1] for path in PATHS}
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the worker never answered")


REFUSED_BY_OTHERS = [
    {"HAPAX_KAFKA__PROPERTIES": '{"nosuch.password": "canary"}'},
    {"HAPAX_KAFKA__PROPERTIES": '{"compression.type": "http://u:canary@h"}'},
    {"HAPAX_KAFKA__PROPERTIES": '{"linger.ms": "http://u:canary@h"}'},
    {"HAPAX_TRANSFORM": "tests.kit.canary_:f", "MY_TOKEN": "tests.kit.canary_"},
]


@pytest.mark.parametrize("wrong", REFUSED_BY_OTHERS, ids=" ".join)
def test_no_secret_is_repeated_from_the_refusal_of_a_library(environ, wrong):
    code, text = said(environ | wrong, "run")
    assert code == 2, text
    assert "service_stopped" in text
    assert MARK not in text

"""Workers on guarded servers: secrets that are never seen, files that change, Spark, sandbox."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from hapax.operations.doctor.acls import kafka_rights, store_rights
from hapax.sandbox import Sandbox
from hapax.settings import load_settings
from tests.kit import secured, topics
from tests.kit.commands import run_captured
from tests.kit.guarded import MUTUAL, PLAIN_PASSWORD, tokens_of, withdraw
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_process import environment, pipeline_process
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port
from tests.kit.proof import at_length
from tests.kit.spark_process import SPARK, SparkProcess
from tests.kit.topics import Given
from tests.kit.waiting import await_

# -- Secrets of workers at work, looked for wherever anybody can look; claims over TLS by the way.
# Its workers start together.


REDIS_PASSWORD = "redis%/& sesame"  # noqa: S105 - characters that an address must escape
WITHIN_S = 90.0
WAYS = ("locked key", "PLAIN", "SCRAM-SHA-512", "tokens")
PATHS = ("/", "/status.json", "/metrics", "/livez", "/readyz", "/startupz")

EVENTS = [
    Given(b"1", b"1", (("message-id", b"a"),)),
    Given(b"2", b"2", (("message-id", b"b"),)),
    Given(b"1", b"1", (("message-id", b"a"),)),
]


class AtWork(NamedTuple):
    """A worker that runs, and its own view of the settings."""

    route: PipelineUnderTest
    worker: WorkerProcess
    port: int
    settings: dict[str, Any]


def _start(guarded: Sandbox, folder: Path, name: str) -> AtWork:
    chosen = secured.way(guarded, name)
    folder.mkdir()
    port = free_port()
    ours = guarded.guard.authority.issue(f"redis-{folder.name}", password=secured.KEY_PASSWORD)
    user = f"claims-{folder.name}"
    settings: dict[str, Any] = chosen.settings | {
        "DEDUP__REDIS_URL": guarded.redis.tls_url(user, REDIS_PASSWORD),
        "DEDUP__CA_FILE": str(guarded.guard.authority.ca_file),
        "DEDUP__CERTIFICATE_FILE": str(ours.certificate_file),
        "DEDUP__KEY_FILE": str(ours.key_file),
        "DEDUP__KEY_PASSWORD": secured.KEY_PASSWORD,
        "TELEMETRY__PORT": str(port),
        "TELEMETRY__LOG_LEVEL": "debug",
    }
    route = PipelineUnderTest(guarded, folder, **settings)
    route.create()
    route.write(*EVENTS)
    rights = store_rights(secured.settings_of(route))
    assert rights is not None
    guarded.redis.allow(rights.line, REDIS_PASSWORD)
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *secured.needed(route))
    return AtWork(route, route.worker(secured.INSTANCE), port, settings)


@pytest.fixture(scope="module")
def at_work(guarded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    started = {name: _start(guarded, folder / name.replace(" ", "-"), name) for name in WAYS}
    yield started
    for one in started.values():
        one.route.close()


@pytest.mark.parametrize("name", WAYS)
def test_no_secret_is_seen_anywhere_while_the_worker_works(guarded, at_work, name):
    route, worker, port, _ = at_work[name]
    await_(lambda: bool(worker.lines("transaction_committed")), WITHIN_S, worker.text)
    route.await_lag_0()
    seen = {path: ask(port, path)[1] for path in PATHS}
    assert metric(seen["/metrics"], "hapax_records_skipped_total") == 1, "the claim of a twin"
    assert worker.terminate() == 0, worker.text()
    seen["log"] = worker.text()
    seen |= _said(route, ["config", "show"])
    assert "***" in seen["config show"]
    assert len(route.outputs()) == 2
    assert _leaks(guarded, seen) == []


@pytest.mark.long
def test_no_secret_is_seen_in_what_commands_say(guarded, at_work):
    route = at_work["SCRAM-SHA-512"].route
    asked = [["doctor", "--all"], ["offsets"], ["claims", "show", "a"], ["transactions", "list"]]
    wrong = {"KAFKA__SECURITY__PASSWORD": "another sesame", "DEDUP__KEY_PASSWORD": "wrong sesame"}
    said = _said(route, *asked)
    refused = _said(route, *asked, **wrong)
    assert _leaks(guarded, said) == _leaks(guarded, refused) == []
    assert "Traceback" not in "".join([*said.values(), *refused.values()])
    assert route.target in said["offsets"] + said["transactions list"] + said["doctor --all"]


def _said(route: PipelineUnderTest, *commands: list[str], **settings: Any) -> dict[str, str]:
    """Run commands beside each other; return what each said."""
    environment = route.environment(**settings) | {"HAPAX_INSTANCE": secured.INSTANCE}
    started = {
        " ".join(words): subprocess.Popen(
            [sys.executable, "-m", "hapax", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for words in commands
    }
    return {name: process.communicate(timeout=WITHIN_S)[0] for name, process in started.items()}


def _leaks(guarded: Sandbox, seen: dict[str, str]) -> list[tuple[str, str]]:
    # However it is escaped: each password has this word in it, and each token begins so.
    secrets = {"sesame", "eyJ", PLAIN_PASSWORD, tokens_of(guarded).client_secret}
    return [(where, one) for where, text in seen.items() for one in secrets if one in text]


# -- Passwords and certificates that change in their files while workers are at work.
# Its workers start together.


OLD, NEW = "old sesame", "new sesame"


def events(numbers: range) -> list[Given]:
    return [Given(b"%d" % one, b"%d" % one, (("message-id", b"%d" % one),)) for one in numbers]


class Renewing(NamedTuple):
    """A worker that has processed ten records."""

    route: PipelineUnderTest
    worker: WorkerProcess
    folder: Path

    def finish(self) -> None:
        """Process ten more with what the files hold now; nothing is lost, doubled or shown."""
        self.route.write(*events(range(10, 20)))
        self.route.end(self.worker)
        values = sorted(int(record.value or b"") for record in self.route.outputs())
        assert values == list(range(20))
        assert "sesame" not in self.worker.text()


def renewed(worker: WorkerProcess) -> int:
    return sum(line["cause"] == "files" for line in worker.lines("producer_rebuilt"))


def put(file: Path, text: str) -> None:
    """Change a file as a mount of secrets does: all at once."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="ascii")
    new.replace(file)


def _started(guarded: Sandbox, folder: Path, settings: dict[str, Any], *users: str) -> Renewing:
    route = PipelineUnderTest(guarded, folder, **settings)
    route.create()
    route.write(*events(range(10)))
    guarded.rights.allow(users[0], *secured.needed(route))
    if "DEDUP__REDIS_URL_FILE" in settings:
        _allow_claims(guarded, route, OLD)
    return Renewing(route, route.worker(secured.INSTANCE), folder)


def _allow_claims(guarded: Sandbox, route: PipelineUnderTest, password: str) -> None:
    rights = store_rights(secured.settings_of(route))
    assert rights is not None
    guarded.redis.allow(rights.line, password)


def _by_password(guarded: Sandbox, folder: Path) -> Renewing:
    user = "renewed"
    guarded.rights.set_password(user, OLD)
    put(folder / "password", OLD)
    put(folder / "redis", guarded.redis.tls_url("renewed-claims", OLD))
    files = {"PASSWORD_FILE": str(folder / "password")}
    settings = secured.login(guarded, "SCRAM-SHA-256", USERNAME=user, **files) | {
        "DEDUP__REDIS_URL_FILE": str(folder / "redis"),
        "DEDUP__CA_FILE": str(guarded.guard.authority.ca_file),
    }
    return _started(guarded, folder, settings, user)


def _by_certificate(guarded: Sandbox, folder: Path) -> Renewing:
    _issue(guarded, folder, "renewed-old")
    files = {"CERTIFICATE_FILE": str(folder / "c.pem"), "KEY_FILE": str(folder / "c.key")}
    settings = secured.security(guarded, MUTUAL, PROTOCOL="ssl", **files)
    return _started(guarded, folder, settings, "renewed-old")


def _issue(guarded: Sandbox, folder: Path, user: str) -> None:
    """Write a certificate and then its key, with a moment in which they do not fit."""
    made = guarded.guard.authority.issue(user)
    put(folder / "c.pem", made.certificate_file.read_text())
    put(folder / "c.key", made.key_file.read_text())


@pytest.fixture(scope="module")
def workers(guarded, tmp_path_factory):
    make = {"password": _by_password, "certificate": _by_certificate}
    started = {name: one(guarded, tmp_path_factory.mktemp(name)) for name, one in make.items()}
    yield started
    for one in started.values():
        one.route.close()


def test_a_certificate_that_changes_is_shown_without_a_restart(guarded, workers):
    one = workers["certificate"]
    one.route.await_lag_0()
    assert renewed(one.worker) == 0
    rights = secured.needed(one.route)
    guarded.rights.allow("renewed-new", *rights)
    _issue(guarded, one.folder, "renewed-new")
    await_(lambda: renewed(one.worker), WITHIN_S, one.worker.text)
    # Whoever still shows the old one may do nothing any more.
    assert withdraw(guarded.rights, "renewed-old", *rights) == len(rights)
    one.finish()
    assert renewed(one.worker) == 1
    (told,) = one.worker.lines("client_files_changed")
    assert told["files"] == [str(one.folder / "c.key"), str(one.folder / "c.pem")]


def test_passwords_that_change_are_used_without_a_restart(guarded, workers):
    one = workers["password"]
    one.route.await_lag_0()
    assert renewed(one.worker) == 0
    guarded.rights.set_password("renewed", NEW)
    _allow_claims(guarded, one.route, NEW)
    with redis.Redis.from_url(guarded.redis.url) as admin:
        assert admin.execute_command("CLIENT", "KILL", "USER", "renewed-claims") >= 1
    put(one.folder / "redis", guarded.redis.tls_url("renewed-claims", NEW))
    put(one.folder / "password", NEW)
    await_(lambda: renewed(one.worker), WITHIN_S, one.worker.text)
    one.finish()
    assert renewed(one.worker) == 1
    assert not one.worker.lines("claims_passed")


def test_a_worker_keeps_and_reads_back_its_state_with_exactly_the_printed_rights(route_of, guarded):
    chosen = secured.way(guarded, "SCRAM-SHA-256")
    route = route_of(servers=guarded, TRANSFORM="tests.kit.keeping:count", **chosen.settings)
    guarded.create_topic(f"{route.app}-state", config={"cleanup.policy": "compact"})
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *secured.needed(route))
    for turn in (b"1", b"2"):
        route.write(Given(b"x", b"key"))
        route.run_to_end()
        assert [record.value for record in route.outputs()][-1] == turn


# -- Spark on encrypted ways, with the least rights: our clients in tasks, and Java's in the JVM.


SPARK_WITHIN_S = 180.0
TEN = [b"%d" % number for number in range(10)]
WIDE = [b"%d" % number + bytes(300_000) for number in range(10)]
"""So many bytes that they are published in parts, by two tasks."""


@pytest.mark.long
def test_spark_on_records_does_its_work_over_tls_with_exactly_the_printed_rights(route_of, guarded):
    chosen = secured.way(guarded, "SCRAM-SHA-256")
    route = route_of(servers=guarded, kind=SparkProcess, **chosen.settings)
    route.write(*TEN)
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *secured.needed(route, ENGINE="spark"))
    driver = route.run_to_end()
    assert secured.SCRAM_PASSWORD not in driver.text()
    assert sorted(record.value or b"" for record in route.outputs()) == TEN
    assert route.lag() == 0


@pytest.mark.long
@pytest.mark.rounds
@pytest.mark.parametrize(
    ("name", "publish", "each"),
    [
        pytest.param("certificate", "together", TEN, marks=at_length),
        pytest.param("SCRAM-SHA-512", "together", TEN, marks=at_length),
        ("SCRAM-SHA-512", "parallel", WIDE),
        pytest.param("tokens", "together", TEN, marks=at_length),
        pytest.param("token file", "together", TEN, marks=at_length),
    ],
)
def test_a_dataframe_pipeline_does_its_work_over_tls_with_exactly_the_printed_rights(
    guarded, unique, tmp_path, name, publish, each
):
    chosen, given, out = secured.way(guarded, name), unique("in"), unique("out")
    guarded.create_topic(given, partitions=2)
    guarded.create_topic(out)
    spread = [topics.Given(value, partition=n % 2) for n, value in enumerate(each)]
    topics.produce(guarded.bootstrap_servers, given, *spread)
    more = {f"HAPAX_{variable}": text for variable, text in chosen.settings.items()}
    at_end = {"HAPAX_STOP_AFTER__AT_END": "true", "HAPAX_SPARK__PUBLISH": publish}
    values = environment(guarded, out, given, out, tmp_path / "c", **more, **at_end)
    ours = {key: text for key, text in (SPARK | values).items() if key.startswith("HAPAX_")}
    rights = kafka_rights(load_settings(ours | {"HAPAX_INSTANCE": secured.INSTANCE}))
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *(right for right in rights if not right.optional))
    driver = pipeline_process(tmp_path, values)
    driver.start()
    try:
        await_(lambda: not driver.running, SPARK_WITHIN_S, driver.text)
        code = driver.exit_code()
        said = driver.text()
    finally:
        driver.close()
    assert code == 0, said
    assert secured.SCRAM_PASSWORD not in said
    assert tokens_of(guarded).client_secret not in said
    assert sorted(
        record.value or b"" for record in topics.read_back(guarded.bootstrap_servers, out)
    ) == sorted(2 * value for value in each)


# -- ``hapax sandbox up --secure``: what it prints leads a worker in, and holds no secret --

RUN_S = 120.0


@pytest.mark.long
def test_what_the_secure_sandbox_prints_leads_a_worker_in():
    command = [sys.executable, "-m", "hapax"]
    options = ["--secure", "--json", "--topic", "orders:1", "--topic", "clean:1"]
    sandbox = subprocess.Popen([*command, "sandbox", "up", *options], stdout=subprocess.PIPE)
    try:
        assert sandbox.stdout is not None
        variables = json.loads(sandbox.stdout.readline())
        files = [Path(text) for name, text in variables.items() if name.endswith("_FILE")]
        kept = {file.name: file.read_text().strip() for file in files}
        modes = {file.name: file.stat().st_mode & 0o077 for file in files}
        worker = {
            "HAPAX_APP": "shop",
            "HAPAX_INPUT__TOPICS": "orders",
            "HAPAX_OUTPUT__TOPIC": "clean",
            "HAPAX_STOP_AFTER__AT_END": "true",
            "HAPAX_TELEMETRY__PORT": "0",
        }
        done = run_captured(
            [*command, "run"], env={**os.environ, **variables, **worker}, timeout=RUN_S
        )
    finally:
        sandbox.send_signal(signal.SIGTERM)
        sandbox.communicate(timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "kafka-password" in kept
    assert [name for name in ("kafka-password", "redis-url") if modes[name]] == []
    password = kept["kafka-password"]
    assert password in kept["redis-url"]
    assert password not in said + json.dumps(variables)

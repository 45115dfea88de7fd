"""Clients are built anew when their files change, and what was in work is read again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.engines.monitors import FileWatch
from hapax.kafka.properties import consumer_properties
from hapax.kafka.tokens import file_digests, files_problem
from hapax.sandbox.guard import Authority
from hapax.settings import load_settings
from hapax.settings.secrets import Strike, secrets_of
from hapax.testing.source import InjectedFault
from tests.kit.doctor import ENVIRON
from tests.kit.doubles import Script, Told
from tests.kit.pipeline import Pipeline, opened, taken

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.settings import Settings
    from hapax.telemetry.events import Events

S = "HAPAX_KAFKA__SECURITY__"
LOGIN = {f"{S}PROTOCOL": "sasl_ssl", f"{S}SASL_MECHANISM": "PLAIN", f"{S}USERNAME": "shop"}


@pytest.fixture
def password(tmp_path):
    file = tmp_path / "password"
    file.write_text("first-secret\n")
    return file


def login(password: Path) -> Settings:
    return load_settings({**ENVIRON, **LOGIN, f"{S}PASSWORD_FILE": str(password)})


def test_a_client_gets_the_password_that_its_file_holds_and_log_lines_none_that_it_held(password):
    settings = login(password)
    properties = consumer_properties(settings)
    assert str(properties["sasl.password"]) == "first-secret"
    assert "first" not in repr(properties)
    strike = Strike(secrets_of(settings))
    password.write_text("second-secret\n")
    assert str(properties["sasl.password"]) == "second-secret"
    assert strike("second-secret") == "second-secret"
    strike.learn(secrets_of(settings))
    assert "secret" not in strike("first-secret second-secret")


@pytest.mark.parametrize("content", ["", "\n", "zero\0byte", None])
def test_a_password_file_that_cannot_be_used_leaves_the_password_as_it_was(password, content):
    settings = login(password)
    if content is None:
        password.unlink()
    else:
        password.write_text(content)
    assert str(consumer_properties(settings)["sasl.password"]) == "first-secret"
    assert "PASSWORD_FILE" in files_problem(settings)


class Watched:
    """A watch of a certificate and its key, whose looks are counted by hand."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.certificate, self.key = folder / "our.pem", folder / "our.key"
        self.write("first")
        files = {
            f"{S}PROTOCOL": "ssl",
            f"{S}CA_FILE": str(self.authority.ca_file),
            f"{S}CERTIFICATE_FILE": str(self.certificate),
            f"{S}KEY_FILE": str(self.key),
        }
        settings = load_settings({**ENVIRON, **files})
        self.told, self.changed = Told(), list[list[str]]()
        self.watch = FileWatch(
            cast("Events", self.told),
            lambda: file_digests(settings),
            lambda: files_problem(settings),
            self.changed.append,
        )

    def write(self, name: str, *, key: bool = True) -> None:
        made = self.authority.issue(name)
        self.certificate.write_bytes(made.certificate_file.read_bytes())
        if key:
            self.key.write_bytes(made.key_file.read_bytes())

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.watch.look()


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path)


def test_a_certificate_without_its_key_is_refused_once_and_used_when_the_key_is_there(watched):
    watched.write("second", key=False)
    watched.look(4)
    assert watched.changed == []
    (refused,) = watched.told.of("client_files_refused")
    assert refused["files"] == [str(watched.certificate)]
    assert "mismatch" in refused["problem"].lower()
    watched.write("third")
    watched.look(2)
    assert len(watched.changed) == 1


def test_a_new_certificate_is_told_once_when_two_looks_have_seen_it_and_none_without_it(watched):
    kept = watched.key.read_bytes()
    watched.key.unlink()
    watched.look()
    watched.key.write_bytes(kept)
    watched.look(3)
    assert watched.changed == []
    assert watched.told.names() == []
    watched.write("second")
    watched.look()
    assert watched.changed == []
    watched.look(3)
    assert watched.changed == [sorted([str(watched.certificate), str(watched.key)])]


def filled(script: Script) -> Pipeline:
    pipeline = Pipeline(faults=script)
    pipeline.write(*(b"%d" % number for number in range(20)))
    return opened(pipeline)


def test_between_two_batches_consumer_and_producer_are_built_anew():
    script = Script()
    pipeline = filled(script)

    def change() -> None:
        pipeline.lifecycle.outdated = True

    script.at("commit", 1, change)
    opens = script.steps.count("open")
    pipeline.run(open_first=False)
    assert not pipeline.lifecycle.outdated
    assert script.steps.count("reopen") == 1
    assert script.steps.count("open") == opens + 1
    assert [each["cause"] for each in pipeline.told.of("producer_rebuilt")] == ["files"]
    assert "batch_aborted" not in pipeline.told.names()
    pipeline.judge()


def test_clients_are_built_anew_in_an_outage_that_their_old_files_keep_up():
    script = Script(committed=[InjectedFault("aborted")] * 1000)
    pipeline = filled(script)
    batch = taken(pipeline)

    def then(step: str) -> None:
        if script.steps.count("committed") == 10:
            pipeline.lifecycle.outdated = True
        if step == "reopen":
            script.faults.clear()

    script.then = then
    pipeline.recovery.recover(BatchAbortedError("unknown", resolved=False), batch)
    assert script.steps.count("reopen") == 1
    pipeline.run_judged(open_first=False)


def test_who_is_told_to_stop_builds_no_new_clients():
    script = Script()
    pipeline = filled(script)
    pipeline.lifecycle.outdated = True
    pipeline.lifecycle.stop("SIGTERM")
    pipeline.recovery.check_clients()
    pipeline.run(open_first=False)
    assert script.steps.count("reopen") == 0
    assert "batch_abandoned" not in pipeline.told.names()


def test_files_are_looked_at_by_a_thread_of_their_own_until_it_is_stopped():
    looks = threading.Semaphore(0)

    def digests() -> dict[str, bytes]:
        looks.release()
        return {}

    watch = FileWatch(cast("Events", Told()), digests, str, lambda _paths: None, interval_s=0.001)
    watch.start()
    assert watch.daemon
    for _ in range(3):
        assert looks.acquire(timeout=20)
    watch.stop()
    watch.join(20)
    assert not watch.is_alive()

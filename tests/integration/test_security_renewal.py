"""Passwords and certificates that change in their files while workers are at work.

The workers of this file start together.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

from hapax.operations.doctor.acls import store_rights
from hapax.sandbox import Sandbox
from tests.kit.guarded import MUTUAL
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.secured import INSTANCE, login, needed, security, settings_of
from tests.kit.topics import Given
from tests.kit.waiting import await_

OLD, NEW = "old sesame", "new sesame"
WITHIN_S = 60.0


def events(numbers: range) -> list[Given]:
    return [Given(b"%d" % one, b"%d" % one, (("message-id", b"%d" % one),)) for one in numbers]


class AtWork(NamedTuple):
    """A worker that has processed ten records."""

    route: PipelineUnderTest
    worker: WorkerProcess
    folder: Path

    def finish(self) -> None:
        """Process ten more with what the files hold now; nothing is lost, doubled or shown."""
        self.route.write(*events(range(10, 20)))
        self.route.await_lag_0()
        assert self.worker.terminate() == 0, self.worker.text()
        values = sorted(int(record.value or b"") for record in self.route.outputs())
        assert values == list(range(20))
        assert "sesame" not in self.worker.text()


def renewed(worker: WorkerProcess) -> int:
    """Return how often clients were built anew because of their files."""
    return sum(line["cause"] == "files" for line in worker.lines("producer_rebuilt"))


def put(file: Path, text: str) -> None:
    """Change a file as a mount of secrets does: all at once."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, encoding="ascii")
    new.replace(file)


def _started(guarded: Sandbox, folder: Path, settings: dict[str, Any], *users: str) -> AtWork:
    route = PipelineUnderTest(guarded, folder, **settings)
    route.create()
    route.write(*events(range(10)))
    guarded.rights.allow(users[0], *needed(route))
    if "DEDUP__REDIS_URL_FILE" in settings:
        _allow_claims(guarded, route, OLD)
    return AtWork(route, route.worker(INSTANCE), folder)


def _allow_claims(guarded: Sandbox, route: PipelineUnderTest, password: str) -> None:
    rights = store_rights(settings_of(route))
    assert rights is not None
    guarded.redis.allow(rights.line, password)


def _by_password(guarded: Sandbox, folder: Path) -> AtWork:
    user = "renewed"
    guarded.rights.set_password(user, OLD)
    put(folder / "password", OLD)
    put(folder / "redis", guarded.redis.tls_url("renewed-claims", OLD))
    files = {"PASSWORD_FILE": str(folder / "password")}
    settings = login(guarded, "SCRAM-SHA-256", USERNAME=user, **files) | {
        "DEDUP__REDIS_URL_FILE": str(folder / "redis"),
        "DEDUP__CA_FILE": str(guarded.guard.authority.ca_file),
    }
    return _started(guarded, folder, settings, user)


def _by_certificate(guarded: Sandbox, folder: Path) -> AtWork:
    _issue(guarded, folder, "renewed-old")
    files = {"CERTIFICATE_FILE": str(folder / "c.pem"), "KEY_FILE": str(folder / "c.key")}
    settings = security(guarded, MUTUAL, PROTOCOL="ssl", **files)
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
    rights = needed(one.route)
    guarded.rights.allow("renewed-new", *rights)
    _issue(guarded, one.folder, "renewed-new")
    await_(lambda: renewed(one.worker), WITHIN_S, one.worker.text)
    # Whoever still shows the old one may do nothing any more.
    assert guarded.rights.withdraw("renewed-old", *rights) == len(rights)
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

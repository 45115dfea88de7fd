"""Secrets of workers at work, looked for wherever anybody can look; claims over TLS by the way.

All workers of this file start together.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hapax.operations.doctor.acls import store_rights
from hapax.sandbox import Sandbox
from tests.kit.guarded import PLAIN_PASSWORD, tokens_of
from tests.kit.managed_process import WorkerProcess
from tests.kit.pipeline_under_test import PipelineUnderTest, metric
from tests.kit.probes import ask, free_port
from tests.kit.secured import (
    INSTANCE,
    KEY_PASSWORD,
    needed,
    settings_of,
    way,
)
from tests.kit.topics import Given
from tests.kit.waiting import await_

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
    chosen = way(guarded, name)
    folder.mkdir()
    port = free_port()
    ours = guarded.guard.authority.issue(f"redis-{folder.name}", password=KEY_PASSWORD)
    user = f"claims-{folder.name}"
    settings: dict[str, Any] = chosen.settings | {
        "DEDUP__REDIS_URL": guarded.redis.tls_url(user, REDIS_PASSWORD),
        "DEDUP__CA_FILE": str(guarded.guard.authority.ca_file),
        "DEDUP__CERTIFICATE_FILE": str(ours.certificate_file),
        "DEDUP__KEY_FILE": str(ours.key_file),
        "DEDUP__KEY_PASSWORD": KEY_PASSWORD,
        "TELEMETRY__PORT": str(port),
        "TELEMETRY__LOG_LEVEL": "debug",
    }
    route = PipelineUnderTest(guarded, folder, **settings)
    route.create()
    route.write(*EVENTS)
    rights = store_rights(settings_of(route))
    assert rights is not None
    guarded.redis.allow(rights.line, REDIS_PASSWORD)
    assert chosen.user is not None
    guarded.rights.allow(chosen.user, *needed(route))
    return AtWork(route, route.worker(INSTANCE), port, settings)


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
    environment = route.environment(**settings) | {"HAPAX_INSTANCE": INSTANCE}
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

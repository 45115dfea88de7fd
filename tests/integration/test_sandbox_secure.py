"""``hapax sandbox up --secure``: what it prints leads a worker in, and holds no secret."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.commands import run_captured

pytestmark = pytest.mark.real

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

"""A broker's file that does nothing: the cluster's dynamic default precedes it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hapax.sandbox import Sandbox
from hapax.sandbox.broker import java
from tests.kit.commands import run_captured
from tests.kit.pipeline_under_test import PipelineUnderTest


@pytest.fixture(scope="module")
def ignoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster that was formatted with 1, and whose broker's file says 2 since."""
    folder = tmp_path_factory.mktemp("sandbox")
    with Sandbox(redis=False, data_dir=folder):
        pass
    more = {"min.insync.replicas": "2"}
    with Sandbox(redis=False, data_dir=folder, properties=more) as sandbox:
        yield sandbox


def durability(route: PipelineUnderTest) -> list[dict[str, Any]]:
    done = run_captured(
        [sys.executable, "-m", "hapax", "doctor", "--json"], env=route.environment()
    )
    findings = json.loads(done.stdout)["findings"]
    return [one for one in findings if one["check"] == "durability" and "files" in one["saw"]]


def test_what_the_file_says_and_what_is_served_are_named_with_what_works(
    ignoring: Sandbox, tmp_path: Path
):
    route = PipelineUnderTest(ignoring, tmp_path)
    route.create()
    [found] = durability(route)
    assert found["verdict"] == "WARN"
    assert "files say min.insync.replicas=2, the cluster serves 1" in found["saw"]
    assert "--entity-default --add-config min.insync.replicas=2" in found["fix"]

    named = (
        "--entity-type",
        "brokers",
        "--entity-default",
        "--add-config",
        "min.insync.replicas=2",
    )
    words = ("--bootstrap-server", ignoring.bootstrap_servers, "--alter", *named)
    done = run_captured([str(word) for word in java("kafka.admin.ConfigCommand", *words)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert durability(route) == [], "the fix that is named works"

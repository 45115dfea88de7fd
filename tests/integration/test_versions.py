"""Other versions of Kafka in the sandbox."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hapax.commands.tree import app
from hapax.sandbox import Sandbox
from tests.kit.pipeline_under_test import PipelineUnderTest


@pytest.fixture(scope="module")
def former():
    page = (Path(__file__).parents[2] / "docs/versions.md").read_text()
    [fetch] = re.findall(r"(?m)^\$ hapax (sandbox fetch .+)$", page)
    done = CliRunner().invoke(app, fetch.split())
    assert "Kafka 3.9" in done.stdout, done.output
    with Sandbox(redis=False, kafka="3.9") as sandbox:
        yield sandbox


@pytest.fixture
def route(former, tmp_path):
    route = PipelineUnderTest(former, tmp_path)
    route.create()
    yield route
    route.close()


@pytest.mark.real
def test_the_oldest_supported_kafka_takes_records_through(former, route):
    command = Path(f"/proc/{former.kafka.brokers[0].pid}/cmdline").read_text()
    assert "kafka-3.9.2" in command
    route.write(b"one", b"two")
    route.run_to_end()
    assert [record.value for record in route.outputs()] == [b"one", b"two"]

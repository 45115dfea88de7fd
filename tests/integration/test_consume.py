"""``hapax consume`` on a real broker: what a ``read_committed`` reader finds, and no more."""

import json

import pytest
from typer.testing import CliRunner, Result

from hapax.commands.tree import app
from hapax.sandbox import Sandbox
from tests.kit.managed_process import required
from tests.kit.topics import produce, produce_aborted, produce_committed


@pytest.fixture
def topic(sandbox, unique):
    name = unique("read")
    sandbox.create_topic(name, 1)
    produce_committed(sandbox.bootstrap_servers, name, b"one")
    produce_aborted(sandbox.bootstrap_servers, name, b"never")
    produce(sandbox.bootstrap_servers, name, b"two", b"\x1b[31m\xff")
    return name


def consume(sandbox: Sandbox, *words: str) -> Result:
    settings = required(app="reader", servers=sandbox.bootstrap_servers, INSTANCE="reader-0")
    return CliRunner().invoke(app, ["consume", *words], env=settings)


def test_aborted_records_are_left_out_and_bytes_that_a_terminal_would_obey_are_escaped(
    sandbox, topic
):
    done = consume(sandbox, topic)
    assert done.exit_code == 0, done.output
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    assert [line[2] for line in lines] == ["one", "two", "\\x1b[31m\\xff"]
    assert all(line[0].startswith(f"{topic}/0/") for line in lines)


def test_uncommitted_reads_them_and_max_ends_it(sandbox, topic):
    done = consume(sandbox, topic, "--uncommitted", "--max", "2")
    assert [line.split("  ")[2] for line in done.stdout.splitlines()] == ["one", "never"]


def test_json_has_coordinates_headers_and_bytes_that_are_no_text(sandbox, topic):
    done = consume(sandbox, topic, "--json", "--from", "1h")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["value"] for record in records] == ["one", "two", {"base64": "G1szMW3/"}]
    assert set(records[0]) == {
        "topic", "partition", "offset", "time", "timestamp_ms", "headers", "key", "value",
    }  # fmt: skip


def test_from_the_end_brings_nothing_and_ends(sandbox, topic):
    done = consume(sandbox, topic, "--from", "end")
    assert (done.exit_code, done.stdout) == (0, "")


def test_a_topic_that_is_missing_is_a_sentence_and_exit_code_3(sandbox):
    done = consume(sandbox, "no-such-topic")
    assert done.exit_code == 3
    assert done.stderr == "topic no-such-topic does not exist or may not be read\n"

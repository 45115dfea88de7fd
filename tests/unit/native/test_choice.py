"""Which record path a process takes, and why."""

import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, libversion

from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.records import Output
from hapax.kafka import native
from hapax.kafka.native import Choice
from tests.kit.commands import run_captured
from tests.kit.managed_process import required
from tests.kit.native import Raw, prepared
from tests.kit.parts import settings_of

hapax_fast: Any = pytest.importorskip("hapax_fast")


@pytest.fixture(autouse=True)
def _found_anew() -> Iterator[None]:
    native._found.cache_clear()
    yield
    native._found.cache_clear()


def chosen(fast: str = "auto", ids: str = "key") -> Choice:
    more = {"HAPAX_DEDUP__ID": ids} if ids else {}
    return native.record_path(settings_of("broker:1", "in", "out", "app", HAPAX_FAST=fast, **more))


def refusal(ids: str = "key") -> str:
    with pytest.raises(ConfigurationError) as caught:
        chosen("on", ids)
    (problem,) = caught.value.problems
    assert problem.startswith("HAPAX_FAST=on, but ")
    assert problem.endswith("set HAPAX_FAST=auto")
    return problem


@pytest.mark.parametrize("fast", ["auto", "on"])
@pytest.mark.parametrize("ids", ["", "key", "header:ID,cloudevents,key"])
def test_what_is_installed_and_tested_is_used(fast, ids):
    choice = chosen(fast, ids)
    assert choice.path is not None
    assert str(choice) == f"native (librdkafka {libversion()[0]})"
    assert str(chosen("off")) == "python (HAPAX_FAST=off)"


@pytest.mark.parametrize(
    "ids",
    [
        "json:/id",
        "header:id,json:/id",
        "header:hapax-id",
        "header:Hapax-Source",
        "header:n\u00e4me",
    ],
)
def test_ids_that_need_python_take_the_reference(ids):
    foreign = ids.rsplit(",", maxsplit=1)[-1]
    assert str(chosen("auto", ids)) == f"python (HAPAX_DEDUP__ID={foreign} is looked up in Python)"
    assert foreign in refusal(ids)


def test_nine_sources_of_ids_take_the_reference():
    ids = [f"header:h{number}" for number in range(9)]
    assert chosen("auto", ",".join(ids[:8])).path is not None
    assert chosen("auto", ",".join(ids)).path is None


DIGESTS = "hapax_fast computes other digests than hashlib"
RELEASE = "hapax_fast is that of another release (interface 99, not 3)"
UNTESTED = "librdkafka 2.99.1 is not among those tested (2.16.x)"


@pytest.mark.parametrize(
    ("where", "name", "value", "reason", "words"),
    [
        (native, "libversion", lambda: ("2.99.1", 0), UNTESTED, "2.99.1"),
        (hapax_fast, "INTERFACE", 99, f"{RELEASE}: install the one of this release", RELEASE),
        (hapax_fast, "digest", lambda _salt, _id: bytes(16), DIGESTS, "hashlib"),
    ],
)
def test_what_is_not_tested_or_of_another_release_or_digest_takes_the_reference(
    monkeypatch, where, name, value, reason, words
):
    monkeypatch.setattr(where, name, value)
    assert chosen().reason == reason
    assert words in refusal()


def test_without_the_module_the_reference_is_taken(monkeypatch):
    monkeypatch.setitem(sys.modules, "hapax_fast", None)
    assert chosen().path is None
    assert "not installed" in chosen().reason
    assert "not installed" in refusal()


def test_a_module_that_cannot_be_loaded_is_told_with_its_error(monkeypatch):
    def broken(_name: str) -> object:
        raise ImportError("undefined symbol: x", name="hapax_fast._native")

    monkeypatch.setattr(native, "import_module", broken)
    assert chosen().reason == "hapax_fast: undefined symbol: x"


def test_a_plugin_that_is_not_loaded_takes_the_reference(monkeypatch):
    def refusing(_properties: object) -> object:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "no plugins here"))

    monkeypatch.setattr(native, "Producer", refusing)
    assert chosen().reason == "librdkafka does not load the plugin: no plugins here"


def test_a_worker_that_must_be_native_and_cannot_ends_with_2():
    values = required(DEDUP__ID="json:/id", FAST="on", TELEMETRY__PORT="0")
    ended = run_captured(
        [sys.executable, "-m", "hapax", "run"], env=os.environ | values, timeout=60
    )
    assert ended.returncode == 2, ended.stderr
    assert "json:/id is looked up in Python" in ended.stdout + ended.stderr


def test_a_difference_in_the_first_records_is_told_and_ends_the_native_path(stage, monkeypatch):
    ((records, _batch),) = stage.play([Raw(b"k", b"v")], ["key"])
    messages = prepared(records, [(Output(b"x"),)])
    right = chosen().path
    assert right is not None
    right.prove(messages)
    assert right.left == ""
    assert right.unproven == native.PROVEN_AFTER - 1
    wrong = native.NativePath(
        SimpleNamespace(preview=lambda *_values: (b"other", None, -1, 0, [])), ["key"]
    )
    with pytest.raises(BatchAbortedError, match="taken again in Python"):
        wrong.prove(messages)
    assert wrong.left == "the native path has other outputs than the reference"

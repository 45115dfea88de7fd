from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from hapax.sandbox import Sandbox
from hapax.sandbox.servers import Redis
from tests.kit.claim_stores import redis_server
from tests.kit.rulebook import TIMEOUT_S, GroupKind, MemoryRulebook, Rulebook
from tests.kit.rulebook_kafka import KafkaRulebook
from tests.kit.spark_ranges import Application
from tests.kit.worlds import KafkaWorld, MemoryWorld, World

Made = Callable[..., Application]
FAST = {"kafka": "off", "kafka-native": "on"}
"""HAPAX_FAST by what a test runs on."""


def fast_of(request: pytest.FixtureRequest) -> str:
    """Return HAPAX_FAST; skip where the native path is not installed."""
    if FAST[request.param] == "on":
        pytest.importorskip("hapax_fast")
    return FAST[request.param]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of one test, which it may kill and fill up."""
    with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def application(sandbox: Sandbox, unique: Callable[[str], str]) -> Iterator[Made]:
    """Make applications of Spark, which are closed at the end."""
    with ExitStack() as exits:

        def make(name: str, **how: Any) -> Application:
            return exits.enter_context(closing(Application(sandbox, unique(name), **how)))

        yield make


@pytest.fixture(params=["memory", *FAST])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The ports' world, once in memory and twice real: by both ways of records."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    real = KafkaWorld(request.getfixturevalue("sandbox"), fast_of(request))
    yield real
    real.close()


@pytest.fixture(params=["memory", *FAST])
def rulebook(request: pytest.FixtureRequest) -> Iterator[Callable[..., Rulebook]]:
    """Make a broker with a kind of group, once as the simulator has it and twice real."""
    with ExitStack() as exits:

        def make(kind: GroupKind = "classic", *, timeout_s: float = TIMEOUT_S) -> Rulebook:
            if request.param == "memory":
                return MemoryRulebook(kind, timeout_s=timeout_s)
            servers, fast = request.getfixturevalue("sandbox"), fast_of(request)
            real = KafkaRulebook(servers, kind, fast, timeout_s=timeout_s)
            return exits.enter_context(closing(real))

        yield make

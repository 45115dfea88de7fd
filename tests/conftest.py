"""Fixtures for everybody: real servers, started when the first test asks for them."""

from __future__ import annotations

import os
import signal
import uuid
from typing import TYPE_CHECKING

import hypothesis
import pytest

from hapax.sandbox import Sandbox, SandboxError
from tests.kit.proxy import FaultProxy, ProxiedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    InTime = Callable[[float, float], None]

pytest_plugins = ["tests.gate.layers", "tests.kit.failures", "tests.kit.proof", "tests.kit.skips"]

# How long an example takes says nothing on a machine that does other work, too.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

# What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

LONG_TIMEOUT_S = 900
"""Of a long test that names no limit. Three run side by side on two cores, and the limit covers
the start of servers and of Spark: one that takes 150 s alone took 295 s there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give long tests their time."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT_S))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HAPAX_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One broker and a Redis. A test that breaks them restores them."""
    yield from _started(nodes=1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """Three brokers and a Redis. A test that breaks them restores them."""
    yield from _started(nodes=3)


@pytest.fixture
def proxied_broker(sandbox: Sandbox) -> Iterator[ProxiedBroker]:
    """The sandbox's broker behind a proxy that does no harm until a rule is added."""
    with FaultProxy.before(sandbox) as proxy:
        yield ProxiedBroker(sandbox.bootstrap_servers, proxy.bootstrap, proxy)


@pytest.fixture
def redis_url(sandbox: Sandbox) -> str:
    """An empty Redis."""
    sandbox.redis.flush()
    return sandbox.redis_url


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses: for topics, groups, transactional ids."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:12]}"


def _started(nodes: int) -> Iterator[Sandbox]:
    """A machine without Java is a failure that says what to install, never a skip."""
    servers = Sandbox(nodes=nodes, proxied=True)
    try:
        servers.start()
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)
    yield servers
    servers.stop()


@pytest.fixture(params=["in company", pytest.param("in time", marks=pytest.mark.alone)])
def in_time(request: pytest.FixtureRequest) -> InTime:
    """Return what asserts that something took less than was promised, in seconds.

    A test that takes it is played twice: in company, where its seconds are not looked at, and once
    more marked ``alone``, where it has the machine for itself.
    """

    def judge(took_s: float, promised_s: float) -> None:
        kept = took_s < promised_s
        assert kept or request.param == "in company", f"{took_s:.2f} s, promised {promised_s:g} s"

    return judge

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from hapax.sandbox import Sandbox
from tests.kit.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class ProxiedBroker(NamedTuple):
    """One broker, and two ways to it."""

    direct: str
    proxied: str
    proxy: FaultProxy


@pytest.fixture
def proxied_broker(sandbox: Sandbox) -> Iterator[ProxiedBroker]:
    """The sandbox's broker behind a proxy that does no harm until a rule is added."""
    with FaultProxy.before(sandbox) as proxy:
        yield ProxiedBroker(sandbox.bootstrap_servers, proxy.bootstrap, proxy)


@pytest.fixture(scope="session")
def guarded() -> Iterator[Sandbox]:
    """A broker that asks who you are and knows rights, and a Redis that speaks TLS."""
    with Sandbox(guarded=True) as servers:
        yield servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of this process: what its JVM knows is decided by who starts it first."""
    from tests.kit.spark_queries import opened_session  # noqa: PLC0415 - only where it is used

    yield from opened_session()

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hapax.sandbox import Sandbox
from tests.kit import redis_with_tls
from tests.kit.calls import STAMPS, Stamps
from tests.kit.guarded import WholeGuard, tokens_of
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import routes_of


@pytest.fixture(scope="session")
def guarded() -> Iterator[Sandbox]:
    """A broker that asks who you are and knows rights, and a Redis that speaks TLS."""
    redis_with_tls.need()
    with Sandbox(guarded=WholeGuard) as servers, closing(tokens_of(servers)):
        yield servers


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark of this process: what its JVM knows is decided by who starts it first."""
    from tests.kit.spark_queries import opened_session  # noqa: PLC0415 - only where it is used

    yield from opened_session()


@pytest.fixture
def stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stamps:
    """What the calls of a test's processes leave behind (tests/kit/calls.py)."""
    path = tmp_path / "stamps"
    monkeypatch.setenv(STAMPS, str(path))
    return Stamps(path)


route_of = routes_of()


@pytest.fixture
def route(route_of: Callable[..., PipelineUnderTest], stamps: Stamps) -> PipelineUnderTest:
    """A pipeline of two partitions whose processes leave stamps; other files have their own."""
    assert not stamps.calls()
    return route_of(2)

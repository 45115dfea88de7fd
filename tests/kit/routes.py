"""Fixtures of a pipeline under test, for files that need its topics and settings and no more."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from hapax.sandbox import Sandbox
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given


def a_route(
    *records: bytes | Given,
    redis: bool = False,
    proxied: bool = False,
    created: bool = True,
    scope: Literal["function", "module"] = "function",
    **options: Any,
) -> Any:
    """Return a fixture: a pipeline on the sandbox with these records in its input.

    redis    its claims are in an empty Redis
    proxied  its workers reach the broker through a proxy (fixture ``proxied_broker``)
    created  its topics are there
    options  as of PipelineUnderTest
    """

    @pytest.fixture(scope=scope)
    def route(
        request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[PipelineUnderTest]:
        settings = dict(options)
        if redis:
            settings["DEDUP__REDIS_URL"] = request.getfixturevalue("redis_url")
        if proxied:
            proxy = request.getfixturevalue("proxied_broker")
            settings["KAFKA__BOOTSTRAP_SERVERS"] = proxy.proxied
        made = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("route"), **settings)
        if created:
            made.create()
        if records:
            made.write(*records)
        yield made
        made.close()

    return route


def routes_of(*, proxied: bool = False, **options: Any) -> Any:
    """Return a fixture that makes such pipelines, each with more options of its own."""

    @pytest.fixture
    def route_of(
        request: pytest.FixtureRequest, sandbox: Sandbox, tmp_path: Path
    ) -> Iterator[Callable[..., PipelineUnderTest]]:
        made: list[PipelineUnderTest] = []
        settings = dict(options)
        if proxied:
            proxy = request.getfixturevalue("proxied_broker")
            settings["KAFKA__BOOTSTRAP_SERVERS"] = proxy.proxied

        def make(partitions: int = 1, **more: Any) -> PipelineUnderTest:
            more = {"partitions": partitions, **settings, **more}
            made.append(PipelineUnderTest(sandbox, tmp_path, **more))
            made[-1].create()
            return made[-1]

        yield make
        for route in made:
            route.close()

    return route_of

"""Fixtures of a pipeline under test, for files that need its topics and settings and no more."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from hapax.sandbox import Sandbox
from tests.kit.flow import Flow
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import Given

Scope = Literal["function", "module"]
Config = Mapping[str, Mapping[str, str]]
"""Of topics, by role: source, target, dead_letters."""


def a_route(
    *records: bytes | Given,
    servers: str = "sandbox",
    redis: bool = False,
    proxied: bool = False,
    created: bool = True,
    config: Config = MappingProxyType({}),
    scope: Scope = "function",
    **options: Any,
) -> Any:
    """Return a fixture: a pipeline on the sandbox with these records in its input.

    servers  fixture of the sandbox
    redis    its claims are in an empty Redis
    proxied  its workers reach the broker through a proxy (fixture ``proxied_broker``)
    created  its topics are there, with this ``config`` by role
    options  as of PipelineUnderTest
    """

    @pytest.fixture(scope=scope)
    def route(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[PipelineUnderTest]:
        settings, sandbox = dict(options), request.getfixturevalue(servers)
        if redis:
            settings["DEDUP__REDIS_URL"] = request.getfixturevalue("redis_url")
        if proxied:
            settings["KAFKA__BOOTSTRAP_SERVERS"] = request.getfixturevalue("proxied_broker").proxied
        made = PipelineUnderTest(sandbox, tmp_path_factory.mktemp("route"), **settings)
        if created:
            made.create(**config)
        if records:
            made.write(*records)
        yield made
        made.close()

    return route


def routes_of(*, proxied: bool = False, **options: Any) -> Any:
    """Return a fixture that makes such pipelines, each with more options of its own."""

    @pytest.fixture
    def route_of(
        request: pytest.FixtureRequest, tmp_path: Path
    ) -> Iterator[Callable[..., PipelineUnderTest]]:
        made: list[PipelineUnderTest] = []
        settings = dict(options)
        if proxied:
            settings["KAFKA__BOOTSTRAP_SERVERS"] = request.getfixturevalue("proxied_broker").proxied

        def make(
            partitions: int = 1,
            *,
            servers: Sandbox | None = None,
            config: Config = MappingProxyType({}),
            **more: Any,
        ) -> PipelineUnderTest:
            more = {"partitions": partitions, **settings, **more}
            sandbox = servers or request.getfixturevalue("sandbox")
            made.append(PipelineUnderTest(sandbox, tmp_path, **more))
            made[-1].create(**config)
            return made[-1]

        yield make
        for route in made:
            route.close()

    return route_of


def a_flow(*, servers: str = "sandbox", scope: Scope = "function", **settings: str | None) -> Any:
    """Return a fixture: a flow on the servers of a fixture, whose workers have these settings."""

    @pytest.fixture(scope=scope)
    def flow(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Flow]:
        folder = tmp_path_factory.mktemp("flow")
        made = Flow(request.getfixturevalue(servers), folder, **settings)
        yield made
        made.close()

    return flow

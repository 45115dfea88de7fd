"""The API server that tests/deploy shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.sandbox import SandboxError
from tests.deploy import control_plane, tools
from tests.deploy.api_server import running
from tests.deploy.release import Release

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.deploy.api_server import ApiServer


@pytest.fixture(autouse=True)
def _bare_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only tests that are marked find kubectl and Helm: no bare machine has them."""

    def absent(name: str, _fetch: object) -> None:
        raise AssertionError(f"{name} is on no bare machine: mark the test with deep")

    if not {"deep", "long"} & {mark.name for mark in request.node.iter_markers()}:
        monkeypatch.setattr(tools, "_packed", absent)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A real API server.

    Missing programs are a skip, in CI as well and unlike every other server of the tests: to build
    them takes a core longer than all other tests together, and no registry has them built.
    The reason of the skip is in the summary of the run. What is built and does not start is a
    failure.
    """
    programs = control_plane.found()
    if programs is None:
        pytest.skip(
            "NOT CHECKED against a real API server: kube-apiserver or etcd is missing. Build them "
            f"once, in ten minutes of one core: {control_plane.COMMAND}"
        )
    try:
        with running(programs, tmp_path_factory.mktemp("api-server")) as started:
            yield started
    except SandboxError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def release(server: ApiServer, kind: str) -> Release:
    """A release that is not installed yet, of this kind of workload."""
    return Release(server, tools.helm(), kind)

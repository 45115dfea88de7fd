"""What the tests of tests/deploy share."""

import pytest

from tests.deploy import tools


@pytest.fixture(autouse=True)
def _bare_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only tests that are marked find kubectl and Helm: no bare machine has them."""

    def absent(name: str, _fetch: object) -> None:
        raise AssertionError(f"{name} is on no bare machine: mark the test with deep")

    if not {"deep", "long"} & {mark.name for mark in request.node.iter_markers()}:
        monkeypatch.setattr(tools, "_packed", absent)

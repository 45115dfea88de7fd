from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fault.rows import QUICK, TEN
from tests.integration.conftest import ProxiedBroker
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.sandbox import Sandbox

_LONG = ("test_rows_", "test_checker_broker")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rows and controls need real servers, also where they start some of their own, and time."""
    here = Path(__file__).parent
    for item in items:
        inside = item.path.is_relative_to(here)
        if inside and (item.path.name.startswith(_LONG) or item.path.parent.name == "controls"):
            item.add_marker("real")
            item.add_marker("long")


@pytest.fixture
def route(sandbox: Sandbox, tmp_path: Path) -> Iterator[PipelineUnderTest]:
    """A route with quick timeouts and ten records in its input; most files have their own."""
    route = PipelineUnderTest(sandbox, tmp_path, **QUICK)
    route.create()
    route.write(*TEN)
    yield route
    route.close()


@pytest.fixture
def proxied_broker(sandbox: Sandbox) -> Iterator[ProxiedBroker]:
    """The sandbox's broker behind a proxy that does no harm until a rule is added."""
    with FaultProxy.before(sandbox) as proxy:
        yield ProxiedBroker(sandbox.bootstrap_servers, proxy.bootstrap, proxy)

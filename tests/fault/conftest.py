from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.at_work import QUICK, TEN
from tests.kit.pipeline_under_test import PipelineUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.sandbox import Sandbox

_LONG = "test_checker_broker"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rows and controls need real servers, also where they start some of their own, and time."""
    here = Path(__file__).parent
    for item in items:
        inside = item.path.is_relative_to(here)
        of_row = item.get_closest_marker("row") is not None
        if inside and (of_row or item.path.stem == _LONG or item.path.parent.name == "controls"):
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

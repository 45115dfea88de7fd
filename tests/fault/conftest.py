from pathlib import Path

import pytest

from tests.kit.at_work import QUICK, TEN
from tests.kit.routes import a_route, routes_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rows and controls need real servers, also where they start some of their own, and time."""
    here = Path(__file__).parent
    for item in items:
        inside = item.path.is_relative_to(here)
        of_row = item.get_closest_marker("row") is not None
        if inside and (of_row or item.path.parent.name == "controls"):
            item.add_marker("real")
            item.add_marker("long")


route_of = routes_of()
route = a_route(*TEN, **QUICK)
"""A route with quick timeouts and ten records in its input; most files have their own."""

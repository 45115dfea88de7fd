from typing import Any

import pytest


@pytest.fixture
def told() -> Any:
    from tests.unit.test_telemetry_events import Told  # noqa: PLC0415 - for its tests alone

    return Told()

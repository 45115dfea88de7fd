from typing import Any

import pytest


@pytest.fixture
def told() -> Any:
    from tests.unit.test_telemetry_events import Told  # noqa: PLC0415 - for its tests alone

    return Told()


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A source of Kafka, the fake consumer below it, and its clock."""
    from tests.kit.consumers import source  # noqa: PLC0415 - for their tests alone

    return source(monkeypatch)


@pytest.fixture
def kafka(faked: Any) -> Any:
    return faked[0]


@pytest.fixture
def consumer(faked: Any) -> Any:
    return faked[1]


@pytest.fixture
def clock(faked: Any) -> Any:
    return faked[2]

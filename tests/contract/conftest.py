from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.worlds import KafkaWorld, MemoryWorld, World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The ports' world, once in memory and once real."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    real = KafkaWorld(request.getfixturevalue("sandbox"))
    yield real
    real.close()

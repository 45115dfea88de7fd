from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from tests.kit.rulebook_kafka import KafkaRulebook
from tests.kit.rulebook_memory import TIMEOUT_S, GroupKind, MemoryRulebook
from tests.kit.worlds import KafkaWorld, MemoryWorld, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kit.rulebook import Rulebook


@pytest.fixture(params=["memory", "kafka"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The ports' world, once in memory and once real."""
    if request.param == "memory":
        yield MemoryWorld()
        return
    real = KafkaWorld(request.getfixturevalue("sandbox"))
    yield real
    real.close()


@pytest.fixture(params=["memory", "kafka"])
def rulebook(request: pytest.FixtureRequest) -> Iterator[Callable[..., Rulebook]]:
    """Make a broker with a kind of group, once as the simulator has it and once real."""
    with ExitStack() as exits:

        def make(kind: GroupKind = "classic", *, timeout_s: float = TIMEOUT_S) -> Rulebook:
            if request.param == "memory":
                return MemoryRulebook(kind, timeout_s=timeout_s)
            real = KafkaRulebook(request.getfixturevalue("sandbox"), kind, timeout_s=timeout_s)
            return exits.enter_context(closing(real))

        yield make

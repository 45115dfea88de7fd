"""Transactional ids that are fenced: their users commit no more, what they left is aborted.

Those of lanes, and of a worker of the same name.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from hapax.kafka.produce.base import ProducerConfig
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import lane_id, producer_properties, transactional_id

if TYPE_CHECKING:
    from hapax.kafka.native import NativePath
    from hapax.settings import Settings


def named_transaction(
    settings: Settings, name: str, native: NativePath | None = None, **around: Any
) -> KafkaTransaction:
    properties = producer_properties(settings) | {"client.id": name, "transactional.id": name}
    return KafkaTransaction(ProducerConfig.of(settings, properties, native), **around)


def fence(settings: Settings, transactional_id: str) -> None:
    """Register a producer of this id; raise ProducerDeadError without an answer: call again."""
    transaction = named_transaction(
        settings,
        transactional_id,
        clock=time,
        forward=lambda *_line: None,  # what matters about a fence is raised
        watch=lambda _call: nullcontext(),
    )
    try:
        transaction.open()
    finally:
        transaction.close()


class LaneFences:
    """Registers producers under the ids of the lanes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def lane(self, number: int) -> None:
        fence(self._settings, lane_id(self._settings, number))

    def predecessor(self) -> None:
        """Fence a worker that ran under this name: its open transaction is over at once."""
        fence(self._settings, transactional_id(self._settings))

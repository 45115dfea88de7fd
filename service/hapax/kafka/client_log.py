"""What a client's own lines tell beside the log: when connections broke, and ids of topics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hapax.kafka.topic_ids import TopicIds

if TYPE_CHECKING:
    from hapax.core.ports import Clock


class ClientLogMonitor:
    """Passes a consumer's lines on; remembers when connections broke, and ids.

    breaks   how many lines have told of broken connections
    topics   ids of the cluster and its topics
    """

    SIGNS = frozenset({"FAIL", "REQTMOUT", "SESSTMOUT", "ERROR"})
    MEMORY_S = 15.0

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._last_s = -math.inf
        self.breaks = 0
        self.topics = TopicIds()

    def log(self, level: int, form: str, *parts: object) -> None:
        """Take one line of the client."""
        if parts and parts[0] in self.SIGNS:
            self._last_s = self._clock.monotonic()
            self.breaks += 1
        if parts:
            self.topics.hear(str(parts[-1]))
        self._logger.log(level, form, *parts)

    @property
    def troubled(self) -> bool:
        """Whether connections broke lately."""
        return self._clock.monotonic() - self._last_s < self.MEMORY_S

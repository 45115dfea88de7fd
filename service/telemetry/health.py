"""Health: what the probes answer. It is told, and never asks Kafka or Redis.

The loop's thread writes plain attributes, the server's threads read them; each is replaced as a
whole, so that no lock is needed.

startupz  initialised: the producer has its epoch, the consumer has subscribed
livez     the loop moved within the limit; before it runs there is nothing to hang
readyz    started, assigned for the first time, not draining, claims as the policy wants them
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.core.records import TopicPartition


class Verdict(NamedTuple):
    """A probe's answer; ``reasons`` holds a phrase for each thing that is missing."""

    ok: bool
    reasons: list[str]


class Health:
    """State of this process.

    ``loop_limit_s``: longer than the longest legal blocking call (the watchdog's deadline), and
    shorter than ``max.poll.interval.ms``. ``loop_s`` and ``claims_away_s`` are monotonic times: of
    the loop's last move, and of the first call to the claim store without an answer.
    """

    def __init__(
        self, loop_limit_s: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.loop_limit_s = loop_limit_s
        self.monotonic_s = monotonic_s
        self.started = False
        self.assigned = False
        self.draining = False
        self.claims_ok = True
        self.claims_away_s: float | None = None
        self.partitions: frozenset[TopicPartition] = frozenset()
        self.loop_s: float | None = None

    def startupz(self) -> Verdict:
        """Say whether the start is over."""
        return _verdict(self._starting())

    def livez(self) -> Verdict:
        """Say whether the loop moves."""
        loop_s = self.loop_s
        age_s = 0.0 if loop_s is None else self.monotonic_s() - loop_s
        if age_s <= self.loop_limit_s:
            return Verdict(ok=True, reasons=[])
        return Verdict(
            ok=False,
            reasons=[f"the loop has not moved for {age_s:.1f} s (limit {self.loop_limit_s:g} s)"],
        )

    def readyz(self) -> Verdict:
        """Say whether records are being processed, or would be if there were any."""
        reasons = self._starting()
        if not self.assigned:
            reasons.append("waiting for the first assignment of partitions")
        if self.draining:
            reasons.append("draining")
        if not self.claims_ok:
            reasons.append("the claim store gives no answer")
        return _verdict(reasons)

    def _starting(self) -> list[str]:
        return [] if self.started else ["starting: transactions are not initialised yet"]


def _verdict(reasons: list[str]) -> Verdict:
    return Verdict(ok=not reasons, reasons=reasons)

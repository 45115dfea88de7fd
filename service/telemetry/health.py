"""Health: what the probes answer. It is told, and never asks Kafka or Redis.

The loop's thread writes plain attributes, the server's threads read them; each is replaced as a
whole, so that no lock is needed.

startupz  initialised: the producer has its epoch, the consumer has subscribed
livez     the loop moved within the limit; before it runs there is nothing to hang
readyz    started, assigned for the first time, not draining, claims as the policy wants them, and
          what is taken gets through: the loop moves, and not from one failure to the next
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from service.core.records import TopicPartition
    from service.core.settled import Settled
    from service.core.survey import Standing


STALL_S = 5.0
"""A loop that stands still for so long waits for brokers, or for a very slow record."""
FAILING_S = 3.0
"""Failures for so long, without a success among them, are no hiccup."""
FORGOTTEN_S = 10.0
"""The last failure counts for so long: with nothing more to do no success may follow it."""


class Verdict(NamedTuple):
    """A probe's answer; ``reasons`` holds a phrase for each thing that is missing."""

    ok: bool
    reasons: list[str]


class Health:
    """State of this process.

    ``loop_limit_s``: longer than the longest legal blocking call (the watchdog's deadline), and
    shorter than ``max.poll.interval.ms``. ``loop_s`` and ``claims_away_s`` are monotonic times: of
    the loop's last move, and of the first call to the claim store without an answer.
    ``standings`` is the last survey's, of ``surveyed_s`` in Unix time; ``lags`` is what the loop
    last saw, at ``lags_s`` (monotonic); ``last_settled`` is the last transaction, with the Unix
    time of its end.
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
        self.standings: Mapping[TopicPartition, Standing] = {}
        self.surveyed_s: float | None = None
        self.lags: Mapping[TopicPartition, int] = {}
        self.lags_s: float | None = None
        self.last_settled: tuple[float, Settled] | None = None
        self.loop_s: float | None = None
        self._failures_s: tuple[float, float] | None = None  # the first one and the last one

    def fail(self) -> None:
        """Take note that something did not get through."""
        now_s, failures_s = self.monotonic_s(), self._failures_s
        if failures_s is None or now_s - failures_s[1] > FORGOTTEN_S:
            failures_s = (now_s, now_s)
        self._failures_s = (failures_s[0], now_s)

    def succeed(self) -> None:
        """Take note that something was committed."""
        self._failures_s = None

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
        return _verdict(reasons + self._stalled())

    def state(self) -> str:
        """Return one word: starting, running, paused, stalled or draining.

        paused: the claim store is away, and the policy is to wait. stalled: for another reason of
        readyz.
        """
        if not self.started:
            return "starting"
        if self.draining:
            return "draining"
        if not self.claims_ok:
            return "paused"
        if not self.assigned:
            return "starting"
        return "stalled" if self._stalled() else "running"

    def _stalled(self) -> list[str]:
        now_s, loop_s, failures_s = self.monotonic_s(), self.loop_s, self._failures_s
        reasons = []
        if loop_s is not None and now_s - loop_s > STALL_S:
            reasons.append(f"the loop has not moved for {now_s - loop_s:.0f} s")
        if failures_s is not None and now_s - failures_s[1] < FORGOTTEN_S:
            failing_s = now_s - failures_s[0]
            if failing_s > FAILING_S:
                reasons.append(f"nothing has been committed for {failing_s:.0f} s of failures")
        return reasons

    def _starting(self) -> list[str]:
        return [] if self.started else ["starting: transactions are not initialised yet"]


def _verdict(reasons: list[str]) -> Verdict:
    return Verdict(ok=not reasons, reasons=reasons)

"""Calls in flight within a simulated process: when each ends is one more choice of the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from hapax.core.call_window import CallQueue, settle
from hapax.core.errors import RetryLater
from tests.simulation.chance import BUSINESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.call_window import Call, CallLimits, Unit
    from hapax.core.records import Coordinates
    from tests.simulation.process import Process
    from tests.simulation.world import World

LENGTHS_S = (0.0, 0.001, 0.003, 0.01, 0.01, 0.05, 0.3)


class SimulatedCalls:
    """Makes calls that end in any order. Judges that none is made twice, and keys one at a time."""

    def __init__(self, world: World, process: Process, limits: CallLimits) -> None:
        self._world = world
        self._process = process
        self._limits = limits
        self._queue = CallQueue(limits.order, 1)
        self._slots: list[Unit] = []
        self._made: set[Coordinates] = set()

    @property
    def in_flight(self) -> int:
        """How many calls are being made."""
        return len(self._slots)

    def begun(self) -> set[Call]:
        """Return the calls that are being made."""
        return {call for unit in self._slots for call in unit}

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls, in their order, as soon as limits allow."""
        self._queue.add(calls)
        self._begin()

    def wait(self, seconds: float) -> None:
        """Let time pass; what strikes while business code has the records strikes here."""
        strike = self._process.struck(BUSINESS, f"{self.in_flight} calls")
        slow = strike is not None and strike.kind == "slow"
        self._process.pause(strike.seconds if slow and strike is not None else seconds)

    def drop(self, calls: Sequence[Call]) -> None:
        """Give calls up: their partition left, and another process may make them."""
        for call in calls:
            call.dropped = True
            self._made.discard(call.record.coordinates)

    def close(self) -> None:
        """Nothing is kept."""

    def _begin(self) -> None:
        scheduler = self._world.scheduler
        while self.in_flight < self._limits.concurrency and (unit := self._queue.take()):
            (call,) = unit
            where = call.record.coordinates
            if where in self._made:
                self._world.judge.note("called-twice", f"{where} in {self._process.name}")
            self._made.add(where)
            if any(call.key == other.key for (other,) in self._slots if not other.dropped):
                self._world.judge.note("key-order", f"{where}: two calls of {call.key}")
            self._slots.append(unit)
            chosen = crc32(f"{self._process.name} {where} {scheduler.steps}".encode())
            length_s = LENGTHS_S[chosen % len(LENGTHS_S)]
            scheduler.at(scheduler.now_s + length_s, lambda unit=unit: self._end(unit))  # type: ignore[misc] # bound now

    def _end(self, unit: Unit) -> None:
        """End one call; in a process that was killed it ends nowhere."""
        if self._process.killed or self._process.left:
            return
        self._slots.remove(unit)
        (call,) = unit
        try:
            answer: object = self._process.answer(self._limits.given(call))
        except (ValueError, RetryLater) as error:
            answer = error
        settle(unit, [answer], self._limits, lists=True)
        self._queue.done(unit)
        self._begin()

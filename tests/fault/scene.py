"""What one strike sees and says: the stage it strikes on, and how it went."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from tests.fault.members import Member
    from tests.fault.plan import Fault
    from tests.fault.stage import Stage
    from tests.kit.faults import Rule


class Scene:
    """One strike, from its beginning until all is well again.

    struck  how often the fault really struck
    since_s the moment from which recovery is measured (wall clock), ``since`` in words
    kafka_s from the strike until all partitions had a leader again; None: not measured
    broken  what the row demands beyond the invariants, and did not get
    """

    def __init__(self, stage: Stage, fault: Fault, rng: random.Random) -> None:
        self.stage = stage
        self.fault = fault
        self.rng = rng
        self.target = ""
        self.struck = 0
        self.began_s = time.time()
        self.since_s = self.began_s
        self.since = "strike"
        self.kafka_s: float | None = None
        self.healed_s: float | None = None
        self.notes: list[str] = []
        self.broken: list[str] = []
        self._before = {each: each.read_log().copy() for each in stage.members}

    # -- whom it strikes ------------------------------------------------------------------

    @property
    def proxied(self) -> Member:
        """The member whose requests go through the proxy."""
        return self._aim(self.stage.members[0])

    @property
    def anybody(self) -> Member:
        return self._aim(self.rng.choice(self.stage.members))

    def _aim(self, member: Member) -> Member:
        self.target = member.instance
        return member

    def await_hit(self, rule: Rule) -> None:
        """Wait for the request that a rule is to harm; raise when none comes."""
        assert rule.hit.wait(self.stage.plan.patience_s), f"{rule} has not struck"

    def await_answered(self, rule: Rule) -> None:
        """Wait until the broker has answered such a request; raise when none comes."""
        assert rule.answered.wait(self.stage.plan.patience_s), f"{rule} has no answer"

    def arm(self, rule: Rule) -> Rule:
        """Arm a rule of the proxy; all are disarmed at the end of the step."""
        return self.stage.proxy.add(rule)

    # -- what it did ----------------------------------------------------------------------

    def hit(self, times: int = 1) -> None:
        """Say that the fault struck."""
        self.struck += times

    def mark(self, since: str) -> None:
        """Say that recovery is measured from now."""
        self.since_s = time.time()
        self.since = since

    def heal(self) -> None:
        """Say that the fault is over."""
        self.healed_s = time.time()

    def note(self, text: str) -> None:
        self.notes.append(text)

    def demand(self, held: object, what: str) -> None:
        """Say what the row asks for beyond the invariants, and whether it was so."""
        if not held:
            self.broken.append(f"{self.fault.name}: {what}")

    # -- what came of it ------------------------------------------------------------------

    def await_recovery(self) -> float | None:
        """Wait until all partitions go on; return how long it took since the mark."""
        seen_s = self.stage.progress.await_recovery(self.since_s, self.stage.plan.recovery_s)
        return None if seen_s is None else seen_s - self.since_s

    def events(self, name: str) -> int:
        """Return how often members have logged an event since the strike began."""
        return sum(each.read_log()[name] - before[name] for each, before in self._before.items())

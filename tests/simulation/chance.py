"""What goes wrong, and where. Drawn once from a seed; played again from the list of strikes."""

from collections.abc import Mapping
from random import Random

import msgspec

from tests.simulation.options import Options

STEPS, REQUESTS, CLAIMS, BUSINESS = "step", "request", "claims", "business"
KEPT, APPLY = "kept", "apply"
_ANYWHERE = ("crash", "freeze", "claims", "brokers", "silence", "twin", "spare", "signal")
_HERE = {
    STEPS: (*_ANYWHERE, "error", "error", "error", "double join", "disk", "compacted"),
    REQUESTS: (*_ANYWHERE, "crash", "doubt", "doubt", "doubt", "late", "unanswered"),
    CLAIMS: (*_ANYWHERE, "claims", "claims"),
    BUSINESS: (*_ANYWHERE, "slow", "slow", "slow"),
    KEPT: (*_ANYWHERE, *["disk"] * 3, "compacted"),
    APPLY: ("behind",),
}


class Strike(msgspec.Struct, frozen=True):
    """One fault.

    way        which of its forms: a number from 0 to 1
    seconds    how long it lasts, or how late something arrives
    """

    kind: str
    way: float
    seconds: float

    def choice(self, *forms: str) -> str:
        return forms[int(self.way * len(forms))]


class Chance:
    """Asked at every step of every process. Keys are ``process#ordinal`` of that process."""

    def __init__(
        self, random: Random, options: Options, played: Mapping[str, Strike] | None = None
    ) -> None:
        self.struck: dict[str, Strike] = {}
        self.over = False
        self._random = random
        self._played = played
        self._left = options.strikes if options.faults else 0
        self._rate = options.rate
        self._quiet_s = options.quiet_s
        self._kinds = {
            where: [kind for kind in kinds if kind in options.faults]
            for where, kinds in _HERE.items()
        }

    @property
    def spent(self) -> bool:
        if self._played is not None:
            return len(self.struck) == len(self._played)
        return not self._left

    def strike(self, key: str, where: str, now_s: float) -> Strike | None:
        """Return what goes wrong at this step."""
        if self.over:
            return None
        if self._played is not None:
            found = self._played.get(key)
            if found is not None:
                self.struck[key] = found
            return found
        rate = max(0.5, self._rate) if where == APPLY else self._rate  # there are few of them
        if not self._left or self._random.random() > rate:
            return None
        if self._quiet_s and now_s % self._quiet_s > self._quiet_s / 2:
            return None
        kinds = self._kinds[where]
        if not kinds:
            return None
        self._left -= 1
        random = self._random
        seconds = random.choice((0.01, 0.05, 0.05, 0.5, 2.0, 2.0)) * (0.2 + random.random())
        strike = self.struck[key] = Strike(random.choice(kinds), random.random(), seconds)
        return strike

"""Rates of the last minutes, for the status page: totals are sampled, and the page has no memory.

Sampled on the server's own thread, so that a page opened at night shows what led up to it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any, Final, NamedTuple

SAMPLE_S: Final = 5.0
KEPT_MAX: Final = 61
"""Five minutes of rates: each needs the sample before it."""


class Sample(NamedTuple):
    """Totals at one moment, Unix time; ``lag`` is None while no partition's lag is known."""

    at_s: float
    records_in: int
    records_out: int
    lag: int | None


class History:
    """Keeps samples. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=KEPT_MAX)

    def due(self, now_s: float) -> bool:
        """Return whether the last sample is old enough, or of a clock that was set back since."""
        return not self._samples or not 0 <= now_s - self._samples[-1].at_s < SAMPLE_S

    def add(self, sample: Sample) -> None:
        """Keep a sample, and forget the oldest."""
        self._samples.append(sample)

    def rates(self) -> list[dict[str, Any]]:
        """Return records a second between each two samples, the oldest first."""
        return [
            {
                "at": round(now.at_s, 3),
                "in_per_s": _rate(now.records_in - then.records_in, now.at_s - then.at_s),
                "out_per_s": _rate(now.records_out - then.records_out, now.at_s - then.at_s),
                "lag": now.lag,
            }
            for then, now in pairwise(self._samples.copy())
            if now.at_s > then.at_s
        ]


def _rate(count: int, seconds: float) -> float:
    return round(max(0, count) / seconds, 1)

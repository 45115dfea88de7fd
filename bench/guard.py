"""The record path did not become slower: its CPU against that of the plain loop, in one run.

Short runs take turns (loop, service, loop, service …). The least CPU of each is what the program
needs; what is above it came from the machine, which only ever adds. So the ratio of the least is
judged, against a bound in guard.json with 10 % of tolerance, and more rounds are run before a
failure is believed. Counts of instructions would be exact, but the virtual machines of CI do not
let a program read them.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench import throughput
from bench.contenders import NATIVE, PYTHON, Contender
from bench.course import sandbox_and_folder
from bench.measure import noise
from bench.peers.contenders import PLAIN
from bench.peers.environments import MissingError
from bench.throughput import Course
from hapax.sandbox.machine import say

RECORDS = 500_000
"""Fewer, and what a start costs varies by more than the tolerance."""
ROUNDS_MIN, ROUNDS_MAX = 3, 8
INTERVAL_MS = 1000
"""Of all that are compared: batches are full then, whatever else the machine does. At 100 ms they
shrink on a busy one, and the ratio of the same code was 0.7 in one hour and 1.3 in the next."""
GUARDED = {who.name: who for who in (*NATIVE, *PYTHON)}
_FILE = Path(__file__).with_suffix(".json")


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a contender may cost of the plain loop, and why just that."""

    name: str
    ratio: float
    reason: str


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All bounds, and what is tolerated above each: 1.1 fails at 10 % more."""

    tolerance: float
    bounds: list[Bound]

    def limit(self, bound: Bound) -> float:
        return bound.ratio * self.tolerance


class Series:
    """CPU of one contender, run by run, in seconds a million records."""

    def __init__(self, who: Contender, start_cpu_s: float) -> None:
        self.who = who
        self._start_cpu_s = start_cpu_s
        self.found: list[float] = []

    def run(self, course: Course, backlog: str, records: int) -> None:
        run = course.run(self.who, backlog, records)
        self.found.append((run["cpu_s"] - self._start_cpu_s) / records * 1e6)

    @property
    def least(self) -> float:
        return min(self.found)


def bounds() -> Bounds:
    return msgspec.json.decode(_FILE.read_bytes(), type=Bounds)


def ratios(
    course: Course,
    who: Sequence[Contender],
    limits: dict[str, float],
    records: int = RECORDS,
    rounds_max: int = ROUNDS_MAX,
) -> dict[str, float]:
    """Return by contender its least CPU against that of the plain loop.

    Rounds end when every ratio is within its limit, at the earliest after ROUNDS_MIN of them.
    """
    backlog, few = course.backlog(records), course.backlog(throughput.FEW)
    warm = (backlog, records)
    steady = [msgspec.structs.replace(each, interval_ms=INTERVAL_MS) for each in (PLAIN, *who)]
    loop, *others = [Series(each, course.start_cpu_s(each, few, warm)) for each in steady]
    found: dict[str, float] = {}
    for turn in range(1, rounds_max + 1):
        for each in (loop, *others):
            each.run(course, backlog, records)
        found = {each.who.name: each.least / loop.least for each in others}
        words = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found.items())
        say(f"round {turn}: of the plain loop ({loop.least:.2f} µs): {words} ({noise()})")
        if turn >= ROUNDS_MIN and all(found[name] <= limit for name, limit in limits.items()):
            break
    return found


def excesses(found: dict[str, float], allowed: Bounds) -> list[str]:
    return [
        f"{bound.name} costs {found[bound.name]:.2f} of the plain loop, more than"
        f" {allowed.limit(bound):.2f} ({bound.ratio:g} and {allowed.tolerance - 1:.0%})."
        f" Make it cheaper, or give a new bound with its reason in bench/guard.json."
        for bound in allowed.bounds
        if bound.name in found and found[bound.name] > allowed.limit(bound)
    ]


def compare(other: str) -> dict[str, float]:
    """Return by contender its least CPU against that of another interpreter's service.

    All take turns on one broker: what two runs of the guard differ by is the machine as well.
    """
    ours = [GUARDED[bound.name] for bound in bounds().bounds]
    theirs = [
        msgspec.structs.replace(each, name=f"{each.name}, other", python=other) for each in ours
    ]
    both = [each for pair in zip(theirs, ours, strict=True) for each in pair]
    with sandbox_and_folder() as on:
        found = ratios(
            throughput.Course(*on), both, dict.fromkeys((each.name for each in both), 0.0)
        )
    return {each.name: found[each.name] / found[f"{each.name}, other"] for each in ours}


def main() -> int:
    """Measure and judge; return the exit code."""
    allowed, who = bounds(), list[Contender]()
    for bound in allowed.bounds:
        try:
            GUARDED[bound.name].prepare()
        except MissingError as error:
            say(f"Not guarded: {bound.name}: {error}")
        else:
            who.append(GUARDED[bound.name])
    limits = {bound.name: allowed.limit(bound) for bound in allowed.bounds}
    limits = {each.name: limits[each.name] for each in who}
    with sandbox_and_folder() as on:
        found = ratios(throughput.Course(*on), who, limits)
    wrong = excesses(found, allowed)
    print("\n".join(wrong) or f"The record path is as fast as it was: {found}")
    return 1 if wrong else 0

"""Calls that wait: 10 ms of I/O for each record, 1,000 keys, claims, one worker.

rate        records/s under a backlog: one call at a time, coroutines, threads, lists
straggler   what the other partitions lose while a call of one partition takes 10 s
visibility  from the time a record was due until a reader has its output, at half load
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import latency, throughput, traffic
from bench.contenders import Service
from bench.measure import VoidRunError, noise
from bench.results import Made, Run, Runs
from bench.transforms import CALL_S, STRAGGLER, STRAGGLER_S
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

KEYS = 1000
CALL_MS = int(CALL_S * 1000)
RECORDS_MIN = 300
SETTLED_MS = 1500
"""After a straggler has begun and before it ends: what was in work when it began is out."""


class Calling(Service, frozen=True, kw_only=True):
    """The service with a function that waits.

    bound_per_s  records a second when all calls are always in flight and nothing else takes time
    """

    bound_per_s: int

    def records(self, seconds: float) -> int:
        """Return how many take about so long."""
        return max(RECORDS_MIN, int(min(self.bound_per_s, 10_000) * seconds))


def _calling(name: str, function: str, concurrency: int, records_max: int = 1) -> Calling:
    more = {"HAPAX_CALL__CONCURRENCY": str(concurrency)}
    if records_max > 1:
        more["HAPAX_CALL__RECORDS_MAX"] = str(records_max)
    return Calling(
        name=name,
        claims=True,
        transform=f"bench.transforms:{function}",
        bound_per_s=int(concurrency * records_max / CALL_S),
        more=tuple(more.items()),
    )


SERIAL = _calling("one call at a time", "wait", 1)
COROUTINES = {
    count: _calling(f"{count} coroutines", "wait_async", count) for count in (16, 64, 256)
}
THREADS = _calling("64 threads", "wait", 64)
LISTS = _calling("lists of 256, one at a time", "wait_for_all", 1, 256)
WHO = (SERIAL, *COROUTINES.values(), THREADS, LISTS)
BOUNDED = (COROUTINES[16], COROUTINES[64], THREADS)
"""Of whom 0.9 of the bound is asked; the others have goals of their own."""
HALF = COROUTINES[64]
HALF_PER_S = HALF.bound_per_s // 2
EVEN, UNEVEN = f"all calls of {CALL_MS} ms", f"one call of {STRAGGLER_S:g} s"
STRAGGLING = {
    EVEN: HALF,
    UNEVEN: msgspec.structs.replace(HALF, transform="bench.transforms:wait_long_once"),
}
LONG = HALF.records(STRAGGLER_S + 4) + 4 * STRAGGLER[1]
"""Records of a backlog that lasts while the straggler is called."""


def measure(
    sandbox: Sandbox, folder: Path, rounds: int, seconds: float, made: Made
) -> Iterator[dict[str, Any]]:
    """Run all in turn, ``rounds`` times; a run of a rate is to take about ``seconds``."""
    course = throughput.Course(sandbox, folder, KEYS)
    pace = latency.Pace(sandbox, folder, KEYS)
    sizes = {LONG, *(who.records(seconds) for who in WHO)}
    backlogs = {size: course.backlog(size) for size in sizes}
    measures: dict[str, dict[str, Callable[[], Run]]] = {
        "runs": {
            who.name: partial(_rate, course, who, backlogs[size], size)
            for who in WHO
            for size in [who.records(seconds)]
        },
        "straggler": {
            name: partial(_others, course, sandbox, backlogs[LONG], name) for name in STRAGGLING
        },
        "visibility": {HALF.name: partial(pace.run, HALF, HALF_PER_S, seconds)},
    }
    found: dict[str, Any] = {"seconds": seconds, "rate": HALF_PER_S}
    found |= {part: {name: [] for name in each} for part, each in measures.items()}
    for turn in range(rounds):
        for part, each in measures.items():
            runs: Runs = found[part]
            for name, run in each.items():
                where = f"calls, round {turn + 1} of {rounds}, {part}, {name}"
                runs[name].append(_counted(run, made, where))
        yield found


def _counted(run: Callable[[], Run], made: Made, where: str) -> Run | None:
    """Return what a run found; None when it is void."""
    try:
        found = run()
    except VoidRunError as error:
        made.void(where, error)
        return None
    say(f"{where}: {', '.join(f'{key} {value:,.2f}' for key, value in found.items())} ({noise()})")
    return found


def _rate(course: throughput.Course, who: Calling, source: str, records: int) -> Run:
    run = course.run(who, source, records)
    rate = run["records_per_s"]
    return {"records_per_s": rate, "of_bound": rate / who.bound_per_s, "rss_mb": run["rss_mb"]}


def _others(course: throughput.Course, sandbox: Sandbox, source: str, name: str) -> Run:
    course.run(STRAGGLING[name], source, LONG)
    moments = traffic.apart(traffic.moments_ms, sandbox.bootstrap_servers, course.target, LONG)
    return {"others_per_s": others_per_s(moments, straggles=name == UNEVEN)}


def others_per_s(moments: Sequence[Sequence[int]], *, straggles: bool) -> float:
    """Return the rate of the partitions without the straggler, while its call is in flight.

    Without a straggler: over the same time, from when that call would have begun. ``moments``: by
    partition, when each output was written, in ms. Raises VoidRunError when that says nothing.
    """
    partition, offset = STRAGGLER
    began_ms = moments[partition][offset - 1]
    low_ms, high_ms = began_ms + SETTLED_MS, began_ms + STRAGGLER_S * 1000 - SETTLED_MS
    if straggles and moments[partition][offset] < high_ms:
        raise VoidRunError("the call of the straggler was shorter than it should have been")
    others = [ms for at, each in enumerate(moments) if at != partition for ms in each]
    if max(others) < high_ms:
        raise VoidRunError("the backlog of the other partitions was too short")
    return sum(low_ms <= ms < high_ms for ms in others) / (high_ms - low_ms) * 1000

"""What was aimed at (issues 13, 14 and 34), and what was found: medians of ratios within rounds."""

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from bench import calls, claims, results, state
from bench.contenders import COUNTING, NATIVE, WEAKER
from bench.peers.contenders import AIOKAFKA, PLAIN, QUIX, STREAMS, STREAMS_COUNTING, STREAMS_TUNED
from bench.results import Results, Runs
from bench.spark import ARROW, OURS, OURS_NATIVE, UDF

CPU, RATE = "cpu_s_per_million", "records_per_s"
BARE, FUNCTION = NATIVE[2].name, NATIVE[3].name
"""With claims: records pass unchanged without Python, and through a Python function."""
UNCLAIMED_FUNCTION, AT_LEAST_ONCE = NATIVE[1].name, WEAKER[0].name


class Goal(NamedTuple):
    """One line: ``found`` is None where it was not measured; ``at_most`` or at least."""

    title: str
    bound: float
    found: float | None
    at_most: bool = True

    @property
    def reached(self) -> bool | None:
        if self.found is None:
            return None
        return self.found <= self.bound if self.at_most else self.found >= self.bound


def goals(found: Results) -> list[Goal]:
    return [
        *_throughput(found.parts.get("throughput", {}).get("runs", {})),
        *_calls(found.parts.get("calls", {})),
        *_claims(found.parts.get("claims", {}).get("passes", [])),
        *_latency(found.parts.get("latency", {}).get("rates", [])),
        Goal(
            "CPU of a record over 1, 6, 32, 128 partitions, dearest / cheapest",
            1.15,
            _growth(found.parts.get("partitions", {}).get("runs", {})),
        ),
        *_spark(found.parts.get("spark", {}).get("runs", {})),
        *_state(found.parts.get("state", {})),
        *_recovery(found.parts.get("recovery", {}).get("sizes", [])),
    ]


def _throughput(runs: Runs) -> Iterator[Goal]:
    ratio = partial(results.median_ratio, runs)
    yield Goal("CPU, claims, Python function / plain loop", 0.65, ratio(FUNCTION, PLAIN.name, CPU))
    yield Goal("CPU, claims, default transform / plain loop", 0.5, ratio(BARE, PLAIN.name, CPU))
    yield Goal(
        "records/s, claims, Python function / plain loop",
        1.3,
        ratio(FUNCTION, PLAIN.name, RATE),
        at_most=False,
    )
    for peer, cpu, rate in ((STREAMS, 0.4, 2.0), (STREAMS_TUNED, 0.9, 0.8)):
        yield Goal(f"CPU, the same / {peer.name}", cpu, ratio(FUNCTION, peer.name, CPU))
        yield Goal(
            f"records/s, the same / {peer.name}",
            rate,
            ratio(FUNCTION, peer.name, RATE),
            at_most=False,
        )
    for other in (QUIX, AIOKAFKA):
        yield Goal(f"CPU, the same / {other.name}", 0.25, ratio(FUNCTION, other.name, CPU))
    yield Goal(
        "CPU, exactly once / at least once", 1.08, ratio(UNCLAIMED_FUNCTION, AT_LEAST_ONCE, CPU)
    )
    memory = results.values(runs, FUNCTION, "rss_mb")
    yield Goal("peak memory in MB, claims", 150, max(memory) if memory else None)


def _calls(part: dict[str, Runs]) -> Iterator[Goal]:
    """Calls of 10 ms: 0.9 of what is possible up to 64 at once, and 10,000 records/s at 256."""
    runs = part.get("runs", {})
    median = partial(_median, runs)
    for who in calls.BOUNDED:
        title = f"records/s, {who.name} / {who.bound_per_s:,}"
        yield Goal(title, 0.9, median(who.name, "of_bound"), at_most=False)
    most = calls.COROUTINES[256].name
    yield Goal(f"records/s, {most}", 10_000, median(most, RATE), at_most=False)
    yield Goal(
        f"records/s, {calls.LISTS.name} / {calls.SERIAL.name}",
        50,
        results.median_ratio(runs, calls.LISTS.name, calls.SERIAL.name, RATE),
        at_most=False,
    )
    yield Goal(
        f"records/s of the other partitions, {calls.UNEVEN} / {calls.EVEN}",
        0.95,
        results.median_ratio(part.get("straggler", {}), calls.UNEVEN, calls.EVEN, "others_per_s"),
        at_most=False,
    )
    yield Goal(
        f"p99 in ms at {calls.HALF_PER_S:,} records/s, {calls.HALF.name}",
        calls.CALL_MS + 40,
        _median(part.get("visibility", {}), calls.HALF.name, "p99_ms"),
    )


def _median(runs: Runs, name: str, key: str) -> float | None:
    found = results.values(runs, name, key)
    return statistics.median(found) if found else None


def _claims(passes: list[dict[str, Any]]) -> Iterator[Goal]:
    by_name = {str(each["pass"]): each for each in passes}
    for kind, bound in ((claims.FILLING, 0.9), (claims.OWN, 0.8)):
        yield Goal(
            f"CPU of Redis for an id, {kind} / a bare HSETNX",
            bound,
            by_name.get(kind, {}).get("of_bare"),
        )
    held = by_name.get(claims.NEW, {})
    yield Goal("resident bytes of an id in Redis", 98, held.get("resident_per_id"))


def _latency(rates: list[dict[str, Any]]) -> Iterator[Goal]:
    by_rate: dict[int, Runs] = {each["rate"]: each["runs"] for each in rates}
    for rate in (1_000, 10_000):
        for share, words in (("p50_ms", "p50"), ("p99_ms", "p99")):
            found = results.median_ratio(by_rate.get(rate, {}), BARE, PLAIN.name, share)
            yield Goal(f"{words} at {rate:,} records/s, claims / plain loop", 0.9, found)


def _growth(runs: dict[str, Runs]) -> float | None:
    by_count = runs.get(FUNCTION, {})
    medians = [
        statistics.median(found)
        for count in by_count
        if (found := results.values(by_count, count, CPU))
    ]
    return max(medians) / min(medians) if len(medians) > 1 else None


def _spark(runs: Runs) -> Iterator[Goal]:
    name = OURS_NATIVE if OURS_NATIVE in runs else OURS
    yield Goal(
        f"records/s on Spark, records form / {ARROW}",
        1.0,
        results.median_ratio(runs, name, ARROW, RATE),
        at_most=False,
    )
    yield Goal(
        f"CPU on Spark, records form / {UDF}", 0.8, results.median_ratio(runs, name, UDF, CPU)
    )


def _state(part: dict[str, Any]) -> Iterator[Goal]:
    runs, one = part.get("runs", {}), COUNTING.name
    cpu = results.median_ratio(runs, one, state.STATELESS.name, CPU)
    yield Goal("CPU, count per key / a function without state", 1.6, cpu)
    rate = results.median_ratio(runs, one, STREAMS_COUNTING.name, RATE)
    yield Goal(f"records/s, the same / {STREAMS_COUNTING.name}", 1.0, rate, at_most=False)
    paced: Runs = next((each["runs"] for each in part.get("rates", [])), {})
    rounds = zip(paced.get(one, []), paced.get(state.STATELESS.name, []), strict=False)
    added = [a["p50_ms"] - b["p50_ms"] for a, b in rounds if a and b]
    title = f"ms that a count per key adds to p50 at {state.RATE:,} records/s"
    yield Goal(title, 1.0, statistics.median(added) if added else None)


def _recovery(sizes: list[dict[str, Any]]) -> Iterator[Goal]:
    for size in sizes:
        runs: Runs = size["runs"]
        keys, median = f"{size['keys']:,} keys", partial(_median, runs)
        with_disk, without = (median(each, "first_ms") for each in (state.KEPT, state.NONE))
        more = None if with_disk is None or without is None else with_disk - without
        yield Goal(f"ms more to the first output after a kill, {keys} on its disk", 1000, more)
        rate = median(state.LOST, "keys_per_s")
        yield Goal(f"keys/s from the changelog, {keys}", 300_000, rate, at_most=False)
        yield Goal(f"own memory in MB, {keys}", 200, median(state.LOST, "own_mb"))

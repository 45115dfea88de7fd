"""End to end latency at a given pace: from the time a record was due to be sent until a
read_committed reader has its output."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import traffic
from bench.contenders import Contender, Job
from bench.measure import VoidRunError, noise, percentile
from bench.results import Made, Run, Runs
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

RATES = (1_000, 10_000)
START_S = 3.0
WARM_S, WARM_JVM_S = 3.0, 15.0
"""At the start of a run, not counted; a JVM compiles for longer."""
KEPT_UP_MS = 1000.0
"""A median above it is the length of a queue: machine or program cannot hold the pace."""
SHARES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
LEAVE_TIMEOUT_S = 30.0


class Pace:
    """Runs at a fixed pace on a sandbox."""

    rates: Sequence[int] = RATES

    def __init__(self, sandbox: Sandbox, folder: Path, keys: int = traffic.KEYS) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._keys = keys
        self._runs = 0

    def run(self, who: Contender, rate: int, seconds: float) -> Run:
        """Return percentiles, CPU and memory of one run; raises VoidRunError."""
        self._runs += 1
        label = f"pace-{self._runs}"
        source, target = f"in-{label}", f"out-{label}"
        for topic in (source, target):
            self._sandbox.create_topic(topic, traffic.PARTITIONS)
        warm = int(rate * (WARM_JVM_S if who.warms else WARM_S))
        servers, records = self._sandbox.bootstrap_servers, warm + int(rate * seconds)
        spawn = multiprocessing.get_context("spawn")
        near, far = spawn.Pipe()
        named, counts = source if who.headers else None, (records, warm)
        receiver = spawn.Process(
            target=traffic.receive,
            args=(servers, target, named, counts, far, self._keys, who.counted),
        )
        log = self._folder / f"{label}.log"
        child = who.start(Job(self._sandbox, label, source, target, log, at_end=False))
        receiver.start()
        try:
            near.recv()
            start_ns = time.monotonic_ns() + int(START_S * 1e9)
            sender = spawn.Process(
                target=traffic.send, args=(servers, source, rate, records, start_ns, self._keys)
            )
            sender.start()
            found = near.recv()
            sender.join()
            child.stop()
            spent = child.wait(LEAVE_TIMEOUT_S)
        finally:
            child.kill()
            receiver.terminate()
        if isinstance(found, VoidRunError):
            raise found
        found.sort()
        if (median_ms := percentile(found, 0.5)) > KEPT_UP_MS:
            raise VoidRunError(
                f"it did not keep up with {rate:,} records/s: p50 {median_ms:,.0f} ms of waiting"
            )
        return {name: percentile(found, share) for name, share in SHARES.items()} | {
            "cpu_s": spent.cpu_s,
            "rss_mb": spent.rss_mb,
        }


def measure(
    pace: Pace, who: Sequence[Contender], rounds: int, seconds: float, made: Made
) -> Iterator[dict[str, Any]]:
    """Run all contenders in turn, ``rounds`` times at each pace."""
    rates: list[dict[str, Any]] = []
    # The brokers make their own topics for the first transaction: no contender should pay for it.
    with suppress(VoidRunError):
        pace.run(who[0], min(RATES), 1.0)
    for rate in pace.rates:
        runs: Runs = {each.name: [] for each in who}
        rates.append({"rate": rate, "runs": runs})
        for turn in range(rounds):
            for each in who:
                where = f"{rate:,} records/s, round {turn + 1}, {each.name}"
                try:
                    run = pace.run(each, rate, seconds)
                except VoidRunError as error:
                    made.void(where, error)
                    runs[each.name].append(None)
                    continue
                runs[each.name].append(run)
                words = ", ".join(f"{run[name]:.1f}" for name in SHARES)
                say(f"{where}: p50, p99, p99.9: {words} ms ({noise()})")
            yield {"seconds": seconds, "rates": rates}

"""End to end latency at a given pace: from the time a record was due to be sent until a
read_committed reader has its output."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Any

from bench import contenders, traffic
from bench.measure import Summary, VoidRunError, noise, percentile
from hapax.sandbox.progress import say

if TYPE_CHECKING:
    from pathlib import Path

    from bench.contenders import Contender
    from hapax.sandbox import Sandbox

RATIO_MAX = 1.3
RATES = (1_000, 10_000)
START_S, WARM_S = 3.0, 3.0
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
LEAVE_TIMEOUT_S = 30.0


def _run(
    sandbox: Sandbox, who: Contender, rate: int, seconds: float, label: str, folder: Path
) -> dict[str, float]:
    topics = (f"in-{label}", f"out-{label}")
    for topic in topics:
        sandbox.create_topic(topic, traffic.PARTITIONS)
    servers, records = sandbox.bootstrap_servers, int(rate * (WARM_S + seconds))
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    receiver = spawn.Process(
        target=traffic.receive, args=(servers, topics[1], records, int(rate * WARM_S), theirs)
    )
    child = who.start(sandbox, label, topics, folder / f"{label}.log", at_end=False)
    receiver.start()
    try:
        ours.recv()
        start_ns = time.monotonic_ns() + int(START_S * 1e9)
        sender = spawn.Process(
            target=traffic.send, args=(servers, topics[0], rate, records, start_ns)
        )
        sender.start()
        found = ours.recv()
        sender.join()
        child.stop()
        spent = child.wait(LEAVE_TIMEOUT_S)
    finally:
        child.kill()
        receiver.terminate()
    if isinstance(found, VoidRunError):
        raise found
    found.sort()
    return {name: percentile(found, share) for name, share in SHARES.items()} | {
        "cpu_s": spent.cpu_s
    }


def measure(
    sandbox: Sandbox, rates: tuple[int, ...], rounds: int, seconds: float, folder: Path
) -> dict[str, Any]:
    """Run all contenders in turn, ``rounds`` times at each pace."""
    results = []
    # The brokers make their own topics for the first transaction: nobody should pay for that.
    _run(sandbox, contenders.PLAIN, min(rates), 1.0, "warm-up", folder)
    for rate in rates:
        runs: dict[str, list[dict[str, float]]] = {who.name: [] for who in contenders.ALL}
        for turn in range(rounds):
            for who in contenders.ALL:
                label = f"{who.name.replace(', ', '-').replace(' ', '-').lower()}-{rate}-{turn}"
                run = _run(sandbox, who, rate, seconds, label, folder)
                runs[who.name].append(run)
                words = ", ".join(f"{name} {run[name]:.1f}" for name in SHARES)
                say(f"{rate:,}/s, round {turn + 1}, {who.name}: {words} ms ({noise()})")
        results.append({"rate": rate, "seconds": seconds, "runs": runs})
    return {"rates": results}


def ratios(runs: dict[str, list[dict[str, float]]], who: str, share: str) -> Summary:
    """Return a percentile against that of the plain loop of the same round."""
    control = runs[contenders.PLAIN.name]
    return Summary.of(
        [one[share] / other[share] for one, other in zip(runs[who], control, strict=True)]
    )


def table(found: dict[str, Any]) -> list[str]:
    lines = [
        "|records/s| |p50 ms|p99 ms|p99.9 ms|p50, p99 against the plain loop|CPU s of a run|",
        "|---|---|---|---|---|---|---|",
    ]
    for result in found["rates"]:
        runs = result["runs"]
        for name, found_runs in runs.items():
            columns = [Summary.of([run[share] for run in found_runs]).text(1) for share in SHARES]
            against = ", ".join(ratios(runs, name, share).text(2) for share in ("p50", "p99"))
            cpu = Summary.of([run["cpu_s"] for run in found_runs]).median
            lines.append(f"|{result['rate']:,}|{name}|{'|'.join(columns)}|{against}|{cpu:.1f}|")
    return lines

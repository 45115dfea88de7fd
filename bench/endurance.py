"""An hour at a pace: whether memory, files and threads of a worker and of its store stay the same.

    python -m bench.endurance                                  # 60 minutes at 10,000 records/s
    python -m bench.endurance --minutes 10 --rate 2000 --json build/bench/endurance.json

Claims live for a sixth of the time (six minutes at least), so ids come and go; topics keep records
for ten minutes. Each record must have one output. The exit code is 1 when one is missing or
doubled, or when the median of a figure in the last quarter is more than 5 % above that of the
second one: the first quarter fills what is bounded.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import redis

from bench import facts, results, traffic
from bench.contenders import FUNCTION, Job, Service
from bench.measure import VoidRunError, noise
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

SAMPLE_S = 15.0
GROWTH_MAX = 1.05
START_S = 5.0
LEAVE_TIMEOUT_S = 60.0
KEPT = {"retention.ms": "600000", "segment.bytes": str(64 << 20)}
FIGURES = ("resident MB", "files", "threads", "Redis resident MB")


def process_figures(pid: int) -> dict[str, float]:
    """Return resident memory, open file descriptors and threads of a process."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {
        "resident MB": int(fields["VmRSS"].split()[0]) / 1024,
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(fields["Threads"]),
    }


def count_once(servers: str, topic: str, records: int, answer: Connection) -> None:
    """Send how many outputs are late by more than a second, or the error."""
    seen, late, doubled = bytearray(records), 0, 0
    try:
        for messages in traffic.read(servers, topic, records):
            now_ns = time.monotonic_ns()
            for message in messages:
                number, due_ns = traffic.stamp_of(message)
                doubled += seen[number]
                seen[number] = 1
                late += now_ns - due_ns > 1_000_000_000
    except VoidRunError as error:
        answer.send(error)
        return
    wrong = f"{seen.count(0)} records have no output, {doubled} have two"
    answer.send(VoidRunError(wrong) if doubled or not all(seen) else late)


def verdict(samples: list[dict[str, float]]) -> dict[str, Any]:
    """Return for each figure the median of each quarter, and whether the last one is larger."""
    quarter = max(1, len(samples) // 4)
    found = {}
    for name in FIGURES:
        values = [one[name] for one in samples]
        medians = [round(median(values[at * quarter :][:quarter]), 1) for at in range(4)]
        flat = medians[3] <= medians[1] * GROWTH_MAX
        found[name] = {"quarters": medians, "most": round(max(values), 1), "flat": flat}
    return found


def run(minutes: float, rate: int) -> dict[str, Any]:
    """Run a worker for so long; raise VoidRunError when an output is missing or doubled."""
    records, spawn = int(minutes * 60 * rate), multiprocessing.get_context("spawn")
    lives_s = max(360, int(minutes * 10))
    who = Service(
        name="Hapax, claims, function",
        claims=True,
        transform=FUNCTION,
        more=(("HAPAX_DEDUP__TTL", f"{lives_s}s"), ("HAPAX_TELEMETRY__LOG_LEVEL", "warning")),
    )
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        servers, store = sandbox.bootstrap_servers, redis.Redis.from_url(sandbox.redis_url)
        for topic in ("in", "out"):
            sandbox.create_topic(topic, traffic.PARTITIONS, KEPT)
        near, far = spawn.Pipe()
        child = who.start(
            Job(sandbox, "endurance", "in", "out", Path(folder) / "log", at_end=False)
        )
        start_ns = time.monotonic_ns() + int(START_S * 1e9)
        others = [
            spawn.Process(target=count_once, args=(servers, "out", records, far)),
            spawn.Process(target=traffic.send, args=(servers, "in", rate, records, start_ns)),
        ]
        try:
            for each in others:
                each.start()
            samples: list[dict[str, float]] = []
            while not near.poll(SAMPLE_S):
                if "VmRSS" not in Path(f"/proc/{child.pid}/status").read_text("utf-8"):
                    child.wait(LEAVE_TIMEOUT_S)  # it has ended by itself, and says why
                resident = int(store.info("memory")["used_memory_rss"]) / (1 << 20)
                samples.append(process_figures(child.pid) | {"Redis resident MB": resident})
                if len(samples) % 20 == 0:
                    words = ", ".join(f"{name} {samples[-1][name]:,.0f}" for name in FIGURES)
                    say(f"after {len(samples) * SAMPLE_S / 60:.0f} minutes: {words} ({noise()})")
            late = near.recv()
            child.stop()
            spent = child.wait(LEAVE_TIMEOUT_S)
        finally:
            child.kill()
            for each in others:
                each.kill()
        if isinstance(late, VoidRunError):
            raise late
    return {
        "minutes": minutes,
        "rate": rate,
        "records": records,
        "late_by_a_second": late,
        "cpu_us_per_record": round(1e6 * spent.cpu_s / records, 2),
        "figures": verdict(samples),
        "machine": facts.of_machine(),
    }


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=10_000, help="Records a second.")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    try:
        found = run(given.minutes, given.rate)
    except VoidRunError as error:
        raise SystemExit(f"void: {error}") from error
    if given.json:
        results.write(found, given.json)
    print(json.dumps(found, indent=1))
    if grown := [name for name, one in found["figures"].items() if not one["flat"]]:
        raise SystemExit(f"not flat: {', '.join(grown)}")


if __name__ == "__main__":
    main()

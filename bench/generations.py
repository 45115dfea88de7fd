"""Many live ids in the claim store, and one generation that passes into the next under load.

    python -m bench.generations                                # 100 million ids: 9 GB of memory
    python -m bench.generations --ids 1000000 --ttl-minutes 1  # a trial of it

The store is filled as fast as it takes ids; then ids come at a pace until the first generation has
ended, and with each batch ids that are still remembered come again from elsewhere: each of them
must be known. Told are the slowest requests of each part, and all that took more than 100 ms. The
append-only file is on and not rewritten: the fork of a rewrite is another matter. The exit code is
1 when an id was claimed twice or a request of the second part took more than 100 ms.
"""

import argparse
import json
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import redis

from bench import claims, facts, results
from bench.measure import noise, percentile
from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.sandbox.machine import say
from hapax.sandbox.processes import Ports
from hapax.sandbox.servers import Redis
from hapax.sandbox.watchdog import ChildWatchdog

FILL_BATCH, BATCH = 10_000, 1_000
AGAIN = 100
"""Ids that come again with each batch."""
ELSEWHERE = 10**9
SLOW_MS = 100.0
SAY_S = 30.0


class Load:
    """Claims ids by their number, and keeps how long each request took."""

    def __init__(self, server: Redis, ttl_ms: int) -> None:
        self._claims = RedisClaims(server.url, StoreOptions("bench", ttl_ms))
        self._said_s = time.monotonic()
        self.took_ms: list[float] = []
        self.doubled = 0

    def claim(self, start: int, size: int, shift: int = 0) -> int:
        """Claim so many ids; return how many were known."""
        ids, records = claims.batch(start, size, shift=shift)
        began_s = time.perf_counter()
        known = len(self._claims.claim(ids, records, {}))
        self.took_ms.append(1000 * (time.perf_counter() - began_s))
        return known

    def new(self, start: int, size: int) -> None:
        if known := self.claim(start, size):
            raise SystemExit(f"{known} ids from {start} on are new and were known")
        if time.monotonic() - self._said_s > SAY_S:
            self._said_s = time.monotonic()
            worst_ms = max(self.took_ms[-1000:])
            say(f"{start + size:,} ids; worst of late {worst_ms:.0f} ms ({noise()})")

    def again(self, start: int, size: int) -> None:
        self.doubled += size - self.claim(start, size, ELSEWHERE)

    def end(self) -> dict[str, Any]:
        """Return the figures of the requests so far, and forget them."""
        ordered, self.took_ms = sorted(self.took_ms), []
        return {
            "requests": len(ordered),
            "p50_ms": round(percentile(ordered, 0.5), 2),
            "p999_ms": round(percentile(ordered, 0.999), 2),
            "slowest_ms": [round(each, 1) for each in ordered[-5:]],
            "above_100_ms": sum(each > SLOW_MS for each in ordered),
        }


def measured(server: Redis, ids: int, ttl_s: float, rate: int) -> dict[str, Any]:
    """Fill, then claim at a pace until what was filled first has ended."""
    admin, load = redis.Redis(port=server.port), Load(server, int(ttl_s * 1000))
    admin.config_set("auto-aof-rewrite-percentage", 0)
    began_s = time.monotonic()
    for start in range(0, ids, FILL_BATCH):
        load.new(start, FILL_BATCH)
    filled_s, filling = time.monotonic() - began_s, load.end()
    resident = int(admin.info("memory")["used_memory_rss"])
    recent: deque[tuple[float, int]] = deque()
    number, paced_s = ids, time.monotonic()
    # One and a half times the time to live after its beginning, and some seconds of the next one.
    while (now_s := time.monotonic()) < began_s + 1.5 * ttl_s + 10:
        load.new(number, BATCH)
        recent.append((now_s, number))
        number += BATCH
        while recent[0][0] < now_s - 0.9 * ttl_s:
            recent.popleft()
        load.again(recent[number // BATCH * 7919 % len(recent)][1], AGAIN)
        due_s = paced_s + (number - ids) / rate
        time.sleep(max(0.0, due_s - time.monotonic()))  # the pace itself
    return {
        "ids": ids,
        "ttl_s": ttl_s,
        "rate": rate,
        "filled_s": round(filled_s, 1),
        "resident_bytes_per_id": round(resident / ids, 1),
        "filling": filling,
        "passing": load.end(),
        "ids_left": sum(admin.hlen(key) for key in admin.scan_iter("hapax:{bench}:claims:*:*:*")),
        "claimed_twice": load.doubled,
        "machine": facts.of_machine(),
    }


def main() -> None:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000_000)
    parser.add_argument("--ttl-minutes", type=float, default=12.0, help="More than it fills in.")
    parser.add_argument("--rate", type=int, default=10_000, help="Ids a second, once it is filled.")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    watchdog, ports = ChildWatchdog(), Ports()
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder), ports, watchdog)
        server.start()
        try:
            server.await_ready()
            found = measured(server, given.ids, given.ttl_minutes * 60, given.rate)
        finally:
            server.kill()
            ports.close()
            watchdog.close()
    if given.json:
        results.write(found, given.json)
    print(json.dumps(found, indent=1))
    if found["claimed_twice"] or found["passing"]["above_100_ms"]:
        raise SystemExit("an id was claimed twice, or a request took more than 100 ms")


if __name__ == "__main__":
    main()

"""What claims cost: ids a second, client and server microseconds and Redis bytes for each id.

    python bench/claims.py [--ids 1000000] [--batch 5000] [--json]

Starts a Redis of its own, with an append-only file as in production. Four passes over the same
ids: new ones, the same again (own), the same at other coordinates (foreign), and new ones while
an older time slice is looked up first, as in a store that has run for more than one TTL.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.core.records import Record
from hapax.sandbox.ports import Ports
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

APP = "bench"
PARTITIONS = 4
DAY_MS = 86_400_000
BATCH = 5_000


def batches(total: int, size: int, *, kind: str, shift: int) -> Iterator[tuple[list[bytes], Any]]:
    """Yield ids as a producer would make them, and records in runs of their partitions."""
    run = size // PARTITIONS or 1
    for start in range(0, total, size):
        places = range(start, min(start + size, total))
        ids = [b"%b-%012d-9f2c41d8" % (kind.encode(), place) for place in places]
        yield (
            ids,
            [
                Record("orders", (place - start) // run, shift + place, None, None)
                for place in places
            ],
        )


def measure(
    name: str, store: RedisClaims, admin: redis.Redis, made: Iterator[tuple[list[bytes], Any]]
) -> dict[str, Any]:
    count = foreign = 0
    wall_s = client_s = 0.0
    server_s, memory = cpu_s(admin), used_memory(admin)
    for ids, records in made:
        wall, client = time.perf_counter(), time.process_time()
        foreign += len(store.claim(ids, records, {}))
        wall_s += time.perf_counter() - wall
        client_s += time.process_time() - client
        count += len(ids)
    return {
        "pass": name,
        "ids": count,
        "foreign": foreign,
        "ids_per_s": round(count / wall_s),
        "client_us_per_id": round(client_s / count * 1e6, 3),
        "server_us_per_id": round((cpu_s(admin) - server_s) / count * 1e6, 3),
        "bytes_per_id": round((used_memory(admin) - memory) / count, 1),
    }


def cpu_s(admin: redis.Redis) -> float:
    found = admin.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def used_memory(admin: redis.Redis) -> int:
    """Return bytes without the buffers of clients and of the append-only file."""
    found = admin.info("memory")
    return int(found["used_memory"] - found["mem_clients_normal"] - found["mem_aof_buffer"])


def passes(server: Redis, total: int, size: int) -> Iterator[dict[str, Any]]:
    admin = redis.Redis(port=server.port)
    store = RedisClaims(server.url, StoreOptions(APP, DAY_MS))
    store.claim([b"warm"], [Record("orders", 0, 0, None, None)], {})
    for name, shift in (("new", 0), ("own", 0), ("foreign", total)):
        made = batches(total, size, kind="first", shift=shift)
        yield measure(name, store, admin, made)
    # A longer TTL closes the segment: it stays live, and is looked up before the next one.
    older = RedisClaims(server.url, StoreOptions(APP, 3 * DAY_MS))
    yield measure(
        "new, two slices", older, admin, batches(total, size, kind="second", shift=2 * total)
    )


def run(ids: int, batch: int) -> dict[str, Any]:
    """Measure all passes on a Redis of their own."""
    watchdog, ports = ChildWatchdog(), Ports()
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder) / "redis", ports, watchdog)
        server.start()
        try:
            server.await_ready()
            return {"batch": batch, "passes": list(passes(server, ids, batch))}
        finally:
            server.kill()
            ports.close()
            watchdog.close()


def table(found: dict[str, Any]) -> list[str]:
    results = found["passes"]
    columns = list(results[0])
    lines = [f"|{'|'.join(columns)}|", "|---" * len(columns) + "|"]
    lines += [f"|{'|'.join(str(result[column]) for column in columns)}|" for result in results]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="What claims cost.")
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.ids, asked.batch)
    print(json.dumps(found) if asked.json else "\n".join(table(found)))


if __name__ == "__main__":
    main()

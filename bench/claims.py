"""What claims cost: server CPU and Redis bytes for each id, of the store and of the format before.

    python -m bench.claims [--ids 330000] [--batch 5000] [--rounds 6] [--json]

Each format has a Redis of its own, with an append-only file as in production. Both are filled with
the same ids first, so that buckets have grown as they do; what that costs, growth and all, is told
apart ("filling"). Then they take turns, batch by batch, so that a noisy machine hits both: ids that
are new, the same again (own), the same at other coordinates (foreign). Told are the least and the
median of the rounds, and the median of the ratios within a round. Expiry times are set throughout.
"""

from __future__ import annotations

import argparse
import json
import statistics
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
    from collections.abc import Iterator, Sequence

APP = "bench"
PARTITIONS = 4
DAY_MS = 86_400_000
BATCH = 5_000
IDS, ROUNDS = 330_000, 6
"""From the end of one growth of the buckets (327,680 ids) to the beginning of the next (393,216):
an app that claims as many ids as it forgets has none. With other numbers the rows may hold some."""
OLD, NOW = "before", "now"
KINDS = ("new", "own", "foreign")


class Contender:
    """One format, on a server of its own."""

    def __init__(self, name: str, server: Redis) -> None:
        self.name = name
        self.admin = redis.Redis(port=server.port)
        if name == OLD:
            # What the first call of an earlier version leaves behind.
            self.admin.hset(f"hapax:{{{APP}}}:claims", "epoch", "0" * 8)
        self.store = RedisClaims(server.url, StoreOptions(APP, DAY_MS))
        self.store.claim([b"warm"], [Record("orders", 0, 0, None, None)], {})
        self.memory = used_memory(self.admin)
        self.server_us: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.client_us: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.filling_us = self.bytes_per_id = 0.0

    def claim(self, ids: list[bytes], records: Sequence[Record]) -> tuple[float, float, int]:
        """Return microseconds of CPU an id, on the server and here, and how many were foreign."""
        server_s, client_s = cpu_s(self.admin), time.process_time()
        foreign = len(self.store.claim(ids, records, {}))
        client_s = time.process_time() - client_s
        server_s = cpu_s(self.admin) - server_s
        return server_s / len(ids) * 1e6, client_s / len(ids) * 1e6, foreign

    def fill(self, ids: int, size: int) -> None:
        server_s = cpu_s(self.admin)
        for start in range(0, ids, size):
            self.store.claim(*batch(start, min(size, ids - start)), {})
        self.filling_us = (cpu_s(self.admin) - server_s) / ids * 1e6
        self.bytes_per_id = (used_memory(self.admin) - self.memory) / ids

    def round(self, kind: str, start: int, size: int) -> None:
        shift = 10**9 if kind == "foreign" else 0
        server_us, client_us, foreign = self.claim(*batch(start, size, shift=shift))
        assert foreign == (size if kind == "foreign" else 0), (kind, foreign)
        self.server_us[kind].append(server_us)
        self.client_us[kind].append(client_us)


def batch(start: int, size: int, *, shift: int = 0) -> tuple[list[bytes], list[Record]]:
    """Return ids as a producer would make them, and records in runs of their partitions."""
    run = size // PARTITIONS or 1
    places = range(start, start + size)
    ids = [b"first-%012d-9f2c41d8" % place for place in places]
    return ids, [
        Record("orders", (place - start) // run, shift + place, None, None) for place in places
    ]


def cpu_s(admin: redis.Redis) -> float:
    found = admin.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def used_memory(admin: redis.Redis) -> int:
    """Return bytes without the buffers of clients and of the append-only file."""
    found = admin.info("memory")
    return int(found["used_memory"] - found["mem_clients_normal"] - found["mem_aof_buffer"])


def servers(folder: Path, watchdog: ChildWatchdog, ports: Ports) -> Iterator[tuple[str, Redis]]:
    for name in (OLD, NOW):
        yield name, Redis(folder / name, ports, watchdog)


def measured(contenders: Sequence[Contender], ids: int, size: int, rounds: int) -> dict[str, Any]:
    for each in contenders:
        each.fill(ids, size)
    for number in range(rounds):
        # A kind at a time, and both right after one another; who is first changes by turns.
        for kind in KINDS:
            for each in contenders[:: 1 if number % 2 else -1]:
                # The first batches of a kind show a store what to expect; they do not count.
                start = ids + number * 4 * size
                for step in range(2):
                    at = start + (2 * KINDS.index("new") + step) * size
                    each.round(kind, at, size)
    before, now = contenders
    return {
        "ids": ids,
        "batch": size,
        "rounds": rounds,
        "passes": [row(kind, before, now) for kind in KINDS],
        "filling": {each.name: round(each.filling_us, 2) for each in contenders},
        "bytes_per_id": {each.name: round(each.bytes_per_id, 1) for each in contenders},
    }


def row(kind: str, before: Contender, now: Contender) -> dict[str, Any]:
    # Every second batch: the one that its kind was expected in.
    old, new = before.server_us[kind][1::2], now.server_us[kind][1::2]
    ratios = [b / a for a, b in zip(old, new, strict=True)]
    return {
        "pass": kind,
        "before: server us/id": f"{min(old):.2f} ({statistics.median(old):.2f})",
        "now: server us/id": f"{min(new):.2f} ({statistics.median(new):.2f})",
        "now / before": round(statistics.median(ratios), 3),
        "of the least": round(min(new) / min(old), 3),
        "before: client us/id": round(min(before.client_us[kind][1::2]), 2),
        "now: client us/id": round(min(now.client_us[kind][1::2]), 2),
    }


def run(ids: int, size: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure both formats, each on a Redis of its own."""
    watchdog, ports = ChildWatchdog(), Ports()
    started: list[Redis] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            contenders = []
            for name, server in servers(Path(folder), watchdog, ports):
                server.start()
                started.append(server)
                server.await_ready()
                contenders.append(Contender(name, server))
            return measured(contenders, ids, size, rounds)
        finally:
            for server in started:
                server.kill()
            ports.close()
            watchdog.close()


def table(found: dict[str, Any]) -> list[str]:
    results = found["passes"]
    columns = list(results[0])
    lines = [f"|{'|'.join(columns)}|", "|---" * len(columns) + "|"]
    lines += [f"|{'|'.join(str(result[column]) for column in columns)}|" for result in results]
    for what in ("filling", "bytes_per_id"):
        lines.append(f"{what}: " + ", ".join(f"{name} {n}" for name, n in found[what].items()))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="What claims cost.")
    parser.add_argument("--ids", type=int, default=IDS)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.ids, asked.batch, asked.rounds)
    print(json.dumps(found) if asked.json else "\n".join(table(found)))


if __name__ == "__main__":
    main()

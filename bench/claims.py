"""What claims cost: server CPU and Redis bytes for each id, alongside bare HSETNX commands.

    python -m bench.claims [--ids 300000] [--batch 5000] [--rounds 9] [--json]

Compared are the store and the yardstick between machines: HSETNX of 14 bytes of a digest in one of
65,536 hashes, with 9 bytes of an owner, in a pipeline, and nothing else (nothing expires, and the
answer does not say who owns an id that is known).

Each has a server of its own, with an append-only file as in production. All are filled from nothing
with the same ids first ("filling"): the growth of the store is part of it. Then they take turns,
batch by batch, so that a noisy machine hits all: ids that are new, the same again (own), the same
at other coordinates (foreign). Told are medians, and the median of the ratios to the yardstick
within a round; memory is resident, and as the server counts it.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import redis

from bench.measure import server_cpu_s
from hapax.claims.kind import StoreOptions
from hapax.claims.redis import RedisClaims
from hapax.claims.redis_connection import connect
from hapax.core.records import Record
from hapax.sandbox.processes import Ports
from hapax.sandbox.servers import Redis
from hapax.sandbox.watchdog import ChildWatchdog

Claim = Callable[[Sequence[bytes], Sequence[Record]], int]
"""Claims ids, and returns how many were known before, as far as it can tell."""

APP = "bench"
PARTITIONS = 4
DAY_MS = 86_400_000
BATCH = 5_000
IDS, ROUNDS = 300_000, 9
NOW, BARE = "", "bare HSETNX, "
"""What the names of their rows begin with."""
NEW, OWN, FOREIGN = KINDS = ("new", "own", "foreign")
FILLING = "filling"


class Spent(NamedTuple):
    """Microseconds an id: by the clock, CPU here, CPU of the server."""

    wall: float
    client: float
    server: float


class Contender:
    """One of them, on a server of its own.

    knows  the kinds of ids that it calls known
    """

    def __init__(self, name: str, server: Redis, make: Callable[[Redis], Claim]) -> None:
        self.name = name
        self.knows = (FOREIGN,) if name in STORES else (OWN, FOREIGN)
        self.spent: dict[str, list[Spent]] = {kind: [] for kind in (FILLING, *KINDS)}
        self._pid, self._admin = server.pid, redis.Redis(port=server.port)
        self._empty, self._empty_rss = self._used_memory(), self._rss()
        self._claim = make(server)

    def bytes_of(self, ids: int) -> float:
        return (self._used_memory() - self._empty) / ids

    def resident_of(self, ids: int) -> float:
        return (self._rss() - self._empty_rss) / ids

    def _rss(self) -> int:
        return int(self._admin.info("memory")["used_memory_rss"])

    def round(self, kind: str, start: int, size: int) -> None:
        known, spent = self._spend(*batch(start, size, shift=10**9 if kind == FOREIGN else 0))
        assert known == (size if kind in self.knows else 0), (self.name, kind, known)
        self.spent[kind].append(spent)

    def _spend(self, ids: Sequence[bytes], records: Sequence[Record]) -> tuple[int, Spent]:
        server_s, client_s = server_cpu_s(self._pid), time.process_time()
        began_s = time.perf_counter()
        known = self._claim(ids, records)
        spent_s = (
            time.perf_counter() - began_s,
            time.process_time() - client_s,
            server_cpu_s(self._pid) - server_s,
        )
        return known, Spent(*(each / len(ids) * 1e6 for each in spent_s))

    def _used_memory(self) -> int:
        """Return bytes without the buffers of clients and of the append-only file."""
        found = self._admin.info("memory")
        return int(found["used_memory"] - found["mem_clients_normal"] - found["mem_aof_buffer"])


def store(server: Redis) -> Claim:
    claims = RedisClaims(server.url, StoreOptions(APP, DAY_MS))
    return lambda ids, records: len(claims.claim(ids, records, {}))


def hsetnx(server: Redis) -> Claim:
    """Return bare commands into 65,536 hashes."""
    client = connect(server.url)
    form = b"*4\r\n$6\r\nHSETNX\r\n$3\r\nb%b\r\n$14\r\n%b\r\n$9\r\n%c%b\r\n"

    def claim(ids: Sequence[bytes], records: Sequence[Record]) -> int:
        digests = [blake2b(each, digest_size=16).digest() for each in ids]
        request = b"".join(
            form % (digest[:2], digest[2:], each.partition, each.offset.to_bytes(8, "big"))
            for digest, each in zip(digests, records, strict=True)
        )
        connection = client.connection_pool.get_connection()
        connection.send_packed_command([request])  # type: ignore[no-untyped-call]
        replies = b""
        while len(replies) < len(b":1\r\n") * len(ids):
            # The client has no call for bytes as they come.
            replies += connection._sock.recv(1 << 16)  # type: ignore[attr-defined]  # noqa: SLF001
        client.connection_pool.release(connection)
        return replies.count(b":0")

    return claim


STORES = {NOW: store}


def batch(start: int, size: int, *, shift: int = 0) -> tuple[list[bytes], list[Record]]:
    """Return ids as a producer would make them, and records in runs of their partitions."""
    run = size // PARTITIONS or 1
    places = range(start, start + size)
    ids = [b"first-%012d-9f2c41d8" % place for place in places]
    return ids, [
        Record("orders", (place - start) // run, shift + place, None, None) for place in places
    ]


def measured(contenders: Sequence[Contender], ids: int, size: int, rounds: int) -> dict[str, Any]:
    for start in range(0, ids, size):
        for each in contenders:
            each.round(FILLING, start, min(size, ids - start))
    held = {
        each.name: {
            "bytes_per_id": round(each.bytes_of(ids), 1),
            "resident_per_id": round(each.resident_of(ids), 1),
        }
        for each in contenders
    }
    nothing = {"bytes_per_id": 0.0, "resident_per_id": 0.0}
    for number in range(rounds):
        # A kind at a time, and all right after one another; who is first changes by turns.
        for kind in KINDS:
            for each in contenders[:: 1 if number % 2 else -1]:
                # The first batch of a kind shows a store what to expect; it does not count.
                for step in range(2):
                    each.round(kind, ids + (2 * number + step) * size, size)
    yardstick = contenders[-1]
    passes = [
        row(each, kind, yardstick) | (held[each.name] if kind == NEW else nothing)
        for each in contenders
        for kind in (FILLING, *KINDS)
        if kind != FOREIGN or each.name in STORES
    ]
    return {"ids": ids, "batch": size, "rounds": rounds, "passes": passes}


def row(who: Contender, kind: str, yardstick: Contender) -> dict[str, Any]:
    # Every second batch: the one that its kind was expected in.
    spent, other = (each.spent[kind][kind != FILLING :: 2] for each in (who, yardstick))
    wall, client, server = map(statistics.median, zip(*spent, strict=True))
    ratios = [ours.server / bare.server for ours, bare in zip(spent, other, strict=True)]
    return {
        "pass": f"{who.name}{kind}",
        "ids_per_s": round(1e6 / wall),
        "client_us_per_id": round(client, 3),
        "server_us_per_id": round(server, 3),
        "least_server_us_per_id": round(min(each.server for each in spent), 3),
        "of_bare": round(statistics.median(ratios), 3),
    }


def run(ids: int = IDS, size: int = BATCH, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure all, each on a server of its own."""
    watchdog, ports = ChildWatchdog(), Ports()
    started: list[Redis] = []
    makers: dict[str, Callable[[Redis], Claim]] = {**STORES}
    with tempfile.TemporaryDirectory() as folder:
        try:
            contenders = []
            for name, make in (makers | {BARE: hsetnx}).items():
                server = Redis(Path(folder) / str(len(started)), ports, watchdog)
                server.start()
                started.append(server)
                server.await_ready()
                contenders.append(Contender(name, server, make))
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
    return lines + [f"|{'|'.join(str(each[column]) for column in columns)}|" for each in results]


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

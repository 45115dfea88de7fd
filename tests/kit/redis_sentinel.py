"""A Redis with a replica, and a sentinel that makes the replica the primary when it dies."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from hapax.sandbox import machine
from hapax.sandbox.ports import LOOPBACK, Ports
from hapax.sandbox.processes import Server
from hapax.sandbox.redis_server import Redis
from hapax.sandbox.watchdog import ChildWatchdog
from tests.kit.redis_cluster import follows
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVICE = "mymaster"
DOWN_AFTER_MS = 500
FAILOVER_TIMEOUT_MS = 2000


class Replica(Redis):
    """A Redis that follows another one from its start."""

    def __init__(self, folder: Path, ports: Ports, watchdog: ChildWatchdog, primary: Redis) -> None:
        self._primary = primary
        super().__init__(folder, ports, watchdog)

    def _arguments(self, folder: Path) -> list[str | Path]:
        return [*super()._arguments(folder), "--replicaof", LOOPBACK, str(self._primary.port)]


@contextmanager
def redis_sentinel(folder: Path) -> Iterator[tuple[Redis, Replica, str]]:
    """Run all three; give the servers and the address that names the sentinel."""
    watchdog, ports = ChildWatchdog(), Ports()
    primary = Redis(folder / "0", ports, watchdog)
    replica = Replica(folder / "1", ports, watchdog, primary)
    port = ports.reserve()
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"bind {LOOPBACK}\nport {port}\n"
        f"sentinel monitor {SERVICE} {LOOPBACK} {primary.port} 1\n"
        f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
    )
    command: list[str | Path] = [machine.redis_server(), configuration, "--sentinel"]
    sentinel = Server("Sentinel", command, folder / "sentinel.log", watchdog)
    try:
        for server in (primary, replica):
            server.start()
            server.await_ready()
        sentinel.start()
        await_(lambda: follows(replica, primary), 30, replica.last_words)
        # Until it has seen the replica it has nobody to promote.
        await_(lambda: "+slave" in sentinel.last_words(), 30, sentinel.last_words)
        yield primary, replica, f"redis+sentinel://{LOOPBACK}:{port}/{SERVICE}"
    finally:
        servers: tuple[Server, ...] = (sentinel, replica, primary)
        for each in servers:
            if each.running:
                each.kill()
        ports.close()
        watchdog.close()

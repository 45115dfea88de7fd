"""Nodes of a Redis cluster, slots that move between them, and a replica that takes over.

At first the first has all slots but one, which the second has; further ones follow the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hapax.sandbox.processes import Ports
from hapax.sandbox.servers import Redis
from hapax.sandbox.watchdog import ChildWatchdog
from tests.kit.claim_stores import admin
from tests.kit.waiting import await_

SLOTS = 16384
MOVE_MS = 5000
NODE_TIMEOUT_MS = 1000


class Node(Redis):
    def __init__(self, folder: Path, ports: Ports, watchdog: ChildWatchdog) -> None:
        self.bus_port = ports.reserve()  # by default its port + 10000, which may be none
        super().__init__(folder, ports, watchdog)

    def _arguments(self, folder: Path) -> list[str | Path]:
        bus_port = str(self.bus_port)
        return [
            *super()._arguments(folder),
            *("--cluster-enabled", "yes", "--cluster-port", bus_port),
            # A slot without a node is asked of nobody here.
            *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
            *("--cluster-require-full-coverage", "no"),
        ]

    def ask(self, *command: object) -> object:
        words = [each if isinstance(each, bytes) else str(each) for each in command]
        return admin(self).execute_command(*words)  # type: ignore[no-untyped-call]

    @property
    def node_id(self) -> str:
        return _text(self.ask("cluster", "myid"))


@contextmanager
def redis_cluster(folder: Path, count: int = 2) -> Iterator[tuple[Node, ...]]:
    watchdog, ports = ChildWatchdog(), Ports()
    nodes = tuple(Node(folder / str(number), ports, watchdog) for number in range(count))
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.await_ready()
        first, second, *replicas = nodes
        first.ask("cluster", "addslotsrange", 0, SLOTS - 2)
        # A node without any slot would become a replica of the other.
        second.ask("cluster", "addslotsrange", SLOTS - 1, SLOTS - 1)
        for node in nodes[1:]:
            first.ask("cluster", "meet", "127.0.0.1", node.port, node.bus_port)
        await_(lambda: all(_whole(node, count) for node in nodes), 30, first.last_words)
        for node in replicas:
            node.ask("cluster", "replicate", first.node_id)
        yield nodes
    finally:
        for node in nodes:
            if node.running:
                node.kill()
        ports.close()
        watchdog.close()


def move_slot(key: str, source: Node, target: Node) -> int:
    """Let another node have the slot of a key, with all that is in it; return how many keys."""
    slot, moved = source.ask("cluster", "keyslot", key), 0
    target.ask("cluster", "setslot", slot, "importing", source.node_id)
    source.ask("cluster", "setslot", slot, "migrating", target.node_id)
    while keys := source.ask("cluster", "getkeysinslot", slot, 10_000):
        assert isinstance(keys, list)
        source.ask("migrate", "127.0.0.1", target.port, "", 0, MOVE_MS, "keys", *keys)
        moved += len(keys)
    for node in (target, source):
        node.ask("cluster", "setslot", slot, "node", target.node_id)
    return moved


def take_over(node: Node) -> None:
    """Let a replica have the slots of its primary, which was killed."""
    node.ask("cluster", "failover", "takeover")
    await_(lambda: _replication(node)["role"] == "master", 30, node.last_words)


def follows(node: Redis, primary: Redis) -> bool:
    """Whether a replica has all that its primary has."""
    told, given = _replication(node), _replication(primary)
    same = told.get("slave_repl_offset") == given["master_repl_offset"]
    return bool(told.get("master_link_status") == "up" and same)


def _replication(server: Redis) -> dict[str, Any]:
    found: dict[str, Any] = admin(server).info("replication")
    return found


def _whole(node: Node, count: int) -> bool:
    told = _text(node.ask("cluster", "info"))
    return "cluster_state:ok" in told and f"cluster_known_nodes:{count}" in told


def _text(answer: object) -> str:
    return answer.decode() if isinstance(answer, bytes) else str(answer)

"""Strikes at the claim store: killed, frozen, slow, loading, read-only, refusing (R1, R2, R9)."""

import time

import redis

from tests.fault.scene import Scene
from tests.kit.waiting import reaches

TARGET = "redis"
READY_S = 60.0
LOGGED = 20_000
"""Writes that make a log long: a server that loads it answers once in 1,024 of them (Redis 7.0)."""


def kill(scene: Scene, seconds: float) -> None:
    """Kill it; it comes back with its data after so long."""
    scene.target = TARGET
    store = scene.stage.sandbox.redis
    scene.mark("kill")
    store.kill()
    scene.hit()
    time.sleep(seconds)
    store.start()
    store.await_ready()
    scene.heal()
    scene.mark("redis back")


def freeze(scene: Scene, seconds: float) -> None:
    """SIGSTOP: connections stay open and nothing answers."""
    scene.target = TARGET
    scene.freeze(scene.stage.sandbox.redis, seconds)


def slow(scene: Scene, times: int) -> None:
    """Let all answers wait for a second, again and again."""
    scene.target = TARGET
    with _client(scene) as client:
        for _ in range(times):
            client.execute_command("CLIENT", "PAUSE", 1000)
            scene.hit()
            time.sleep(1.1)
    scene.heal()
    scene.mark("last pause over")


def loading(scene: Scene, seconds: float) -> None:
    """Kill it, and let it load its data slowly: it answers LOADING meanwhile."""
    scene.target = TARGET
    store = scene.stage.sandbox.redis
    with _client(scene) as client, client.pipeline(transaction=False) as writes:
        for number in range(LOGGED):
            writes.set("lengthens-the-log", number)
        writes.delete("lengthens-the-log").execute()
        commands = int(client.info("stats")["total_commands_processed"])
    usual = store.command
    slowly = ("--key-load-delay", str(max(1, int(seconds * 1e6 / commands))))
    scene.mark("kill")
    store.kill()
    store.command = [*usual, *slowly, "--loading-process-events-interval-bytes", "1024"]
    try:
        store.start()
        scene.hit(_refusals(scene, "loading"))
        store.await_ready()
    finally:
        store.command = usual
    scene.heal()
    scene.mark("loaded")


def _refusals(scene: Scene, word: str) -> int:
    """Ask until it answers; return how often it refused with a word."""
    refused = 0
    deadline_s = time.time() + READY_S
    with _client(scene) as client:
        while time.time() < deadline_s:
            try:
                client.ping()
            except redis.RedisError as error:
                refused += word in str(error).lower()
                time.sleep(0.05)
            else:
                break
    return refused


def read_only(scene: Scene, seconds: float) -> None:
    """Make it the replica of nobody: it answers READONLY."""
    scene.target = TARGET
    with _client(scene) as client:
        client.replicaof("127.0.0.1", "1")
        scene.hit()
        time.sleep(seconds)
        client.replicaof("NO", "ONE")
    scene.heal()
    scene.mark("writable again")


def forbid(scene: Scene, seconds: float) -> None:
    """Take the right to run scripts from the login: it answers NOPERM. Its log has how often.

    For longer where another fault keeps workers from asking it: until it has refused once.
    """
    scene.target = TARGET
    with _client(scene) as client:
        client.acl_log_reset()
        client.execute_command("ACL", "SETUSER", "default", "-@scripting")
        time.sleep(seconds)
        reaches(client.acl_log, READY_S)
        client.execute_command("ACL", "SETUSER", "default", "+@scripting")
        scene.hit(sum(int(entry["count"]) for entry in client.acl_log()))
    scene.heal()
    scene.mark("right given back")


def _client(scene: Scene) -> redis.Redis:
    return redis.Redis.from_url(scene.stage.sandbox.redis_url, socket_timeout=30)

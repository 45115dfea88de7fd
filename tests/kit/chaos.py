"""Random faults on three brokers, three workers and Redis, for as long as you like::

    python -m tests.kit.chaos --seed 1 --seconds 150

Prints each fault and at last what the judge found; exits with 1 when that is anything, or when a
worker left by itself. The seed decides which faults strike whom, not when exactly.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from service.sandbox import Sandbox
from tests.kit.flow import Flow, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

MEMBERSHIPS = {
    "static": {},
    "dynamic": {"HAPAX_GROUP__MEMBERSHIP": "dynamic"},
    "kip848": {"HAPAX_GROUP__MEMBERSHIP": "dynamic", "HAPAX_GROUP__PROTOCOL": "consumer"},
}


class Chaos:
    """One run: strikes until the time is over, and remembers what it did."""

    def __init__(self, flow: Flow, rng: random.Random) -> None:
        self._flow = flow
        self._rng = rng
        self._workers = [flow.worker(f"w-{number}") for number in range(3)]
        self.struck: Counter[str] = Counter()
        self.left: list[str] = []
        self._faults: dict[str, Callable[[WorkerProcess], None]] = {
            "worker killed": self._kill,
            "worker stopped": self._terminate,
            "worker frozen for 2 s": lambda worker: self._freeze(worker, 2),
            "worker frozen for 18 s": lambda worker: self._freeze(worker, 18),
            "broker killed": self._kill_broker,
            "broker frozen for 3 s": self._freeze_broker,
            "claim store killed": self._kill_redis,
        }

    def run(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            time.sleep(self._rng.uniform(1, 5))
            self._restart_the_dead()
            name = self._rng.choice(list(self._faults))
            worker = self._rng.choice(self._workers)
            say(f"{name} ({worker.instance})")
            self._faults[name](worker)
            self.struck[name] += 1
        self._restart_the_dead()

    def _restart_the_dead(self) -> None:
        for worker in self._workers:
            if not worker.running:
                code = worker.process.returncode
                self.left.append(f"{worker.instance}: exit {code}")
                say(f"{worker.instance} has left with {code}")
                worker.start()

    def _kill(self, worker: WorkerProcess) -> None:
        worker.kill()
        worker.start()

    def _terminate(self, worker: WorkerProcess) -> None:
        code = worker.terminate(60)
        if code:
            self.left.append(f"{worker.instance}: SIGTERM ended in {code}")
        worker.start()

    def _freeze(self, worker: WorkerProcess, seconds: float) -> None:
        worker.freeze()
        time.sleep(seconds)
        worker.thaw()

    def _kill_broker(self, _worker: WorkerProcess) -> None:
        broker = self._rng.choice(self._flow.sandbox.kafka.brokers)
        broker.kill()
        time.sleep(self._rng.uniform(0, 4))
        broker.start()
        broker.await_ready()

    def _freeze_broker(self, _worker: WorkerProcess) -> None:
        broker = self._rng.choice(self._flow.sandbox.kafka.brokers)
        broker.pause()
        time.sleep(3)
        broker.resume()

    def _kill_redis(self, _worker: WorkerProcess) -> None:
        redis = self._flow.sandbox.redis
        redis.kill()
        time.sleep(self._rng.uniform(0, 2))
        redis.start()
        redis.await_ready()


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--rate", type=int, default=400, help="events a second")
    parser.add_argument("--membership", choices=MEMBERSHIPS, default="static")
    wanted = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hapax-chaos-"))
    say(f"logs of the workers: {folder}")
    with Sandbox(nodes=3) as sandbox:
        flow = Flow(sandbox, f"chaos{wanted.seed}", folder, **MEMBERSHIPS[wanted.membership])
        try:
            flow.feed_beside(wanted.rate)
            chaos = Chaos(flow, random.Random(wanted.seed))
            chaos.run(wanted.seconds)
            verdict = flow.finish(120)
        finally:
            flow.close()
    say(f"faults {sum(chaos.struck.values())}: {dict(chaos.struck)}")
    say(f"events {verdict.events}, outputs {verdict.outputs}, dead letters {verdict.dead_letters}")
    say(f"aborted records hidden {verdict.hidden}, anomalies {verdict.anomalies}")
    say(f"workers that left by themselves: {chaos.left}")
    return 1 if verdict.anomalies or chaos.left else 0


if __name__ == "__main__":
    sys.exit(main())

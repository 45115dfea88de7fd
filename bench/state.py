"""Keyed state: what a count per key costs, alongside other libraries, and how it recovers."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import keeping, latency, throughput, traffic
from bench.contenders import COUNTING, FUNCTION, NATIVE, Contender, Job, Service, changelog
from bench.measure import Child, VoidRunError, noise
from bench.peers.contenders import QUIX_COUNTING, STREAMS_COUNTING
from bench.results import Made, Run, Runs
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

KEYS, RATE = 100_000, 1_000
STATELESS = NATIVE[1]
WHO: tuple[Contender, ...] = (STATELESS, COUNTING, STREAMS_COUNTING, QUIX_COUNTING)
On = tuple[Sandbox, Path]


def measure(
    on: On, who: Sequence[Contender], size: tuple[int, int], seconds: float, made: Made
) -> Iterator[dict[str, Any]]:
    """Yield what counting costs under a backlog, then what it adds to a record's latency."""
    found: dict[str, Any] = {}
    for found in throughput.measure(throughput.Course(*on, KEYS), who, *size, made):
        yield found
    pace = latency.Pace(*on)
    pace.rates = (RATE,)
    for more in latency.measure(pace, (STATELESS, COUNTING), size[1], seconds, made):
        yield found | more


# -- Recovery: a process is killed and comes back ------------------------------------------

SIZES = (10_000, 1_000_000, 10_000_000)
NONE, KEPT, LOST = "without state", "with its disk", "without a disk"
TRAFFIC, TIMEOUT_S, SETTLED_S = 2_000, 300.0, 0.5


class Recovery:
    """A pipeline that is killed while it works, with 100 B for each key; 0 keys: without state."""

    def __init__(self, sandbox: Sandbox, folder: Path, keys: int) -> None:
        self._keys, name, servers = keys, f"recovery-{keys}", sandbox.bootstrap_servers
        self._disk, self._source, target = folder / f"{name}.state", f"{name}-in", f"{name}-out"
        for topic in (self._source, target):
            sandbox.create_topic(topic, traffic.PARTITIONS)
        self._who = Service(name=name, transform=FUNCTION)
        if keys:
            traffic.apart(fill, servers, changelog(sandbox, name), self._source, name, keys)
            disk = (("HAPAX_STATE__DIR", str(self._disk)),)
            self._who = Service(name=name, transform="bench.keeping:recall", more=disk)
        self._log = folder / f"{name}.log"
        self._job = Job(sandbox, name, self._source, target, self._log, at_end=False)
        self._producer = Producer({"bootstrap.servers": servers})
        self._reader = Consumer({"bootstrap.servers": servers, "group.id": "-"})  # read_committed
        self._reader.assign([TopicPartition(target, at, 0) for at in range(traffic.PARTITIONS)])
        self._child: Child | None = None
        self._written = self._read = 0

    def run(self, *, lost: bool = False) -> Run:
        """Kill it while it works, start it, and return what that took; raises VoidRunError."""
        self.kill()
        if lost:
            shutil.rmtree(self._disk, ignore_errors=True)
        self._write(traffic.PARTITIONS)
        began_s = time.monotonic()
        self._child = self._who.start(self._job)
        memory: Run = {}
        first_s = self._await(self._read + 1, memory) - began_s
        all_s = self._await(self._written, memory) - began_s
        found = {"first_ms": first_s * 1e3, "all_ms": all_s * 1e3, **memory}
        if lost:
            lines = self._log.read_text("utf-8", "replace").splitlines()
            events = [json.loads(line) for line in lines if '"state_restored"' in line]
            found["keys_per_s"] = self._keys / max(one["seconds"] for one in events)
        return found

    def kill(self) -> None:
        """Kill it in the midst of records, and read what it has committed."""
        if self._child is not None:
            self._write(TRAFFIC)
            self._await(self._read + 1, {})
            self._child.kill()
            quiet_s = time.monotonic()
            while time.monotonic() - quiet_s < SETTLED_S:
                quiet_s = time.monotonic() if self._take() else quiet_s

    def _write(self, count: int) -> None:
        """Write records of keys all over the state."""
        for number in range(self._written, self._written + count):
            place = number % traffic.PARTITIONS
            at = (number * 7919 * traffic.PARTITIONS + place) % (self._keys or TRAFFIC)
            self._producer.produce(self._source, keeping.kept(at), b"key-%d" % at, place)
        self._written += count
        if self._producer.flush(60):
            raise VoidRunError("the records could not be written")

    def _await(self, count: int, memory: Run) -> float:
        """Return when so many outputs are there; note the memory that the process has had."""
        until_s = time.monotonic() + TIMEOUT_S
        while self._read < count:
            if time.monotonic() > until_s:
                raise VoidRunError(f"{self._read} of {count} outputs came")
            self._take()
            for name, mb in resident_mb(self._child.pid).items() if self._child else ():
                memory[name] = max(mb, memory.get(name, 0.0))
        return time.monotonic()

    def _take(self) -> int:
        messages = self._reader.consume(500, 0.02)
        for message in messages:
            if message.value() != keeping.kept(int((message.key() or b"key-0")[4:])):
                raise VoidRunError(f"{message.key()!r} has come back with {message.value()!r}")
        self._read += len(messages)
        if self._read > self._written:
            raise VoidRunError(f"{self._read} outputs of {self._written} records")
        return len(messages)


def fill(servers: str, log: str, source: str, group: str, keys: int) -> None:
    """Write a changelog, the records that it comes from, and the offsets after these."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1 << 20})
    offsets = [TopicPartition(source, at, 1) for at in range(traffic.PARTITIONS)]
    for each in offsets:
        producer.produce(source, b"", b"first", each.partition)
    for number in range(keys):
        at, (key, value) = number % traffic.PARTITIONS, keeping.entry(number)
        producer.produce(log, value, key, at, headers=[("hapax-source", f"{source}/{at}/0")])
        if number % 50_000 == 0:
            producer.flush(60)
    if producer.flush(60):
        raise VoidRunError("the changelog could not be written")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def resident_mb(pid: int) -> Run:
    """Return the memory of a process: its own, and pages of files, which the system takes back."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    kib = dict(line.split()[:2] for line in lines if line.startswith("Rss"))
    names = {"own_mb": "RssAnon:", "files_mb": "RssFile:"}
    return {name: int(kib[field]) / 1024 for name, field in names.items() if field in kib}


def recover(on: On, size: tuple[int, int], made: Made) -> Iterator[dict[str, Any]]:
    """Kill and restart pipelines in turn; ``size``: keys at most, and rounds."""
    found: list[dict[str, Any]] = []
    without = Recovery(*on, 0)
    for keys in (keys for keys in SIZES if keys <= max(size[0], SIZES[0])):
        say(f"Writing a changelog of {keys:,} keys")
        kept = Recovery(*on, keys)
        runs: Runs = {NONE: [], LOST: [], KEPT: []}
        found.append({"keys": keys, "runs": runs})
        for turn in range(size[1]):
            for name, who in ((NONE, without), (LOST, kept), (KEPT, kept)):
                where = f"recovery of {keys:,} keys, round {turn + 1}, {name}"
                run = None
                try:
                    run = who.run(lost=name == LOST)
                    say(f"{where}: { {k: round(v) for k, v in run.items()} } ({noise()})")
                except VoidRunError as error:
                    made.void(where, error)
                runs[name].append(run)
            yield {"sizes": found}
        kept.kill()
    without.kill()

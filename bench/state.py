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
from bench.peers import contenders as peers
from bench.results import Made, Run, Runs
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

KEYS, RATE = 100_000, 1_000
STATELESS = NATIVE[1]
WHO: tuple[Contender, ...] = (STATELESS, COUNTING, *peers.COUNTING)


def measure(
    on: tuple[Sandbox, Path],
    who: Sequence[Contender],
    size: tuple[int, int],
    seconds: float,
    made: Made,
) -> Iterator[dict[str, Any]]:
    """Yield what counting costs under a backlog, then what it adds to a record's latency."""
    found: dict[str, Any] = {}
    for found in throughput.measure(throughput.Course(*on, KEYS), who, *size, made):
        yield found
    ours = [each for each in who if isinstance(each, Service)]
    if ours:
        pace = latency.Pace(*on)
        for more in latency.measure(pace, ours, size[1], seconds, made, of_rates=(RATE,)):
            yield found | more


# -- Recovery: a process is killed and comes back ------------------------------------------

SIZES = (10_000, 1_000_000, 10_000_000)
NONE, KEPT, LOST = "without state", "with its disk", "without a disk"
TRAFFIC, TIMEOUT_S, SETTLED_S = 2_000, 300.0, 0.5


class Recovery:
    """A pipeline that is killed again and again while it works.

    Its state is written to the changelog as if it had worked before: 100 B for each key, all from
    the first record of each input partition, which the group has committed.
    """

    def __init__(self, sandbox: Sandbox, folder: Path, keys: int) -> None:
        """``keys``: 0: it keeps no state."""
        self._keys, self._sandbox = keys, sandbox
        self._name = f"recovery-{keys}"
        self._source, self._target = f"{self._name}-in", f"{self._name}-out"
        self._log, self._disk = folder / f"{self._name}.log", folder / f"{self._name}.state"
        for topic in (self._source, self._target):
            sandbox.create_topic(topic, traffic.PARTITIONS)
        servers = {"bootstrap.servers": sandbox.bootstrap_servers}
        if keys:
            log = changelog(sandbox, self._name)
            traffic.apart(fill, sandbox.bootstrap_servers, log, self._source, self._name, keys)
        self._producer = Producer(servers)
        self._reader = Consumer(
            servers | {"group.id": "unused", "isolation.level": "read_committed"}
        )
        ends = [TopicPartition(self._target, number, 0) for number in range(traffic.PARTITIONS)]
        self._reader.assign(ends)
        self._child: Child | None = None
        self._written = self._read = 0

    def run(self, *, lost: bool = False) -> Run:
        """Kill it while it works, start it, and return what that took; raises VoidRunError."""
        self.kill()
        if lost:
            shutil.rmtree(self._disk, ignore_errors=True)
        self.write(traffic.PARTITIONS)
        began_s = time.monotonic()
        self._child = child = self.start()
        memory: Run = {}
        first_s = self._await(self._read + 1, memory) - began_s
        all_s = self._await(self._written, memory) - began_s
        restored = [
            json.loads(line)["seconds"]
            for line in self._log.read_text("utf-8", "replace").splitlines()
            if '"state_restored"' in line
        ]
        found = {"first_ms": first_s * 1e3, "all_ms": all_s * 1e3, **memory}
        if lost:
            if len(restored) != traffic.PARTITIONS:
                raise VoidRunError(f"{len(restored)} partitions were restored: {child.pid}")
            found["keys_per_s"] = self._keys / sum(restored)
        return found

    def kill(self) -> None:
        """Kill it in the midst of records, and read what it has committed."""
        if self._child is not None:
            self.write(TRAFFIC)
            self._await(self._read + 1, {})
            self._child.kill()
            quiet_s = time.monotonic()
            while time.monotonic() - quiet_s < SETTLED_S:
                if self._take():
                    quiet_s = time.monotonic()

    def start(self) -> Child:
        more = (("HAPAX_STATE__DIR", str(self._disk)),) if self._keys else ()
        transform = "bench.keeping:recall" if self._keys else FUNCTION
        who = Service(name=self._name, transform=transform, more=more)
        job = Job(self._sandbox, self._name, self._source, self._target, self._log, at_end=False)
        return who.start(job)

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._reader.close()

    def write(self, count: int) -> None:
        """Write records of keys all over the state."""
        for number in range(self._written, self._written + count):
            key = number * 7919 * traffic.PARTITIONS + number % traffic.PARTITIONS
            at = key % (self._keys or TRAFFIC)
            partition = at % traffic.PARTITIONS
            value = keeping.kept(at)
            self._producer.produce(self._source, value, b"key-%d" % at, partition)
        self._written += count
        if self._producer.flush(60):
            raise VoidRunError("the records could not be written")

    def _await(self, count: int, memory: Run) -> float:
        """Return when so many outputs are there; note the memory that the process has had."""
        until_s = time.monotonic() + TIMEOUT_S
        while self._read < count:
            if time.monotonic() > until_s:
                raise VoidRunError(
                    f"{self._read} of {count} outputs: {self._log.read_text()[-500:]}"
                )
            self._take()
            if self._child is not None:
                for name, most in resident_mb(self._child.pid).items():
                    memory[name] = max(most, memory.get(name, 0.0))
        return time.monotonic()

    def _take(self) -> int:
        messages = self._reader.consume(500, 0.02)
        for message in messages:
            key = message.key()
            if message.value() != keeping.kept(int((key or b"-0")[4:])):
                raise VoidRunError(f"{key!r} has come back with {message.value()!r}")
        self._read += len(messages)
        if self._read > self._written:
            raise VoidRunError(f"{self._read} outputs of {self._written} records")
        return len(messages)


def fill(servers: str, log: str, source: str, group: str, keys: int) -> None:
    """Write a changelog, the records that it comes from, and the offsets after these."""
    more = {"linger.ms": 50, "batch.size": 1 << 20, "queue.buffering.max.messages": 500_000}
    producer = Producer({"bootstrap.servers": servers, **more})
    partitions = range(traffic.PARTITIONS)
    headers: list[list[tuple[str, str | bytes | None]]]
    headers = [[("hapax-source", b"%s/%d/0" % (source.encode(), each))] for each in partitions]
    for each in partitions:
        producer.produce(source, b"", b"first", each)
    for number in range(keys):
        key, value = keeping.entry(number)
        at = number % traffic.PARTITIONS
        while True:
            try:
                producer.produce(log, value, key, at, None, None, 0, headers[at])
            except BufferError:
                producer.poll(0.1)
            else:
                break
    if producer.flush(120):
        raise VoidRunError("the changelog could not be written")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(
        offsets=[TopicPartition(source, each, 1) for each in partitions], asynchronous=False
    )
    consumer.close()


def resident_mb(pid: int) -> Run:
    """Return the memory of a process: its own, and pages of files, which the system takes back."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    except OSError:
        return {}
    names = {"RssAnon": "own_mb", "RssFile": "files_mb"}
    fields = (line.split() for line in lines)
    return {names[one[0][:-1]]: int(one[1]) / 1024 for one in fields if one[0][:-1] in names}


def recover(
    on: tuple[Sandbox, Path], size: tuple[int, int], made: Made
) -> Iterator[dict[str, Any]]:
    """Kill and restart pipelines in turn: without state, with their disk, without it.

    ``size``: keys at most, and rounds.
    """
    found: list[dict[str, Any]] = []
    without = Recovery(*on, 0)
    without.run()
    for keys in (keys for keys in SIZES if keys <= max(size[0], SIZES[0])):
        say(f"Writing a changelog of {keys:,} keys")
        kept = Recovery(*on, keys)
        runs: Runs = {NONE: [], LOST: [], KEPT: []}
        found.append({"keys": keys, "runs": runs})
        for turn in range(size[1]):
            for name, who in ((NONE, without), (LOST, kept), (KEPT, kept)):
                where = f"recovery of {keys:,} keys, round {turn + 1}, {name}"
                try:
                    run = who.run(lost=name == LOST)
                except VoidRunError as error:
                    made.void(where, error)
                    runs[name].append(None)
                    continue
                runs[name].append(run)
                words = ", ".join(f"{key} {value:,.0f}" for key, value in run.items())
                say(f"{where}: {words} ({noise()})")
            yield {"sizes": found}
        kept.close()
    without.close()

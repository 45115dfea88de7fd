"""The Spark engine under a backlog, against Spark's own Kafka source and sink.

Theirs is at least once; ours is exactly once, with headers. All run in local[2], or on the cluster
of the sandbox, on the same topic; the rate is taken behind the first records, when everything is
warm, by the broker's clock.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped] # it has no types and no stubs are locked
from confluent_kafka import Producer

from bench import traffic
from bench.contenders import NATIVE, native_environment
from bench.measure import Child, VoidRunError, noise
from bench.peers.environments import MissingError
from bench.results import Made, Runs
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

MASTER = "local[2]"
VALUE_BYTES = 200
ROUND_RECORDS = 400_000
RUN_TIMEOUT_S = 300.0
RATE, WARM_S = 1000, 5.0
OURS, FRAMES = "Hapax, records", "Hapax, DataFrame"
OURS_NATIVE = "Hapax, records, native"
PARTS, IN_LOCAL = "Hapax, DataFrame in parts", "Hapax, records, in local[2]"
UDF, ARROW = "Spark, Python UDF", "Spark, Arrow UDF"


def fill(servers: str, topic: str, records: int) -> None:
    """Write a backlog of values that do not compress."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    noise_bytes = traffic._NOISE  # noqa: SLF001 - the benchmark's own
    for number in range(records):
        start = number * 31 % (len(noise_bytes) - VALUE_BYTES)
        value = b"%012d" % number + noise_bytes[start : start + VALUE_BYTES - 12]
        while True:
            try:
                producer.produce(topic, value, partition=number % traffic.PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise VoidRunError("the backlog could not be written")


def rate(servers: str, topic: str, records: int, warm: int) -> float:
    """Check that every record is there once; return records/s behind the first ``warm``."""
    seen = bytearray(records)
    times_ms: list[int] = []
    for messages in traffic.read(servers, topic, records):
        for message in messages:
            number = int((message.value() or b"")[::-1][:12])
            if seen[number]:
                raise VoidRunError(f"record {number} has two outputs")
            seen[number] = 1
            times_ms.append(message.timestamp()[1])
    if seen.count(0):
        raise VoidRunError(f"{seen.count(0)} records have no output")
    times_ms.sort()
    return (records - warm) / ((times_ms[-1] - times_ms[warm]) / 1000)


class _Cpu(threading.Thread):
    """Sums up what processes and their descendants spend from now on, also of those that end."""

    def __init__(self, *pids: int) -> None:
        super().__init__(daemon=True)
        self._roots = [psutil.Process(pid) for pid in pids]
        self._before = sum(sum(root.cpu_times()[:2]) for root in self._roots)
        self._spent: dict[int, float] = {}
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.25):
            for root in self._roots:
                with suppress(psutil.Error):
                    for process in [root, *root.children(recursive=True)]:
                        with suppress(psutil.Error):
                            self._spent[process.pid] = sum(process.cpu_times()[:2])

    def finish(self) -> float:
        self._done.set()
        self.join()
        return sum(self._spent.values()) - self._before


def _start(
    sandbox: Sandbox,
    who: str,
    name: str,
    topics: tuple[str, str],
    log: Path,
    *,
    at_end: bool = True,
) -> Child:
    master = MASTER if who == IN_LOCAL else _master(sandbox)
    if not who.startswith("Spark"):
        env = (
            sandbox.environment()
            | native_environment(native=who in {OURS_NATIVE, IN_LOCAL})
            | {
                "HAPAX_APP": name,
                "HAPAX_INSTANCE": "bench-0",
                "HAPAX_ENGINE": "spark",
                "HAPAX_SPARK__MASTER": master,
                "HAPAX_INPUT__TOPICS": topics[0],
                "HAPAX_OUTPUT__TOPIC": topics[1],
                "HAPAX_TELEMETRY__PORT": "0",
                "HAPAX_STOP_AFTER__AT_END": str(at_end).lower(),
            }
        )
        del env["HAPAX_DEDUP__REDIS_URL"]
        if who not in {FRAMES, PARTS}:
            env["HAPAX_TRANSFORM"] = "bench.transforms:reverse"
        else:
            env |= {
                "HAPAX_SPARK__DATAFRAME": "bench.transforms:pipeline",
                "HAPAX_SPARK__CHECKPOINT": log.with_suffix(".checkpoint").as_uri(),
                "HAPAX_SPARK__PUBLISH": "parallel" if who == PARTS else "together",
                "HAPAX_TRANSACTION__TIMEOUT": "45s",
                "HAPAX_SPARK__BATCH_RECORDS_MAX": str(ROUND_RECORDS),
            }
        return Child([sys.executable, "-m", "hapax", "run"], env, log)
    command = [sys.executable, "-m", "bench.spark_baseline", "--master", master]
    command += ["--servers", sandbox.bootstrap_servers, "--source", topics[0]]
    command += ["--target", topics[1], "--batch", str(ROUND_RECORDS)]
    command += ["--form", "arrow" if who == ARROW else "udf"]
    return Child(command, {}, log)


def measure(
    sandbox: Sandbox, records: int, rounds: int, folder: Path, made: Made
) -> Iterator[dict[str, Any]]:
    """Run all contenders in turn, ``rounds`` times, each into a topic of its own."""
    clock = {"message.timestamp.type": "LogAppendTime"}
    sandbox.create_topic("backlog", traffic.PARTITIONS)
    say(f"Writing a backlog of {records:,} records")
    traffic.apart(fill, sandbox.bootstrap_servers, "backlog", records)
    clustered = _master(sandbox) != MASTER
    daemons = [daemon.pid for daemon in sandbox.spark.daemons] if clustered else []
    runs: Runs = {who: [] for who in _contenders(clustered=clustered)}
    for turn in range(rounds):
        for place, who in enumerate(runs):
            name = f"spark-{turn}-{place}"
            sandbox.create_topic(name, traffic.PARTITIONS, clock)
            where = f"Spark, round {turn + 1}, {who}"
            child = _start(sandbox, who, name, ("backlog", name), folder / f"{name}.log")
            cpu = _Cpu(child.pid, *daemons)
            cpu.start()
            try:
                child.wait(RUN_TIMEOUT_S)
                found = traffic.apart(rate, sandbox.bootstrap_servers, name, records, ROUND_RECORDS)
            except VoidRunError as error:
                made.void(where, error)
                runs[who].append(None)
                continue
            finally:
                cpu_s = cpu.finish()
            run = {"records_per_s": found, "cpu_s_per_million": cpu_s / records * 1e6}
            runs[who].append(run)
            say(
                f"{where}: {found:,.0f} records/s warm,"
                f" {run['cpu_s_per_million']:.1f} CPU s a million with start ({noise()})"
            )
        yield {"records": records, "runs": runs}


def _master(sandbox: Sandbox) -> str:
    return sandbox.environment().get("HAPAX_SPARK__MASTER", MASTER)


def _contenders(*, clustered: bool) -> tuple[str, ...]:
    """Return who is measured: the native path too, where the service has one here."""
    rest = (FRAMES, PARTS, UDF, ARROW)
    try:
        NATIVE[0].prepare()
    except MissingError:
        return (OURS, *rest)
    return (OURS_NATIVE, IN_LOCAL, *rest) if clustered else (OURS_NATIVE, OURS, *rest)


def rounds(sandbox: Sandbox, seconds: float, folder: Path) -> dict[str, Any]:
    """Send 1,000 records/s to the records form; return what its own lines say of its ranges."""
    for topic in ("trickle", "trickled"):
        sandbox.create_topic(topic, traffic.PARTITIONS)
    log = folder / "rounds.log"
    child = _start(sandbox, OURS, "rounds", ("trickle", "trickled"), log, at_end=False)
    try:
        _await(log, "lanes_assigned")
        records = int((seconds + WARM_S) * RATE)
        start_ns = time.monotonic_ns()
        traffic.apart(traffic.send, sandbox.bootstrap_servers, "trickle", RATE, records, start_ns)
        child.stop()
        child.wait(RUN_TIMEOUT_S)
    finally:
        child.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    ranges = [
        line["round_ms"] - line["work_ms"] + line["open_ms"]
        for line in lines
        if line["event"] == "range_completed"
    ]
    ages = [
        line["latency_ms"]["oldest"] for line in lines if line["event"] == "transaction_committed"
    ]
    warm = WARM_S / (seconds + WARM_S)
    ranges, ages = (each[int(len(each) * warm) :] for each in (ranges, ages))
    return {
        "ranges": len(ranges),
        "gap_ms": sorted(ranges),
        "oldest_ms": sorted(ages),
        "load": noise(),
    }


def _await(log: Path, event: str) -> None:
    until_s = time.monotonic() + RUN_TIMEOUT_S
    while f'"event":"{event}"' not in log.read_text():
        if time.monotonic() > until_s:
            raise VoidRunError(f"{event} never came:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)

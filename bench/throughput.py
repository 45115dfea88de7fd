"""CPU per record and records a second, under a backlog.

Primary: CPU seconds of the process for a million records, without what its start costs. On a
shared machine that says more than records a second, which depend on all other programs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import traffic
from bench.contenders import Contender, Job
from bench.measure import VoidRunError, noise, server_cpu_s
from bench.results import Made, Runs
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

RUN_TIMEOUT_S = 600.0
FEW = 100
"""Records of the runs that show what a start costs."""


class Course:
    """Backlogs on a sandbox, and runs over them.

    keys    how many the records have
    target  topic of the outputs of the last run
    """

    def __init__(self, sandbox: Sandbox, folder: Path, keys: int = traffic.KEYS) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._keys = keys
        self._runs = 0
        self.target = ""

    def backlog(self, records: int, partitions: int = traffic.PARTITIONS) -> str:
        """Write a backlog; return the name of its topic."""
        name = f"backlog-{records}-{partitions}"
        self._create(name, partitions)
        traffic.apart(traffic.fill, self._sandbox.bootstrap_servers, name, records, self._keys)
        return name

    def run(
        self,
        who: Contender,
        source: str,
        records: int,
        partitions: int = traffic.PARTITIONS,
        warm: tuple[str, int] | None = None,
    ) -> dict[str, float]:
        """Run once and check the output; raises VoidRunError.

        ``warm``: topic and number of records that a JVM copies before; default: the same.
        """
        self._runs += 1
        pipeline = f"run-{self._runs}"
        self.target, log = f"out-{pipeline}", self._folder / f"{pipeline}.log"
        target = self.target
        for topic in (target, *([f"{target}-warm"] if who.warms else [])):
            self._create(topic, partitions)
        child = who.start(
            Job(
                self._sandbox,
                pipeline,
                source,
                target,
                log,
                records,
                warm=(warm or (source, records)) if who.warms else None,
            )
        )
        try:
            warm_cpu_s = 0.0
            if who.warms:
                warm_cpu_s = int(child.await_line("warm ", RUN_TIMEOUT_S)) / 1e9
            before = self._servers_cpu_s()
            if who.warms:
                child.go_on()
            spent = child.wait(RUN_TIMEOUT_S)
        finally:
            child.kill()
        after = self._servers_cpu_s()
        named = source if who.headers else None
        given = (records, partitions, named, self._keys, who.counted)
        servers = self._sandbox.bootstrap_servers
        rate = traffic.apart(traffic.check, servers, target, *given)
        self._sandbox.redis.flush()
        return {
            "cpu_s": spent.cpu_s - warm_cpu_s,
            "records_per_s": rate,
            "rss_mb": spent.rss_mb,
            "broker_cpu_s": after[0] - before[0],
            "redis_cpu_s": after[1] - before[1],
        }

    def start_cpu_s(
        self, who: Contender, few: str, backlog: tuple[str, int] | None = None
    ) -> float:
        """Return what a start costs, in a JVM that is warm."""
        if who.warms:
            return self.run(who, few, FEW, warm=backlog)["cpu_s"]
        return min(self.run(who, few, FEW)["cpu_s"] for _ in range(2))

    def _create(self, name: str, partitions: int) -> None:
        # The broker's own clock tells when an output arrived, the same for every contender.
        config = {"message.timestamp.type": "LogAppendTime"}
        self._sandbox.create_topic(name, partitions, config)

    def _servers_cpu_s(self) -> tuple[float, float]:
        return (
            server_cpu_s(self._sandbox.kafka.brokers[0].pid),
            server_cpu_s(self._sandbox.redis.pid),
        )


def per_million(found: dict[str, float], start_cpu_s: float, records: int) -> dict[str, float]:
    """Return a run as it is kept: CPU seconds for a million records, without the start."""
    millions = records / 1e6
    return {
        "cpu_s_per_million": (found["cpu_s"] - start_cpu_s) / millions,
        "records_per_s": found["records_per_s"],
        "rss_mb": found["rss_mb"],
        "broker_cpu_s_per_million": found["broker_cpu_s"] / millions,
        "redis_cpu_s_per_million": found["redis_cpu_s"] / millions,
    }


def measure(
    course: Course, who: Sequence[Contender], records: int, rounds: int, made: Made
) -> Iterator[dict[str, Any]]:
    """Run all contenders in turn, ``rounds`` times, each on fresh topics and groups."""
    say(f"Writing a backlog of {records:,} records")
    few, backlog = course.backlog(FEW), course.backlog(records)
    starts: dict[str, float] = {}
    for each in who:
        try:
            starts[each.name] = course.start_cpu_s(each, few, (backlog, records))
        except VoidRunError as error:
            made.miss(each.name, str(error))
            continue
        say(f"{each.name}: a start costs {starts[each.name]:.2f} CPU s")
    runs: Runs = {name: [] for name in starts}
    for turn in range(rounds):
        for each in who:
            if each.name not in runs:
                continue
            try:
                found = course.run(each, backlog, records)
            except VoidRunError as error:
                made.void(f"throughput, round {turn + 1}, {each.name}", error)
                runs[each.name].append(None)
                continue
            run = per_million(found, starts[each.name], records)
            runs[each.name].append(run)
            say(f"round {turn + 1} of {rounds}, {each.name}: {words(run)} ({noise()})")
        yield {"records": records, "starts_cpu_s": starts, "runs": runs}


def words(run: dict[str, float]) -> str:
    return (
        f"{run['cpu_s_per_million']:.2f} CPU s a million, {run['records_per_s']:,.0f} records/s,"
        f" {run['rss_mb']:.0f} MB"
    )

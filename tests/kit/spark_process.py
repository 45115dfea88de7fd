"""A Spark driver as a process that tests may harm, as a whole or part by part.

driver   the Python process: the member of the group; what a supervisor sees
jvm      Spark itself, its child
pool     pyspark.daemon, the JVM's child, which forks the workers; a process group of its own
worker   a Python process that runs tasks

All are of one session, which is how they are found again when their parents are gone.
"""

import os
import random
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import psutil  # type: ignore[import-untyped] # it carries no types

from hapax.sandbox.servers import java_options
from tests.kit.managed_process import WorkerProcess
from tests.kit.waiting import await_

Part = Literal["all", "driver", "jvm", "pool", "worker"]

SPARK = {
    "HAPAX_ENGINE": "spark",
    "HAPAX_SPARK__MASTER": "local[2]",
    "HAPAX_SPARK__PROPERTIES": '{"spark.driver.memory": "512m"}',
}
GONE_S = 15.0


def spark_variables() -> dict[str, str]:
    """Return the variables of a driver on this machine, whose JVM starts quickly."""
    return {**SPARK, "JAVA_TOOL_OPTIONS": java_options()}


class SparkProcess(WorkerProcess):
    """``python -m hapax run`` with the Spark engine, and all that it starts."""

    def __init__(self, environment: Mapping[str, str], instance: str, log: Path) -> None:
        super().__init__({**spark_variables(), **environment}, instance, log)
        self._sessions: list[int] = []

    def start(
        self, words: Sequence[str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        super().start(words, settings)
        self._sessions.append(self.process.pid)

    # -- parts ----------------------------------------------------------------------------

    def part(self, part: Part) -> list[psutil.Process]:
        """Return its living processes; those of earlier starts too, if they still live."""
        everything = [each for each in psutil.process_iter() if _session(each) in self._sessions]
        if part == "all":
            return everything
        if part == "driver":
            return [each for each in everything if each.pid == self.process.pid]
        if part == "jvm":
            return [each for each in everything if _name(each).startswith("java")]
        pythons = {each.pid: each for each in everything if "pyspark.daemon" in _words(each)}
        forked = [each for each in pythons.values() if _parent(each) in pythons]
        if part == "worker":
            return forked
        return [each for each in pythons.values() if each not in forked]

    def strike(self, number: signal.Signals, part: Part) -> int:
        """Send a signal to all processes of a part; return how many it reached."""
        return sum(send(each, number) for each in self.part(part))

    def strike_one(self, number: signal.Signals, rng: random.Random) -> psutil.Process | None:
        """Send a signal to one Python worker, if there is one; return which."""
        found = self.part("worker")
        rng.shuffle(found)
        return next((each for each in found if send(each, number)), None)

    # -- the whole ------------------------------------------------------------------------

    def kill(self) -> None:
        while self.strike(signal.SIGKILL, "all"):
            pass
        self.process.wait()

    def freeze(self) -> None:
        self.strike(signal.SIGSTOP, "all")

    def thaw(self) -> None:
        self.strike(signal.SIGCONT, "all")

    def _dump_stacks(self) -> None:
        for jvm in self.part("jvm"):
            send(jvm, signal.SIGQUIT)  # it writes its threads, and goes on
        super()._dump_stacks()

    def close(self) -> None:
        if self._sessions:
            self.kill()

    def await_gone(self, timeout_s: float = GONE_S) -> None:
        await_(lambda: not self.part("all"), timeout_s, lambda: f"still there: {self.part('all')}")


def ours(member: WorkerProcess) -> int:
    """Return how many partitions a member has, as far as it knows."""
    lines = [each for each in member.lines() if str(each["event"]).startswith("partitions_")]
    return int(str(lines[-1]["ours"])) if lines else 0


def _session(process: psutil.Process) -> int | None:
    try:
        session = os.getsid(process.pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else session
    except (OSError, psutil.NoSuchProcess):
        return None


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


def send(process: psutil.Process, number: signal.Signals) -> int:
    try:
        process.send_signal(number)  # it knows a number that was given to another process since
    except psutil.NoSuchProcess:
        return 0
    return 1


def executors(daemons: Iterable[int]) -> list[psutil.Process]:
    sessions = set(daemons)
    return [
        each
        for each in psutil.process_iter()
        if _session(each) in sessions and "CoarseGrainedExecutorBackend" in " ".join(_words(each))
    ]


def with_children(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and all that it has started, its Python workers among them."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def runs_tasks(executor: psutil.Process) -> bool:
    """Return whether an executor has Python workers: it was given a task."""
    return any("pyspark.daemon" in _words(each) for each in with_children(executor))

"""What is done to two workers or to Spark, and the proof that it struck them while they worked.

No process is killed at random. It is frozen first, and keeps what it has open, so the broker can
be queried; when the moment is not the right one, it continues as if nothing had happened.

A driver of Spark starts a JVM, which starts Python's own pool, which forks the workers that run
the tasks. When a parent dies its children get another one, but all stay in the session that the
driver began, as Linux lists it under /proc.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.demo.stage import (
    APP,
    ORDINARY_OUTPUTS,
    OUTPUTS,
    RUN,
    SESSION_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    DemoError,
    Stage,
    committed,
)
from hapax.operations.reading import undecided
from hapax.sandbox.processes import ManagedProcess
from hapax.sandbox.servers import java_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_TRIES, _STEP_S = 20, 0.004
_STALLED_S = 0.6
_ROUND_S, _SPARK_ROUND_S = 18.0, 30.0
"""What one round of faults takes: another one begins only when there is time for it."""
PROC = Path("/proc")
INSTANCE = f"{APP}-0"
"""The name of both engines: a member of that name takes over at once what its predecessor had."""
SPARK = {
    "HAPAX_INSTANCE": INSTANCE,
    "HAPAX_ENGINE": "spark",
    "HAPAX_SPARK__MASTER": "local[2]",
    "HAPAX_SPARK__PROPERTIES": json.dumps({"spark.driver.memory": "512m"}),
}
_POOL = b"pyspark.daemon"
_ENDED = frozenset((b"Z", b"X", b"x"))
_GONE_TIMEOUT_S, _POLL_S, _SHOWN = 15.0, 0.01, 80
_CATCHES, _CATCH_S = 60, 0.2
_START = "5 to 8 s until its first commit on a quiet machine"
_INSIDE = "inside a transaction of a range"


class DemoFault(msgspec.Struct):
    """One fault that really struck.

    kind          kill or freeze; of Spark: driver kill or Python worker kill
    while_doing   what is known to have gone on at that moment
    back_after_s  until the process itself committed again; None for the ordinary loop
    """

    kind: str
    target: str
    while_doing: str
    back_after_s: float | None = None

    @property
    def sentence(self) -> str:
        back = "" if self.back_after_s is None else f"; commits again after {self.back_after_s} s"
        return f"{self.kind}: {self.target}, {self.while_doing}{back}"


def break_workers(stage: Stage, until_s: float) -> list[DemoFault]:
    stage.screen.phase("Publishing; two workers and an ordinary loop start")
    stage.begin()
    struck = _round(stage, *stage.workers)
    while until_s - time.monotonic() > _ROUND_S:
        struck += _round(stage, *reversed(stage.workers))
    return struck


def _round(stage: Stage, first: ManagedProcess, second: ManagedProcess) -> list[DemoFault]:
    phase = stage.screen.phase
    phase(f"kill -9 {first.name}, and the ordinary loop")
    # Both are frozen first, for as long as it takes to see that transactions exist.
    other = freeze_uncommitted(stage)
    done = kill(stage, other, [DemoFault("kill", first.name, freeze_inside(stage, first))], [first])
    phase(f"Freezing {second.name} for more than {SESSION_TIMEOUT_S} s")
    done += freeze(stage, second)
    phase("kill -9 both workers at once, and the ordinary loop")
    other, workers = freeze_uncommitted(stage), [first, second]
    for worker in workers:  # each right after a commit of its own
        stage.await_commit(worker, worker.position())
    faults = [DemoFault("kill", worker.name, "committing batch after batch") for worker in workers]
    return done + kill(stage, other, faults, workers)


def noted(stage: Stage, *faults: DemoFault) -> list[DemoFault]:
    for fault in faults:
        stage.screen.note(fault.sentence)
    return list(faults)


def kill(
    stage: Stage, other: DemoFault, faults: list[DemoFault], workers: Sequence[ManagedProcess]
) -> list[DemoFault]:
    """Kill them and the ordinary loop, start all, and return when each has committed again."""
    for process in (*workers, stage.ordinary):
        stage.kill(process)
    killed_s = time.monotonic()
    lives = [worker.position() for worker in workers]
    for process in (*workers, stage.ordinary):
        stage.start(process)
    stage.struck += len(faults)
    for worker, fault, since in zip(workers, faults, lives, strict=True):
        stage.await_commit(worker, since)
        fault.back_after_s = elapsed_s(killed_s)
    return noted(stage, *faults, other)


def freeze(stage: Stage, worker: ManagedProcess) -> list[DemoFault]:
    """Freeze a worker inside a transaction, past both timeouts, and thaw it again.

    Returns when another worker has gone on in its place and it has found its way back.
    """
    where = freeze_inside(stage, worker)
    past_s = time.monotonic() + max(SESSION_TIMEOUT_S, TRANSACTION_TIMEOUT_S) + 1.0
    stage.struck += 1
    before = committed(stage.offsets)

    def taken_over() -> bool:
        if time.monotonic() < past_s:
            return False
        now = committed(stage.offsets)
        return all(now[partition] > offset for partition, offset in before.items())

    stage.wait(taken_over, f"another worker commits on the partitions of {worker.name}")
    since = worker.position()
    worker.resume()
    thawed_s = time.monotonic()
    stage.await_commit(worker, since)
    back_after_s = elapsed_s(thawed_s)
    return noted(stage, DemoFault("freeze", worker.name, where, back_after_s))


def elapsed_s(began_s: float) -> float:
    return round(time.monotonic() - began_s, 1)


def freeze_inside(stage: Stage, worker: ManagedProcess) -> str:
    """Freeze; when no transaction of it is open, thaw and try again. Return where it was caught."""
    for number in range(_TRIES):
        stage.await_commit(worker, worker.position())
        # Each try strikes at another moment of what follows the commit.
        time.sleep(number * _STEP_S)
        worker.pause()
        if is_inside(stage):
            return "inside a transaction"
        worker.resume()
    worker.pause()
    return "between two transactions"


def is_inside(stage: Stage) -> bool:
    """Return whether a transaction is open that makes no progress: that of a frozen process."""
    since_s = time.monotonic()
    open_ = _open(stage)
    # Other transactions end by themselves: what stays was frozen.
    while open_ and time.monotonic() - since_s < _STALLED_S:
        open_ &= _open(stage)
    return bool(open_)


def _open(stage: Stage) -> set[tuple[tuple[str, int], int]]:
    return {(where, ends[0]) for where, ends in undecided(stage.offsets, OUTPUTS).items()}


def freeze_uncommitted(stage: Stage) -> DemoFault:
    """Freeze the ordinary loop while outputs are in Kafka whose input is not committed."""
    loop, offsets = stage.ordinary, stage.ordinary_offsets
    for number in range(_TRIES):
        before = committed(offsets)
        stage.wait(lambda: committed(offsets) != before, "the ordinary loop commits")  # noqa: B023 - called at once
        # It has flushed before it committed: what is beyond these ends is not committed.
        done, ends = committed(offsets), offsets.last_stable(ORDINARY_OUTPUTS)
        time.sleep(number * _STEP_S)
        loop.pause()
        if committed(offsets) == done and offsets.last_stable(ORDINARY_OUTPUTS) != ends:
            return DemoFault("kill", loop.name, "between produce and commit")
        loop.resume()
    loop.pause()
    return DemoFault("kill", loop.name, "between two records")


# -- Spark in place of the workers ---------------------------------------------------------------


class HandOver(msgspec.Struct):
    """One engine left, and the other one continued under the same name.

    left_after_s     from SIGTERM until the predecessor was gone, drained
    commits_after_s  from SIGTERM until the first commit of the successor
    published        records that came in meanwhile
    exit_code        of the predecessor
    """

    predecessor: str
    successor: str
    left_after_s: float
    commits_after_s: float
    published: int
    exit_code: int

    @property
    def sentence(self) -> str:
        return (
            f"hand-over: {self.predecessor} left {self.left_after_s} s after SIGTERM, "
            f"{self.successor} commits after {self.commits_after_s} s; "
            f"{self.published:,} records came in meanwhile"
        )


def of_session(session: int, proc: Path = PROC) -> dict[int, tuple[int, bytes]]:
    """Return the living processes of a session, oldest first: parent, and words with NULs after."""
    found: dict[int, tuple[int, bytes]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            # The name before the bracket may hold blanks and brackets (proc(5)).
            state, parent, _group, its, *_ = stat.read_bytes().rpartition(b") ")[2].split()
            if int(its) == session and state not in _ENDED:
                words = stat.with_name("cmdline").read_bytes()
                found[int(stat.parent.name)] = (int(parent), words)
    return dict(sorted(found.items()))


def python_workers(processes: Mapping[int, tuple[int, bytes]]) -> list[int]:
    pool = {pid: parent for pid, (parent, words) in processes.items() if _POOL in words}
    return [pid for pid, parent in pool.items() if parent in pool]


class SparkApplication(ManagedProcess):
    """The driver is the process that a supervisor sees; its session holds all the others.

    Only processes of the session that this driver has begun are ever touched.

    frozen  those that are stopped in their tracks
    """

    frozen: frozenset[int] = frozenset()
    _session: int | None = None

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        super().start(environment)
        self._session = self.pid

    def kill(self) -> bool:
        while everything := self.everything():
            for pid in everything:
                send(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        self.resume()
        self._session = None
        return super().kill()

    def pause(self, chosen: Callable[[], Iterable[int]] | None = None) -> None:
        """Stop these, or everything, in their tracks, also what is forked meanwhile."""
        while fresh := set((chosen or self.everything)()) - self.frozen:
            for pid in fresh:
                # It would not see that its parent is gone: if the demo dies, its watchdog ends it.
                self._watchdog.watch(pid)
                send(pid, signal.SIGSTOP)
            self.frozen |= fresh

    def resume(self) -> None:
        for pid in self.frozen & set(self.everything()):
            send(pid, signal.SIGCONT)
        for pid in self.frozen - {self._session}:
            self._watchdog.forget(pid)
        self.frozen = frozenset()

    def everything(self) -> list[int]:
        return [*self._family()]

    def a_python_worker(self) -> list[int]:
        if self.frozen:
            return list(self.frozen)
        found = python_workers(self._family())
        if not found:
            raise DemoError("Spark has no Python worker although it has committed.")
        return [random.choice(found)]  # noqa: S311 - which one, is no secret

    def left_behind(self) -> list[str]:
        """Return the commands of what lives on although the driver has ended, after a while."""
        deadline_s = time.monotonic() + _GONE_TIMEOUT_S
        while (left := self._family()) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if not left:
            self._session = None
        words = [one.replace(b"\0", b" ")[-_SHOWN:] for _parent, one in left.values()]
        return [one.decode(errors="replace") for one in words]

    def _family(self) -> dict[int, tuple[int, bytes]]:
        return {} if self._session is None else of_session(self._session)


def send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class SparkStage(Stage):
    """Spark begins; the worker is started when Spark hands over to it."""

    engine = "spark"
    exports = SPARK
    patience_s = 180.0  # a start took 43 s where ten others wanted the same two cores

    def leave(self, process: ManagedProcess) -> int:
        """Ask a process to drain and exit; raise DemoError when one that it started remains."""
        code = super().leave(process)
        if isinstance(process, SparkApplication) and (left := process.left_behind()):
            raise DemoError(f"{process.name} left, but processes of it live on: {left}")
        return code

    def _cast(self) -> list[ManagedProcess]:
        options = {"JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", java_options())}
        self.worker = self._process(ManagedProcess, "worker", RUN, HAPAX_INSTANCE=INSTANCE)
        self.application = self._process(SparkApplication, "Spark", RUN, **SPARK, **options)
        return [self.application]


def check_spark() -> None:
    """Raise DemoError, with what to do, when Spark is not installed."""
    if find_spec("pyspark") is None:
        raise DemoError("PySpark is not installed. Run: pip install 'hapax-kafka[spark]'")
    if not (PROC / "self/stat").exists():
        raise DemoError(
            "with Spark it finds the processes to kill under /proc, which this machine does not"
            " have. Run it on Linux, or without --engine spark."
        )


def break_spark(stage: SparkStage, until_s: float) -> tuple[list[DemoFault], list[HandOver]]:
    """Start Spark; kill parts of it, hand over and back, again and again until the time is up."""
    screen, spark = stage.screen, stage.application
    screen.phase(f"Publishing; Spark and an ordinary loop start. Spark needs {_START}")
    screen.note(f"Spark commits {stage.begin():.1f} s after its start")
    faults: list[DemoFault] = []
    hand_overs: list[HandOver] = []
    while not hand_overs or until_s - time.monotonic() > _SPARK_ROUND_S:
        screen.phase("kill -9 a Python worker in the middle of its range, and the ordinary loop")
        faults += kill_python_worker(stage)
        screen.phase(f"kill -9 Spark as a whole, and the ordinary loop. It starts again: {_START}")
        other = freeze_uncommitted(stage)
        freeze_in_range(stage, "Spark", spark.everything)
        faults += kill(stage, other, [DemoFault("driver kill", spark.name, _INSIDE)], [spark])
        screen.phase("Hand-over under load: SIGTERM to Spark, then a worker of the same name")
        hand_overs.append(hand_over(stage, stage.worker))
        screen.phase(f"Hand-over back: SIGTERM to the worker, then Spark starts: {_START}")
        hand_overs.append(hand_over(stage, stage.application))
    return faults, hand_overs


def kill_python_worker(stage: SparkStage) -> list[DemoFault]:
    """Kill both; return when Spark has logged the task's loss, and its lane commits again."""
    spark = stage.application
    other = freeze_uncommitted(stage)
    freeze_in_range(stage, "a Python worker", spark.a_python_worker)
    since = spark.position()
    (victim,) = spark.frozen
    if not send(victim, signal.SIGKILL):
        raise DemoError("a Python worker ended by itself before it could be killed.")
    spark.resume()
    stage.kill(stage.ordinary)
    killed_s = time.monotonic()
    stage.start(stage.ordinary)
    stage.wait(lambda: lane_is_back(spark.events(since)), "the lane of the lost task commits again")
    stage.struck += 1
    fault = DemoFault("Python worker kill", spark.name, _INSIDE, elapsed_s(killed_s))
    return noted(stage, fault, other)


def hand_over(stage: SparkStage, successor: ManagedProcess) -> HandOver:
    """Ask the one that works to leave, and let the other one continue under its name.

    One after the other: two members of one name would take the partitions from each other.
    Returns when the successor has committed; it is the one that works then.
    """
    (predecessor,) = stage.workers
    stage.await_commit(predecessor, predecessor.position())
    published, asked_s = stage.publisher.published, time.monotonic()
    exit_code = stage.leave(predecessor)
    left_after_s, since = elapsed_s(asked_s), successor.position()
    stage.workers = [successor]
    stage.start(successor)
    stage.await_commit(successor, since)
    done = HandOver(
        predecessor=predecessor.name,
        successor=successor.name,
        left_after_s=left_after_s,
        commits_after_s=elapsed_s(asked_s),
        published=stage.publisher.published - published,
        exit_code=exit_code,
    )
    stage.screen.note(done.sentence)
    return done


def freeze_in_range(stage: SparkStage, what: str, chosen: Callable[[], list[int]]) -> None:
    """Freeze a Python worker, or all of Spark, while it has a transaction of its range open.

    Its ranges are short, and logged only when they are over, so the broker says when one is open.
    Raises DemoError when the right moment does not come.
    """
    for _ in range(_CATCHES):
        stage.wait(partial(_caught, stage), "Spark opens a transaction")
        stage.application.pause(chosen)
        if is_inside(stage):
            return
        stage.application.resume()
    raise DemoError(
        f"a transaction of {what} was open at none of {_CATCHES} moments: nothing was killed"
    )


def _caught(stage: SparkStage) -> bool:
    deadline_s = time.monotonic() + _CATCH_S
    while not undecided(stage.offsets, OUTPUTS):
        if time.monotonic() > deadline_s:
            return False
    return True


def lane_is_back(lines: Iterable[Mapping[str, object]]) -> bool:
    """Return whether a task was lost, and its lane has committed after it."""
    lost: set[object] = set()
    for line in lines:
        match line.get("event"):
            case "task_lost":
                lost.add(line.get("lane"))
            case "range_completed" if line.get("lane") in lost and line.get("transactions"):
                return True
    return False

"""The order of things: publish, break workers or Spark, drain, audit.

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
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.demo.orders import DEAD_LETTERS, ORDINARY_DEAD_LETTERS
from hapax.demo.stage import (
    APP,
    ORDINARY_OUTPUTS,
    OUTPUTS,
    RUN,
    SESSION_TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    DemoError,
    DemoFault,
    HandOver,
    Screen,
    Stage,
    committed,
    ended_by_itself,
    lag,
)
from hapax.operations.audit.result import Audit
from hapax.operations.reading import undecided
from hapax.sandbox.processes import ManagedProcess
from hapax.sandbox.servers import java_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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


def break_workers(stage: Stage, until_s: float) -> None:
    stage.screen.phase("Publishing; two workers and an ordinary loop start")
    stage.begin()
    _round(stage, *stage.workers)
    while until_s - time.monotonic() > _ROUND_S:
        _round(stage, *reversed(stage.workers))


def _round(stage: Stage, first: ManagedProcess, second: ManagedProcess) -> None:
    phase = stage.screen.phase
    phase(f"kill -9 {first.name}, and the ordinary loop")
    # Both are frozen first, for as long as it takes to see that transactions exist.
    other = freeze_uncommitted(stage)
    kill(stage, other, {first: DemoFault("kill", first.name, freeze_inside(stage, first))})
    phase(f"Freezing {second.name} for more than {SESSION_TIMEOUT_S} s")
    freeze(stage, second)
    phase("kill -9 both workers at once, and the ordinary loop")
    other, what = freeze_uncommitted(stage), "committing batch after batch"
    for worker in (first, second):  # each right after a commit of its own
        stage.await_commit(worker, worker.position())
    kill(stage, other, {one: DemoFault("kill", one.name, what) for one in (first, second)})


def kill(stage: Stage, other: DemoFault, faults: Mapping[ManagedProcess, DemoFault]) -> None:
    """Kill them and the ordinary loop, start all, and return when each has committed again."""
    for process in (*faults, stage.ordinary):
        stage.kill(process)
    killed_s = time.monotonic()
    lives = {worker: worker.position() for worker in faults}
    for process in (*faults, stage.ordinary):
        stage.start(process)
    stage.struck += len(faults)
    for worker, fault in faults.items():
        stage.await_commit(worker, lives[worker])
        fault.back_after_s = elapsed_s(killed_s)
    stage.note(*faults.values(), other)


def freeze(stage: Stage, worker: ManagedProcess) -> None:
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
    since, thawed_s = worker.position(), time.monotonic()
    worker.resume()
    stage.await_commit(worker, since)
    stage.note(DemoFault("freeze", worker.name, where, elapsed_s(thawed_s)))


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


def break_spark(stage: SparkStage, until_s: float) -> None:
    """Start Spark; kill parts of it, hand over and back, again and again until the time is up."""
    screen, spark = stage.screen, stage.application
    screen.phase(f"Publishing; Spark and an ordinary loop start. Spark needs {_START}")
    screen.note(f"Spark commits {stage.begin():.1f} s after its start")
    while not stage.hand_overs or until_s - time.monotonic() > _SPARK_ROUND_S:
        screen.phase("kill -9 a Python worker in the middle of its range, and the ordinary loop")
        kill_python_worker(stage)
        screen.phase(f"kill -9 Spark as a whole, and the ordinary loop. It starts again: {_START}")
        other = freeze_uncommitted(stage)
        freeze_in_range(stage, "Spark", spark.everything)
        kill(stage, other, {spark: DemoFault("driver kill", spark.name, _INSIDE)})
        screen.phase("Hand-over under load: SIGTERM to Spark, then a worker of the same name")
        hand_over(stage, stage.worker)
        screen.phase(f"Hand-over back: SIGTERM to the worker, then Spark starts: {_START}")
        hand_over(stage, stage.application)


def kill_python_worker(stage: SparkStage) -> None:
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
    stage.note(fault, other)


def hand_over(stage: SparkStage, successor: ManagedProcess) -> None:
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
    stage.note(done)


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


_DRAIN_TIMEOUT_S, _AUDIT_S = 120.0, 600.0
_DEAD_LETTERS = {DEAD_LETTERS, ORDINARY_DEAD_LETTERS}
_KINDS = {
    "missing": "lost",
    "dedup_loss": "lost",
    "doubled": "doubled_by_crashes",
    "repeated": "doubled_by_repeats",
    "out_of_order": "out_of_order",
    "from_aborted": "from_aborted",
}
"""Classes of the audit, as the demo counts them; all others are ``wrong``."""


class DemoVerdict(msgspec.Struct):
    """What an audit came to, in records. The counts below ``duplicates_removed`` must all be 0.

    records_in          of the input, without those of aborted transactions; events: distinct ids
    duplicates_removed  without effect because another one of their id has it
    doubled_by_repeats  with an effect although the event had one: it was sent twice
    doubled_by_crashes  effects too many of a record that was processed twice
    wrong               effects that are not what their source asks for, or a part of it
    examples            the first few of each kind
    """

    records_in: int
    events: int
    outputs: int
    dead_letters: int
    duplicates_removed: int
    lost: int = 0
    doubled_by_repeats: int = 0
    doubled_by_crashes: int = 0
    out_of_order: int = 0
    wrong: int = 0
    from_aborted: int = 0
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @property
    def doubled(self) -> int:
        return self.doubled_by_repeats + self.doubled_by_crashes

    @property
    def exact(self) -> bool:
        """Whether every event had its effect exactly once, in order, and nothing else did."""
        anomalies = self.lost + self.doubled + self.out_of_order + self.wrong + self.from_aborted
        return anomalies == 0


class DemoSummary(msgspec.Struct):
    """All figures of one demo.

    published          records sent, aborted ones included
    aborted            records of aborted transactions, which no reader of the output may notice
    exit_codes         of the workers, asked to exit at the end
    ordinary_restarts  how often the ordinary loop ended by itself and was started again
    """

    engine: str
    published: int
    aborted: int
    faults: list[DemoFault]
    hand_overs: list[HandOver]
    ordinary_faults: list[DemoFault]
    ordinary_restarts: int
    exit_codes: list[int]
    hapax: DemoVerdict
    ordinary: DemoVerdict

    @property
    def exact(self) -> bool:
        left = [*self.exit_codes, *(one.exit_code for one in self.hand_overs)]
        return self.hapax.exact and not any(left)


@contextmanager
def set_stage(engine: str, screen: Screen, *, seed: int, rate: int) -> Iterator[Stage]:
    kind = SparkStage if engine == SparkStage.engine else Stage
    if kind is SparkStage:
        check_spark()
    screen.phase("Starting Kafka and Redis")
    with ExitStack() as exits:
        yield kind(screen, exits, seed=seed, rate=rate)


def tell(stage: Stage, seconds: float) -> DemoSummary:
    """Raise DemoError when it cannot continue, HapaxError when topics cannot be read."""
    until_s = time.monotonic() + seconds
    if isinstance(stage, SparkStage):
        break_spark(stage, until_s)
    else:
        break_workers(stage, until_s)
    stage.screen.phase("Publishing on, without faults")
    left_s = max(0.0, until_s - time.monotonic())
    stage.wait(lambda: time.monotonic() > until_s, "time passes", left_s + 1.0)
    stage.publisher.stop()
    stage.publisher.check()
    exit_codes, (hapax, ordinary) = _drain(stage), _judged(stage)
    faults = [one for one in stage.happened if isinstance(one, DemoFault)]
    return DemoSummary(
        engine=stage.engine,
        published=stage.publisher.published,
        aborted=stage.publisher.aborted,
        faults=[fault for fault in faults if fault.target != stage.ordinary.name],
        hand_overs=stage.hand_overs,
        ordinary_faults=[fault for fault in faults if fault.target == stage.ordinary.name],
        ordinary_restarts=stage.ordinary_restarts,
        exit_codes=exit_codes,
        hapax=hapax,
        ordinary=ordinary,
    )


def _drain(stage: Stage) -> list[int]:
    names = " and ".join(worker.name for worker in stage.workers)
    stage.screen.phase(f"Published all; until lag 0: {names}")
    stage.wait(lambda: lag(stage.offsets, stable=True) == 0, f"lag 0: {names}", _DRAIN_TIMEOUT_S)
    stage.screen.note(f"lag 0 on every partition, beyond aborted records; SIGTERM to {names}")
    codes = [stage.leave(worker) for worker in stage.workers]
    last, offsets = stage.publisher.last, stage.ordinary_offsets
    stage.screen.phase("The ordinary loop finishes")
    stage.wait(
        # It never gets to lag 0: beyond its last record are those of an aborted transaction.
        lambda: all(at > last.get(partition, -1) for partition, at in committed(offsets).items()),
        "the ordinary loop commits its last record",
        _DRAIN_TIMEOUT_S,
    )
    stage.leave(stage.ordinary)
    return codes


def _judged(stage: Stage) -> list[DemoVerdict]:
    stage.screen.phase("hapax audit of both: every record is read back and compared")
    for process in stage.judges:
        process.start()
    stage.wait(lambda: not any(one.running for one in stage.judges), "both audits end", _AUDIT_S)
    verdicts = []
    for process in stage.judges:
        text = process.log.read_text(encoding="utf-8")
        if process.exit_code not in {0, 1}:
            raise ended_by_itself(process)
        found = msgspec.json.decode(text[text.index("{\n") :], type=Audit)
        verdicts.append(verdict_of(found, len(stage.publisher.events)))
        if verdicts[-1].records_in != stage.publisher.visible:
            raise DemoError(
                f"{stage.publisher.visible} records were published, but {process.name} found"
                f" {verdicts[-1].records_in}: nothing can be judged."
            )
    return verdicts


def verdict_of(found: Audit, events: int) -> DemoVerdict:
    counts: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for name, count in found.anomalies.items():
        kind = _KINDS.get(name, "wrong")
        counts[kind] += count
        examples.setdefault(kind, []).extend(found.examples.get(name, ()))
    # The topics of the demo are its own, and what the rule takes is no dead letter.
    foreign = sum(one.foreign for one in found.outputs)
    counts["wrong"] += foreign + found.totals.get("unexpected_dead", 0)
    dead = sum(one.records for one in found.outputs if one.bounds.topic in _DEAD_LETTERS)
    return DemoVerdict(
        records_in=found.totals["records"],
        events=events,
        outputs=sum(one.records for one in found.outputs) - dead,
        dead_letters=dead,
        duplicates_removed=found.totals["duplicates"],
        examples=examples,
        **counts,
    )

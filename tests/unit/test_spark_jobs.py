"""Spark's jobs, on a stand-in for its context."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped] # comes without types
from pyspark import serializers

from hapax.core.errors import ConfigurationError, StopError
from hapax.engines.spark import executors as spark_jobs
from hapax.engines.spark.executors import SparkJobs
from hapax.engines.spark.gate import LACKS, REFUSED
from hapax.engines.spark.plan import RangeOutcome, RangePlan, RangeReport
from tests.kit.spark_driver import P0


def plan(lane: int) -> RangePlan:
    return RangePlan(lane=lane, member=b"m", starts={P0: 0}, ends={P0: 1}, duration_s=1.0, pace=1)


def run(plans: Iterable[RangePlan]) -> Iterator[RangeReport]:
    for each in plans:
        yield RangeReport(lane=each.lane, events=[(threading.current_thread().name, ())])


class FakeProcess:
    killed = False

    def kill(self) -> None:
        self.killed = True


class FakeContext:
    """Runs a job where it is collected. ``fail``: by call, what it raises."""

    master = "spark://nowhere:1"
    cores, task_cores = 3, "1"

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 - Spark's name
        self._note("defaultParallelism", silent=True)
        return self.cores

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return {"spark.task.cpus": self.task_cores}

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.fail: dict[str, Exception] = {}
        self.stopped = False
        self.jvm: Any = self
        self.stopping: Callable[[], object] = lambda: None
        self._gateway: Any = type("Gateway", (), {"proc": FakeProcess()})()
        self._rows: list[Any] = []

    @property
    def _jsc(self) -> Any:
        return self.jvm

    def sc(self) -> Any:
        self._note("sc")
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Java's name
        return self.stopped

    def setJobGroup(self, group: str, text: str, *, interruptOnCancel: bool) -> None:  # noqa: N802, N803 - Spark's names
        self._note("group", group, text, interruptOnCancel)

    def parallelize(self, rows: list[Any], slices: int) -> Any:
        job = FakeContext()
        job._rows, job.fail = list(rows), self.fail
        self._note("parallelize", len(rows), slices)
        return job

    def mapPartitions(self, function: Callable[[Any], Any]) -> Any:  # noqa: N802 - Spark's name
        self._rows = list(function(iter(self._rows)))
        return self

    def collect(self) -> list[Any]:
        self._note("collect")
        return self._rows

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802 - Spark's name
        self._note("cancel", group)

    def cancelAllJobs(self) -> None:  # noqa: N802 - Spark's name
        self._note("cancel all")

    def stop(self) -> None:
        self.stopping()
        self._note("stop")

    def _note(self, *call: object, silent: bool = False) -> None:
        if not silent:
            self.calls.append(call)
        if str(call[0]) in self.fail:
            raise self.fail[str(call[0])]


def jobs(
    context: FakeContext, lanes: int | None = None, executors: "FakeExecutors | None" = None
) -> SparkJobs:
    return SparkJobs(cast("Any", context), run, lanes=lanes, executors=cast("Any", executors))


@pytest.fixture
def context():
    return FakeContext()


def test_there_are_as_many_lanes_as_cores_unless_told_otherwise():
    assert jobs(FakeContext()).lanes == 3
    assert jobs(FakeContext(), lanes=5).lanes == 5
    context = FakeContext()
    context.cores = 0
    assert jobs(context).lanes == 1


@pytest.mark.parametrize("gone", [Py4JNetworkError("gone"), ConnectionRefusedError()])
def test_as_many_tasks_run_at_once_as_have_cores_now_or_had_before_the_jvm_was_gone(gone, context):
    made = jobs(context)
    assert made.slots == 3
    context.cores = 5
    context.task_cores = "2"
    assert (made.slots, jobs(context).slots) == (5, 2)
    context.fail["defaultParallelism"] = gone
    assert made.slots == 5


@pytest.mark.parametrize("master", ["local[3]", FakeContext.master])
def test_tasks_of_a_local_master_are_recalled_by_a_file(monkeypatch, tmp_path, master):
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    context = FakeContext()
    context.master = master
    made = SparkJobs(
        cast("Any", context),
        lambda plans: (RangeReport(lane=0, events=[(str(each.recall), ())]) for each in plans),
        lanes=None,
    )
    local = master == "local[3]"
    file = str(tmp_path / "recall") if local else "None"
    assert made.submit(plan(0)).result(10).events == [(file, ())]
    for wanted in (False, True, True, False, False):
        made.recall(wanted=wanted)
        assert (tmp_path / "recall").exists() == (wanted and local)
    tmp_path.rmdir()
    made.recall(wanted=True)  # Spark has deleted its folder: no task is left to read it


def test_a_plan_is_one_row_of_one_job_and_functions_of_the_driver_run_beside_the_jobs(context):
    made = jobs(context)
    report = made.submit(plan(2)).result(10)
    assert report.lane == 2
    assert report.events[0][0].startswith("lane"), "each lane waits in a thread of its own"
    names: list[str] = []
    made.call(lambda: names.append(threading.current_thread().name)).result(10)
    assert names[0].startswith("lane")
    assert context.calls == [("group", "hapax-lane-2", "lane 2", True), ("parallelize", 1, 1)]


pickling: Any = serializers


class FakeExecutors:
    """Executors that answer what a test says, in place of reports."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers = list(answers)
        self.given: list[str] = []

    def before(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def answer(rows: Iterator[bytes]) -> Iterator[Any]:
            (row,) = rows
            if self.answers:
                yield self.answers.pop(0)
            else:
                yield from run([pickling.CloudPickleSerializer().loads(row)])

        return answer

    def ship_ours(self, _context: object) -> None:
        self.given.append("hapax")


def test_an_executor_that_comes_late_and_will_not_do_ends_the_run():
    executors = FakeExecutors((REFUSED, "executor 3 on node-3 runs hapax 0.0.9"))
    report = jobs(FakeContext(), executors=executors).submit(plan(2)).result(10)
    assert isinstance(report.error, ConfigurationError)
    assert report.error.problems == ["executor 3 on node-3 runs hapax 0.0.9"]


def test_an_executor_that_comes_late_without_hapax_is_given_it_and_the_range_planned_again():
    executors = FakeExecutors((LACKS, "executor 3 on node-3"))
    made = jobs(FakeContext(), executors=executors)
    report = made.submit(plan(2)).result(10)
    assert executors.given == ["hapax"]
    assert (report.lane, report.outcome, report.progress) == (2, RangeOutcome.DONE, {})
    assert made.submit(plan(2)).result(10).events[0][0].startswith("lane"), "the next one has run"


def test_a_task_without_report_raises_what_spark_says(context):
    context.fail["collect"] = RuntimeError("Python worker exited")
    with pytest.raises(RuntimeError, match="Python worker exited"):
        jobs(context).submit(plan(0)).result(10)


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(), None])
def test_the_task_of_a_lane_is_cancelled_by_its_group_or_its_jvm_is_gone(error, context):
    if error is not None:
        context.fail["cancel"] = error
    jobs(context).cancel(2)
    assert context.calls == [("cancel", "hapax-lane-2")]


GONE: dict[str, tuple[str, object]] = {
    "stopped": ("stopped", True),
    "without a JVM": ("jvm", None),
    "cut off": ("fail", {"sc": Py4JNetworkError("no answer")}),
    "refused": ("fail", {"sc": ConnectionRefusedError()}),
}


@pytest.mark.parametrize("gone", GONE)
def test_a_spark_that_is_gone_stops_the_service(gone, context):
    jobs(context).check()
    assert context.calls == [("sc",)]
    setattr(context, *GONE[gone])
    with pytest.raises(StopError, match="a restart begins at the committed offsets"):
        jobs(context).check()


@pytest.mark.parametrize("failing", ["", "cancel all", "stop"])
@pytest.mark.parametrize("is_ours", [True, False])
def test_closing_ends_jobs_and_spark_and_a_jvm_that_is_ours_even_if_it_is_gone(
    failing, context, *, is_ours
):
    context.fail[failing] = Py4JNetworkError("gone")
    process = context._gateway.proc
    if not is_ours:
        context._gateway = object()
    made = jobs(context)
    made.close()
    assert context.calls == [("cancel all",), ("stop",)][: 1 if failing == "cancel all" else 2]
    assert process.killed is is_ours
    with pytest.raises(RuntimeError):
        made.submit(plan(0))


def test_a_jvm_that_never_stops_is_killed(monkeypatch):
    monkeypatch.setattr(spark_jobs, "CLOSE_TIMEOUT_S", 0.05)
    context, ended = FakeContext(), threading.Event()
    context.stopping = ended.wait
    jobs(context).close()
    assert context._gateway.proc.killed
    assert ("stop",) not in context.calls
    ended.set()

"""The executors of a cluster, before they are given a range: what they get, and what they run.

1. the master answers: asked by a plain connection, for Spark itself says nothing for a minute
2. the user's code is shipped, and Hapax where an executor lacks it
3. an executor answers, within a time: with its versions, or with why it cannot run a range

An executor that comes later is asked by its first task (gate.py), before that imports anything.

Which executors Spark has is asked every few seconds for the status page, on a thread of its own: a
JVM that hangs holds up neither the driver's loop nor the page, which says how old the answer is.
"""

from __future__ import annotations

import importlib.util
import socket
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor, TimeoutError as NotYetError, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types
from pyspark import SparkFiles

from hapax.core.errors import ConfigurationError, PreflightError, StopError
from hapax.engines.spark import gate
from hapax.engines.spark.gate import LACKS
from hapax.engines.spark.jvm import StartAbandonedError, cause, finish
from hapax.engines.spark.plan import RangeReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from pyspark import SparkContext

    from hapax.engines.lifecycle import Process
    from hapax.engines.spark.plan import RangePlan
    from hapax.engines.spark.session import SparkOptions

TELL_S = 10.0
"""How long Spark may be silent before the driver says what it waits for."""
_LOOK_S = 0.2
_CONNECT_TIMEOUT_S = 2.0
_CANCEL_TIMEOUT_S = 5.0
Opened = TypeVar("Opened")
_OTHER_PYTHON = "PYTHON_VERSION_MISMATCH"
_LOST = "ExecutorLostFailure"
"""What Spark calls a task whose executor is gone: killed, or its machine."""


class Executors:
    """What is shipped to executors and asked of them; ``function``: the business rule, if any."""

    def __init__(self, process: Process, options: SparkOptions, function: str | None) -> None:
        self._process = process
        self._options = options
        self._function = function
        self._wares = [] if options.local else named(options.ship)
        self._told_s = process.clock.monotonic()
        self._shipped_ours = False

    # -- while Spark starts ---------------------------------------------------------------

    def start(self, opening: Callable[..., Opened]) -> Opened | None:
        """Return what was opened; None: a stop. PreflightError: the master takes no connections."""
        with suppress(StartAbandonedError):
            if self._await_master():
                return opening(self._options, self._abandoned, self._process.events)
        return None

    def _abandoned(self) -> bool:
        """Say whether the start of Spark is wanted no more; report now and then that it lasts."""
        self._tell(f"Spark starts, with {self._named}")
        return self._process.lifecycle.stopping

    def _await_master(self) -> bool:
        servers = list(_servers(self._options.master))
        began_s = self._process.clock.monotonic()
        while servers and not any(map(_connects, servers)):
            if self._process.lifecycle.stopping:
                return False
            if self._process.clock.monotonic() - began_s > self._options.executor_timeout_s:
                text = f"{self._named} takes no connections: start Spark's master there, or name"
                raise PreflightError(f"{text} another one")
            self._tell(f"{self._named} takes no connections yet")
            time.sleep(_LOOK_S)
        return True

    # -- once it has started --------------------------------------------------------------

    def prepare(self, context: SparkContext) -> bool:
        """Ship code and wait for an answer; false when a stop is asked for.

        Raises ConfigurationError for an executor that cannot run a range, PreflightError when none
        answers in time.
        """
        if self._options.local:
            return True
        from pyspark import cloudpickle

        pickling: Any = cloudpickle
        pickling.register_pickle_by_value(gate)
        self._ship(context, [*code_of(self._function), *self._wares])
        answers = self._ask(context)
        if any(word == gate.LACKS for word, _ in answers):
            self.ship_ours(context)
            answers = self._ask(context)
        if refused := [text for word, text in answers if word != gate.FOUND]:
            raise ConfigurationError(sorted(set(refused))[:1])
        if answers:
            self._process.events.executors_ready(
                sorted({text for _, text in answers}), self._wanted
            )
        return bool(answers)

    def ship_ours(self, context: SparkContext) -> None:
        if not self._shipped_ours:
            self._shipped_ours = True
            self._ship(context, list(package(OURS)))

    def before(self, run: Callable[[Iterable[Any]], Iterator[Any]]) -> Callable[..., Any]:
        """Return ``run`` for rows as bytes, after the question whether it can run at all."""
        return partial(gate.gated, self._function, self._wanted, packed(run))

    # -- inside ---------------------------------------------------------------------------

    @property
    def _named(self) -> str:
        return f"HAPAX_SPARK__MASTER={self._options.shown}"

    @property
    def _wanted(self) -> dict[str, str]:
        found, function = gate.versions(), self._function
        return found if function is None else found | {"source": gate.source(function)}

    def _ship(self, context: SparkContext, wares: list[Ware]) -> None:
        if wares:
            from pyspark import SparkFiles

            # Spark deletes this folder when it ends, however the driver ended.
            folder = Path(SparkFiles.getRootDirectory(), "shipped")
            folder.mkdir(exist_ok=True)
            ship(context, wares, folder)
            self._process.events.code_shipped([ware.name for ware in wares])

    def _ask(self, context: SparkContext) -> list[gate.Answer]:
        """Ask executors, again while they die of something else; none when a stop is asked for."""
        began_s = self._process.clock.monotonic()
        while True:
            try:
                return self._ask_once(context, began_s)
            except Exception as error:
                late = self._process.clock.monotonic() - began_s > self._options.executor_timeout_s
                if late or _LOST not in str(error.__cause__):
                    raise
            self._tell(f"an executor of {self._named} died before it answered")

    def _ask_once(self, context: SparkContext, began_s: float) -> list[gate.Answer]:
        ask = partial(gate.ask, self._function, self._wanted)
        tasks = max(2, context.defaultParallelism)
        threads = ThreadPoolExecutor(1, thread_name_prefix="executors")
        job = threads.submit(context.parallelize(range(tasks), tasks).mapPartitions(ask).collect)
        try:
            return list(self._answers(job, began_s))
        finally:
            if not job.done():
                # Left alone, its thread would meet the end of the JVM, and py4j prints a traceback.
                with suppress(Exception):
                    context.cancelAllJobs()
                wait([job], _CANCEL_TIMEOUT_S)
            threads.shutdown(wait=False)

    def _answers(self, job: Any, began_s: float) -> Iterator[gate.Answer]:
        clock, options = self._process.clock, self._options
        while not self._process.lifecycle.stopping:
            try:
                yield from job.result(_LOOK_S)
            except NotYetError:
                if clock.monotonic() - began_s > options.executor_timeout_s:
                    raise PreflightError(self._nobody()) from None
                self._tell(f"no executor of {self._named} has answered yet")
            except Exception as error:
                raise self._refusal(error) from error
            else:
                return

    def _nobody(self) -> str:
        asked = self._options.properties
        memory = asked.get("spark.executor.memory", "1g")
        cores = asked.get("spark.executor.cores", "all cores of a worker")
        return (
            f"no executor of {self._named} has answered for"
            f" {self._options.executor_timeout_s:.0f} s: its workers have none free, or none as"
            f" large as asked for (spark.executor.memory {memory}, spark.executor.cores {cores}),"
            " or executors cannot reach this driver (spark.driver.host, spark.driver.port). The"
            " master's page shows which; HAPAX_SPARK__EXECUTOR_TIMEOUT waits longer"
        )

    def _refusal(self, error: Exception) -> Exception:
        text = str(error)
        if _OTHER_PYTHON in text:
            told = f"an executor runs another Python than the driver: {cause(error)}"
            return ConfigurationError(f"{told}. PYSPARK_PYTHON names the one of executors")
        return PreflightError(f"an executor of {self._named} ran no task: {cause(error)}")

    def _tell(self, what: str) -> None:
        clock = self._process.clock
        if clock.monotonic() - self._told_s >= TELL_S:
            self._told_s = clock.monotonic()
            self._process.events.executors_awaited(what)


def packed(thing: Any) -> bytes:
    """Return something as bytes that only an executor which will do unpacks."""
    from pyspark import serializers

    pickling: Any = serializers
    return bytes(pickling.CloudPickleSerializer().dumps(thing))


def _servers(master: str) -> Iterator[tuple[str, int]]:
    scheme, _, rest = master.partition("://")
    if scheme == "spark":
        for each in rest.split(","):
            host, _, port = each.rpartition(":")
            if port.isdecimal():
                yield host.strip("[]"), int(port)


def _connects(server: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(server, _CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


# -- Code for executors ---------------------------------------------------------------------------


OURS = "hapax"
_SETTING = "HAPAX_SPARK__SHIP"
_ENVIRONMENTS = (".tar.gz", ".tgz")
_SKIPPED = frozenset({"__pycache__"})
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Ware(NamedTuple):
    """One thing to ship.

    name         what executors import it as; of a packed environment: its folder
    environment  it holds a Python, which executors run
    """

    name: str
    path: Path
    environment: bool = False


def code_of(function: str | None) -> Iterator[Ware]:
    """Yield nothing for Hapax itself, or for code in no folder (a zip of spark-submit)."""
    top = (function or OURS).partition(":")[0].partition(".")[0]
    if top != OURS:
        yield from package(top)


def package(top: str) -> Iterator[Ware]:
    """Yield the folders of a package, each once, or the file of a module."""
    spec = importlib.util.find_spec(top)
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        # A folder without __init__.py is found once for each entry of the path that leads to it.
        places = list(dict.fromkeys(map(Path, spec.submodule_search_locations)))
    else:
        places = [Path(spec.origin or "")]
    yield from (Ware(top, place) for place in places if place.exists() and place.name)


def named(paths: Sequence[str]) -> list[Ware]:
    """Return what HAPAX_SPARK__SHIP names; raise ConfigurationError for what cannot be shipped."""
    problems, wares = [], []
    for text in paths:
        path = Path(text).expanduser().resolve()
        if path.is_dir() or path.suffix in {".py", ".zip", ".egg"}:
            wares.append(Ware(path.name.removesuffix(".py"), path))
        elif path.name.endswith(_ENVIRONMENTS):
            wares.append(Ware(path.name.partition(".")[0], path, environment=True))
        else:
            problems.append(
                f"{_SETTING}: {text} is no folder, .py, .zip or .egg file, and no packed "
                f"environment ({' or '.join(_ENVIRONMENTS)})"
            )
            continue
        if not path.exists():
            problems.append(f"{_SETTING}: {text} does not exist")
        elif wares[-1].environment and not _has_python(path):
            problems.append(
                f"{_SETTING}: {text} holds no bin/python: pack an environment with venv-pack or"
                " conda-pack, or name code as a folder or a .zip file"
            )
    if problems:
        raise ConfigurationError(problems)
    return wares


def ship(context: SparkContext, wares: Sequence[Ware], folder: Path) -> None:
    """Hand things out from ``folder``; a packed environment becomes the Python of executors."""
    for number, ware in enumerate(wares):
        if ware.path.is_dir():
            archive = folder / f"{number}-{ware.name}.zip"
            _zip(ware.path, archive)
            context.addArchive(f"{archive}#{ware.name}")
        elif ware.environment:
            context.addArchive(f"{ware.path}#{ware.name}")
            context.pythonExec = f"./{ware.name}/bin/python"
        elif ware.path.suffix == ".py":
            context.addFile(str(ware.path))
        else:
            context.addPyFile(str(ware.path))


def _zip(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not _SKIPPED.intersection(inside.parts):
                archive.writestr(
                    zipfile.ZipInfo(str(inside), _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED
                )


def _has_python(path: Path) -> bool:
    try:
        with tarfile.open(path) as archive:
            return any(name.removeprefix("./") == "bin/python" for name in archive.getnames())
    except (OSError, tarfile.TarError):
        return False


# -- Jobs: one for each plan, with one task, one row and one report --------------------------------


CLOSE_TIMEOUT_S = 5.0
THREADS_MAX = 10_000
"""As many as there can be lanes; a thread begins with the first job that finds none idle."""


class SparkJobs:
    """Runs plans side by side: a job of one lane waits for no other lane.

    ``run`` is what executors import; it gets the plans of a Spark partition. ``executors``: of a
    cluster, which are asked first whether they can run it; None: everything is in this container.
    """

    def __init__(
        self,
        context: SparkContext,
        run: Callable[[Iterable[RangePlan]], Iterator[RangeReport]],
        *,
        lanes: int | None,
        executors: Executors | None = None,
    ) -> None:
        self._context = context
        self._executors = executors
        self._run: Callable[..., Any] = run if executors is None else executors.before(run)
        self._lanes = lanes
        local = (context.master or "").startswith("local")
        # Spark deletes this folder when it ends, however the driver ended.
        self._recall = Path(SparkFiles.getRootDirectory(), "recall") if local else None
        self._recalled = False
        self._slots = self.lanes
        self._task_cores = int(context.getConf().get("spark.task.cpus", "1"))
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lane")

    @property
    def lanes(self) -> int:
        """As many as asked for, else as Spark has cores now; 1 when it does not answer."""
        cores = 1
        with suppress(Py4JError, OSError):
            cores = self._lanes or self._context.defaultParallelism
        return max(1, cores)

    @property
    def slots(self) -> int:
        """How many tasks run at once: cores, as Spark counts them now."""
        with suppress(Py4JError, OSError):  # a JVM that is gone is noticed by the next job
            self._slots = self._context.defaultParallelism // self._task_cores
        return self._slots

    def recall(self, *, wanted: bool) -> None:
        """Ask running tasks to end with the batch in work, or no longer.

        It reaches those that share a file system with the driver; others end when their time is
        over.
        """
        if self._recall is None or wanted == self._recalled:
            return
        with suppress(OSError):  # the folder went with Spark; the tasks, too
            if wanted:
                self._recall.touch()
            else:
                self._recall.unlink(missing_ok=True)
        self._recalled = wanted

    def submit(self, plan: RangePlan) -> Future[RangeReport]:
        """Start a job; its future raises what Spark says when the task did not report."""
        recall = None if self._recall is None else str(self._recall)
        return self._threads.submit(self._job, msgspec.structs.replace(plan, recall=recall))

    def call(self, function: Callable[[], None]) -> Future[None]:
        """Run something else alongside the jobs, on the driver."""
        return self._threads.submit(function)

    def cancel(self, lane: int) -> None:
        """End the running task of a lane: frozen, or in business code that does not return."""
        with suppress(Py4JError, OSError):
            self._context.cancelJobGroup(_group(lane))

    def check(self) -> None:
        """Raise StopError when Spark itself is gone: no job can ever succeed."""
        try:
            java = self._context._jsc
            gone = java is None or java.sc().isStopped()
        except (Py4JError, OSError):
            gone = True
        if gone:
            raise StopError("Spark's JVM is gone: a restart begins at the committed offsets")

    def close(self) -> None:
        """End what runs, and Spark. What was not committed is aborted by the brokers."""
        stopping = threading.Thread(target=self._stop, daemon=True)
        stopping.start()
        stopping.join(CLOSE_TIMEOUT_S)
        process = getattr(self._context._gateway, "proc", None)
        if process is not None:
            process.kill()  # a JVM that hangs would keep the threads, and the process
        finish(process)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _stop(self) -> None:
        with suppress(Exception):  # the JVM may be gone already
            self._context.cancelAllJobs()
            self._context.stop()

    def _job(self, plan: RangePlan) -> RangeReport:
        context = self._context
        context.setJobGroup(_group(plan.lane), f"lane {plan.lane}", interruptOnCancel=True)
        row = plan if self._executors is None else packed(plan)
        (answer,) = context.parallelize([row], 1).mapPartitions(self._run).collect()
        if not isinstance(answer, tuple):
            report: RangeReport = answer
            return report
        word, text = answer
        if word == LACKS and self._executors is not None:
            self._executors.ship_ours(context)
            return RangeReport(lane=plan.lane, pace=plan.pace)  # nothing was done: plan it again
        return RangeReport(lane=plan.lane, pace=plan.pace, error=ConfigurationError(text))


def _group(lane: int) -> str:
    return f"hapax-lane-{lane}"

"""Spark's JVM: its start, which can be given up at any moment, its executors, and what it prints.

Spark's log (log4j2.properties), the launcher, a JVM that crashes, tasks and business code all write
to two pipes that are one here. A traceback, a stack or the report of a crash is one entry of the
service's own log. Left out is what says nothing, and the tracebacks of connections that have ended:
a stop drops the task that Spark has begun meanwhile, and PySpark prints that. One thread reads and
never waits for a reader of the log, for a full pipe would hold up the JVM; another one writes.

Spark starts on a thread of its own: it takes seconds and hears no signal meanwhile, and on the main
thread PySpark would take SIGINT for itself. The JVM gets a process group of its own, so that a
signal to the driver's group ends it no sooner than the driver. Then it ends by itself.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, Full, Queue
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from hapax.core.errors import HapaxError
from hapax.settings.redaction import hidden
from hapax.telemetry.health import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark import SparkContext

    from hapax.telemetry.events import Events

    Tell = Callable[[int, str, str], None]
    """Level as in Python's logging, who speaks, and the text."""

INFO, WARNING, ERROR = 20, 30, 40
HOLD_S = 0.2
"""How long an entry waits for further lines of it."""
LINE_BYTES_MAX, ENTRY_LINES_MAX, TEXT_CHARS_MAX = 4_096, 500, 2_000
WAITING_MAX = 5_000
"""Lines that are read and not written; more are only counted."""

OUTPUT, JVM, PYTHON, TASK = "output", "jvm", "python", "task"
"""Who speaks where no class of Spark's log does."""

_TRACE: Final = "Traceback (most recent call last):"
_ENDED: Final = ("BrokenPipeError", "ConnectionResetError")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct")
_WITHIN: Final = ("Caused by: ", "Suppressed: ")
_IGNORED: Final = "Exception ignored"
_DIED: Final = "Fatal Python error: "
_OF_DEATH: Final = ("Current thread ", "Thread ", "Python runtime state: ", "Extension modules: ")
_OURS: Final = re.compile(r"hapax(?: task| sink)?: ")
"""What a task says before its process ends (task.py), and what the sink says (hapax/spark.py)."""
_CRASH: Final = "#"
_LOGGED: Final = re.compile(
    r"(?:spark|\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (FATAL|ERROR|WARN|INFO|DEBUG|TRACE) ([\w.$]+): ?(.*)"
)
"""As log4j2.properties has it, or Spark's own where a user has chosen another file."""
_LEVELS: Final = {"FATAL": ERROR, "ERROR": ERROR, "WARN": WARNING}
_BREAKS: Final = re.compile(r"\\[rn]")
_SECRETIVE: Final = re.compile("[=:@]|bearer|basic", re.IGNORECASE)
"""Without one of these there is no secret by its place; to look for it takes long."""
_SILENT: Final = re.compile(
    "WARNING: Using incubator modules|Setting default log level to|To adjust logging level use"
    r"|Using Spark's default log4j profile|(?:NOTE: )?Picked up \w*JAVA\w*OPTIONS"
    "|PySpark worker failed with exception:$"
    "|(?:Starting )?Streaming TransformWithStateInPandas Python worker"  # five lines for each start
)
_SILENT_LOGS: Final = re.compile(
    r"Unable to load native-hadoop library|Your hostname, .* resolves to a loopback address"
    r"|Set SPARK_LOCAL_IP if you need"
)
_HEADS: Final = tuple(
    (re.compile(form), level, logger)
    for form, level, logger in (
        (_OURS.pattern, WARNING, TASK),
        (_DIED, ERROR, PYTHON),
        ("#$", ERROR, JVM),
        (r"Exception in thread |(?:\w+[.$])+\w*(?:Exception|Error)\b", ERROR, JVM),
        ("(?:Terminating|Aborting) due to java|Error: |Error occurred during", ERROR, JVM),
        (r"WARNING: |.*\bVM warning: ", WARNING, JVM),
        ("", INFO, OUTPUT),
    )
)
"""What is not a line of the log, by its beginning."""
_RAISED: Final = re.compile(re.escape(_TRACE) + r"(?:\n(?:[ \t].*)?)*\n(\S.*)")
"""What follows the indented lines of a traceback: code may name errors, and an error no "Error"."""
LOOK_S = 0.05
END_TIMEOUT_S = 10.0
FINISH_TIMEOUT_S = 2.0
INTERVAL_S, SHARE_MAX = 3.0, 0.05
"""Of the thread's time at most so much goes into asking: hundreds are asked for less often."""
ONLY_ACTIVE = True
"""How long a JVM that is over may still print."""


class Entry(NamedTuple):
    """One thing that was said."""

    level: int
    logger: str
    text: str


class Entries:
    """Lines in, entries out."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def held(self) -> bool:
        return bool(self._lines)

    def take(self, line: str) -> Iterator[Entry]:
        line = line.rstrip()
        if not line:
            return  # between two parts of a traceback as well
        if _SECRETIVE.search(line):
            line = hidden(line)  # before it is cut: a name at the one end points to the other
        lines = self._lines
        apart = not lines or len(lines) >= ENTRY_LINES_MAX or _LOGGED.match(line)
        if apart or not _belongs(line, lines[0], lines[-1], traced=_TRACE in lines):
            yield from self.flush()
        self._lines.append(line)

    def flush(self) -> Iterator[Entry]:
        """Yield what is held: nothing of it will come any more."""
        lines, self._lines = self._lines, []
        if lines and (entry := _entry(lines)) is not None:
            yield entry


def _belongs(line: str, head: str, last: str, *, traced: bool) -> bool:
    if head == _CRASH:
        return line.startswith(_CRASH)
    if line == _TRACE:
        return last.endswith(":") or last.startswith((_IGNORED, *_CHAINED))
    names_error = last.startswith(_IGNORED) or (traced and last[0].isspace())
    chained = traced and line.startswith(_CHAINED)
    of_death = head.startswith(_DIED) and line.startswith(_OF_DEATH)
    return line[0].isspace() or line.startswith(_WITHIN) or names_error or chained or of_death


def _entry(lines: list[str]) -> Entry | None:
    head, text = lines[0], _joined(lines)
    if _SILENT.match(head) and not lines[1:]:
        return None
    if logged := _LOGGED.match(head):
        said, logger, _ = logged.groups()
        text = " ".join(_BREAKS.sub(" ", text[logged.start(3) :]).split())
        return None if _SILENT_LOGS.match(text) else Entry(_LEVELS.get(said, INFO), logger, text)
    if _TRACE in lines or head.startswith(_IGNORED):
        ended = [line for line in lines if not line[0].isspace()][-1].startswith(_ENDED)
        return None if ended else Entry(ERROR, PYTHON, text)
    level, logger = next((level, who) for form, level, who in _HEADS if form.match(head))
    return Entry(level, logger, _OURS.sub("", text, count=1) if logger == TASK else text)


def _joined(lines: list[str]) -> str:
    """Return lines as one; the end of a traceback says more than its middle."""
    text = " ".join(part for line in lines if (part := line.strip(" \t#")))
    half = TEXT_CHARS_MAX // 2
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:half]} … {text[-half:]}"


def cause(error: Exception) -> str:
    """Return the line of Spark's long story that says what happened."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip(" :")]
    telling = [line for line in lines if "Error" in line or "Exception" in line or "crash" in line]
    return (_RAISED.findall(str(error)) or telling or lines or [type(error).__name__])[0]


class JvmOutput:
    """Logs what comes through a pipe until its end."""

    def __init__(self, pipe: IO[bytes], tell: Tell) -> None:
        self._pipe = pipe
        self._say = tell
        self._waiting: Queue[str | None] = Queue(WAITING_MAX)
        self._dropped = 0
        self._threads = [
            threading.Thread(target=target, name=f"jvm-{target.__name__.strip('_')}", daemon=True)
            for target in (self._read, self._tell_all)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self, within_s: float) -> None:
        """Wait until all is logged, where the pipe has come to its end; no longer than that."""
        for thread in self._threads:
            thread.join(within_s)

    def _read(self) -> None:
        with self._pipe as pipe, suppress(ValueError, OSError):
            while line := pipe.readline(LINE_BYTES_MAX):
                try:
                    self._waiting.put_nowait(line.decode("utf-8", "replace"))
                except Full:
                    self._dropped += 1
                while line and not line.endswith(b"\n"):  # what a line has beyond that
                    line = pipe.readline(LINE_BYTES_MAX)
        self._waiting.put(None)

    def _tell_all(self) -> None:
        entries = Entries()
        line: str | None = ""
        while line is not None:
            try:
                line = self._waiting.get(timeout=HOLD_S if entries.held else None)
            except Empty:
                self._tell(entries.flush())
                continue
            self._tell(entries.flush() if line is None else entries.take(line))
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                text = f"{dropped} lines came faster than the log takes them, and are dropped"
                self._tell(iter([Entry(WARNING, OUTPUT, text)]))

    def _tell(self, entries: Iterator[Entry]) -> None:
        for entry in entries:
            with suppress(OSError, ValueError):  # no reader takes the lines any more
                self._say(*entry)


Opened = TypeVar("Opened")


class StartAbandonedError(HapaxError):
    """Spark is not started any more: the process was asked to stop."""


def start(opening: Callable[[], Opened], abandoned: Callable[[], bool], tell: Tell) -> Opened:
    """Return what ``opening`` returns, or raise what it raises.

    ``tell`` gets what the JVM prints, from now until its end, in a thread of its own.

    Raises StartAbandonedError once ``abandoned`` says so; like whatever else is raised meanwhile
    (KeyboardInterrupt), it leaves no process.
    """
    opened: Future[Opened] = Future()

    def run() -> None:
        try:
            opened.set_result(opening())
        except Exception as error:  # noqa: BLE001 - raised again, by the thread that waits
            opened.set_exception(error)

    thread = threading.Thread(target=run, name="spark-start", daemon=True)
    with _children(tell) as children:
        thread.start()
        try:
            _await(thread, abandoned)
        except BaseException:
            children.end(thread)
            raise
    return opened.result(0)


def _await(thread: threading.Thread, abandoned: Callable[[], bool]) -> None:
    while thread.is_alive():
        thread.join(LOOK_S)
        if abandoned():
            raise StartAbandonedError


def _spare_java_home() -> Path | None:
    """Return the Java of a wheel, where Spark would find none or one that cannot start it."""
    try:
        from hapax.sandbox import machine
    except ModuleNotFoundError:  # an image, which has its own
        return None
    return machine.spare_java_home()


def finish(process: object) -> None:
    if not isinstance(process, _Child):
        return
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if process.output is not None:
        process.output.finish(FINISH_TIMEOUT_S)


class _Child(subprocess.Popen[bytes]):
    """A process with what it prints; this is what PySpark keeps as the process of its gateway."""

    output: JvmOutput | None = None


class _Children:
    """The processes that PySpark starts for its JVM."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._found: list[_Child] = []
        self._lock = threading.Lock()
        self._ending = False

    def popen(self, *arguments: Any, **options: Any) -> _Child:
        """Start one, in a process group of its own, with a Java that can start Spark."""
        with self._lock:
            if self._ending:
                raise StartAbandonedError
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            if (home := _spare_java_home()) is not None:
                options["env"] = {**(options.get("env") or os.environ), "JAVA_HOME": str(home)}
            child: _Child = _Child(*arguments, **options, process_group=0)
            self._found.append(child)
            if child.stdout is not None:
                child.output = JvmOutput(child.stdout, self._tell)
            return child

    def end(self, thread: threading.Thread) -> None:
        """Kill them; wait until they, and the thread that talks to them, are gone."""
        with self._lock:
            self._ending = True
        for child in self._found:
            with suppress(ProcessLookupError):
                # Its group: before there is a JVM there are shells, and a JVM that reads settings.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        thread.join(END_TIMEOUT_S)


@contextmanager
def _children(tell: Tell) -> Iterator[_Children]:
    """Start the JVM with these options; PySpark names its process only once it answers."""
    from pyspark import java_gateway

    children = _Children(tell)
    gateway: Any = java_gateway
    original = gateway.Popen
    gateway.Popen = children.popen
    try:
        yield children
    finally:
        gateway.Popen = original


def watch_executors(
    context: SparkContext, events: Events, wait: Callable[[float], object] = time.sleep
) -> threading.Thread:
    given = (context, events, wait)
    thread = threading.Thread(target=_watch, args=given, name="executors", daemon=True)
    thread.start()
    return thread


def _watch(context: Any, events: Events, wait: Callable[[float], object]) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types

    try:
        ui = context.uiWebUrl or ""
        while (java := context._jsc) is not None:
            # The store of Spark's own pages exists without them, too.
            began_s = time.monotonic()
            listed = java.sc().statusStore().executorList(ONLY_ACTIVE)
            found = [_executor(listed.apply(at)) for at in range(listed.size())]
            events.executors_changed(found, ui)
            wait(max(INTERVAL_S, (time.monotonic() - began_s) / SHARE_MAX))
    except (Py4JError, OSError, AttributeError, TypeError):
        return  # it was stopped meanwhile: the driver notices by itself when it is not to


def _executor(java: Any) -> Executor:
    tasks = (java.activeTasks(), java.completedTasks(), java.failedTasks())
    memory_bytes = (java.memoryUsed(), java.maxMemory())
    return Executor(java.id(), java.hostPort(), java.totalCores(), *tasks, *memory_bytes)

"""The start of Spark's JVM, which can be given up at any moment and then leaves nothing behind.

Spark starts on a thread of its own: it takes seconds and hears no signal meanwhile, and on the main
thread PySpark would take SIGINT for itself. The JVM gets a process group of its own, so that what a
terminal or a supervisor sends to our group (Ctrl-C, SIGTERM) ends it no sooner than we do: killed
beside us, it takes the running ranges along and prints traces. When we die it reads the end of its
standard input, and ends. What it prints is told as ``jvm_output`` says.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from hapax.core.errors import HapaxError
from hapax.engines.spark.jvm_output import JvmOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hapax.engines.spark.jvm_output import Tell

LOOK_S = 0.05
END_TIMEOUT_S = 10.0
FINISH_TIMEOUT_S = 2.0
"""How long a JVM that is over may still print."""

Opened = TypeVar("Opened")


class StartAbandonedError(HapaxError):
    """Spark is not started any more: the process was asked to stop."""


def never() -> bool:
    """Say that the start is wanted."""
    return False


def start(opening: Callable[[], Opened], abandoned: Callable[[], bool], tell: Tell) -> Opened:
    """Return what ``opening`` returns, or raise what it raises.

    ``tell`` gets what the JVM prints, from now until its end, in a thread of its own.

    Raises StartAbandonedError once ``abandoned`` says so; like whatever else is raised while we
    wait (KeyboardInterrupt), it leaves no process behind.
    """
    result: list[Opened] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            result.append(opening())
        except Exception as error:  # noqa: BLE001 - raised again, by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="spark-start", daemon=True)
    with _children(tell) as children:
        thread.start()
        try:
            _await(thread, abandoned)
        except BaseException:
            children.end(thread)
            raise
    if errors:
        raise errors[0]
    return result[0]


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
    """Let a JVM end that has nothing more to do, and tell what it printed."""
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
            home = _spare_java_home()
            if home is not None:
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
    """Start the JVM our way; PySpark names its process only once it answers."""
    from pyspark import java_gateway

    children = _Children(tell)
    gateway: Any = java_gateway
    original = gateway.Popen
    gateway.Popen = children.popen
    try:
        yield children
    finally:
        gateway.Popen = original

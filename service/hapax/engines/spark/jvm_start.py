"""The start of Spark's JVM, which can be given up at any moment and then leaves nothing behind.

Spark starts on a thread of its own: it takes seconds and hears no signal meanwhile, and on the main
thread PySpark would take SIGINT for itself. The JVM gets a process group of its own, so that what a
terminal or a supervisor sends to our group (Ctrl-C, SIGTERM) ends it no sooner than we do: killed
beside us, it takes the running ranges along and prints traces. When we die it reads the end of its
standard input, and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, TypeVar

from hapax.core.errors import HapaxError
from hapax.engines.spark.jvm_output import pass_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOK_S = 0.05
END_TIMEOUT_S = 10.0
STDERR = 2

Opened = TypeVar("Opened")


class StartAbandonedError(HapaxError):
    """Spark is not started any more: the process was asked to stop."""


def never() -> bool:
    """Say that the start is wanted."""
    return False


def start(opening: Callable[[], Opened], abandoned: Callable[[], bool]) -> Opened:
    """Return what ``opening`` returns, or raise what it raises.

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
    with _children() as children:
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


class _Children:
    """The processes that PySpark starts for its JVM."""

    def __init__(self) -> None:
        self._found: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._ending = False

    def popen(self, *arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        """Start one, in a process group of its own."""
        with self._lock:
            if self._ending:
                raise StartAbandonedError
            options = {"stderr": subprocess.PIPE, **options}
            child = subprocess.Popen(*arguments, **options, process_group=0)
            self._found.append(child)
            if child.stderr is not None:
                threading.Thread(target=_show, args=[child.stderr], name="jvm", daemon=True).start()
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


def _show(output: IO[bytes]) -> None:
    """Pass on what a child prints to our standard error, until it ends."""
    with output, open(STDERR, "wb", closefd=False) as target:
        pass_on(output, target)


@contextmanager
def _children() -> Iterator[_Children]:
    """Start the JVM our way; PySpark names its process only once it answers."""
    from pyspark import java_gateway

    children = _Children()
    gateway: Any = java_gateway
    original = gateway.Popen
    gateway.Popen = children.popen
    try:
        yield children
    finally:
        gateway.Popen = original

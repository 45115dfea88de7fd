"""Spark jobs on request of a process beside the driver, which has no context of its own.

Spark calls the sink's ``commit`` in a Python process of the JVM's. Only the process that opened the
session can submit jobs: it keeps a desk there, a socket in a folder of its user with a key, and the
sink that is registered with the session names it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # comes without types
from pyspark.errors import PySparkException

from hapax.core.errors import StopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from pyspark import SparkContext

_KEY_BYTES = 32
_REASON_CHARS_MAX = 600
UNREACHABLE = (
    "the process that opened the Spark session cannot be asked to publish: {}. What is fixed is"
    " published at the next start; HAPAX_SPARK__PUBLISH=together (option publish) needs no such"
    " process"
)


class DeskAddress(NamedTuple):
    """Where a desk is, and the key that it asks for."""

    path: str
    key: bytes

    def lanes(self) -> int:
        """Return how many tasks Spark runs at once."""
        return int(self._asked("lanes"))

    def run(
        self,
        group: str,
        function: Callable[[Iterable[Any]], Iterator[Any]],
        items: Sequence[Any],
    ) -> list[Any]:
        """Run one task for each item; return what they gave. Raises StopError.

        A job of the same group that still runs is cancelled first.
        """
        return list(self._asked("run", group, function, items))

    def _asked(self, *request: object) -> Any:
        try:
            with Client(self.path, "AF_UNIX", authkey=self.key) as connection:
                connection.send(request)
                done, answer = connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            raise StopError(UNREACHABLE.format(f"{type(error).__name__} {error}")) from error
        if not done:
            raise StopError(str(answer))
        return answer


class JobDesk:
    """Answers requests from threads of its own until it is closed."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._folder = tempfile.mkdtemp(prefix="hapax-desk-")
        try:
            self.address = DeskAddress(f"{self._folder}/desk", secrets.token_bytes(_KEY_BYTES))
            self._listener = Listener(
                self.address.path, "AF_UNIX", backlog=8, authkey=self.address.key
            )
        except OSError:  # a path that is too long for a socket
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._owner = os.getpid()
        self._open = True
        threading.Thread(target=self._serve, name="desk", daemon=True).start()

    def close(self) -> None:
        """Take no more requests. A job that runs is Spark's to end."""
        if os.getpid() == self._owner:  # and not in a process that was forked off
            self._open = False
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while self._open:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                continue
            threading.Thread(
                target=self._answer, args=(connection,), name="desk-job", daemon=True
            ).start()

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(OSError, EOFError):  # whoever asked may be gone
            kind, *request = connection.recv()
            try:
                answer = self._lanes() if kind == "lanes" else self._run(*request)
            except (PySparkException, Py4JError, OSError) as error:
                connection.send((False, _failed(error)))
            else:
                connection.send((True, answer))

    def _lanes(self) -> int:
        return max(1, self._context.defaultParallelism)

    def _run(
        self, group: str, function: Callable[[Iterable[Any]], Iterator[Any]], items: Sequence[Any]
    ) -> list[Any]:
        context = self._context
        context.cancelJobGroup(group)
        context.setJobGroup(group, "a micro-batch in parts", interruptOnCancel=False)
        return context.parallelize(items, len(items)).mapPartitions(function).collect()


def _failed(error: Exception) -> str:
    text = " ".join(str(error).split())[:_REASON_CHARS_MAX]
    return (
        "Spark's job that publishes the micro-batch in parts failed; what is not published follows"
        f" at the next start: {type(error).__name__}: {text}"
    )

"""Calls of the transform in a process that may die: the Elsewhere of core/crash_markers.py.

The process is a fresh interpreter, never a fork: it shares no connection and no lock with this one,
and loads the function as a start does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.core.crash_markers import Death, IsolationError
from hapax.core.records import Output
from hapax.core.retry_later import Later
from hapax.core.transform import Failure, Undecided
from hapax.engines.import_path import import_path
from hapax.engines.isolated_process import receive, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.call_window import CallLimits
    from hapax.core.records import Record
    from hapax.core.transform import Result

MODULE = "hapax.engines.isolated_process"
END_WAIT_S = 5.0
LOAD_S = 60.0
"""A limit on calls says nothing about what is imported and set up before the first one."""
_RESULTS = msgspec.msgpack.Decoder(list[tuple[Output, ...] | Failure | Later | Undecided])


class IsolatedCalls:
    """One process at a time, started by the first call.

    transform  ``package.module:function``; None: the identity
    limits     how calls are made
    limit_s    longest that a call may take; loading the function has ``LOAD_S`` at least
    """

    def __init__(self, transform: str | None, limits: CallLimits, limit_s: float) -> None:
        self._limits = msgspec.json.encode(limits)  # with secrets: no list of processes shows them
        self._transform = transform or ""
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def call(self, records: Sequence[Record]) -> Sequence[Result]:
        channel = self._channel or self._start()
        try:
            send(channel, msgspec.msgpack.encode(records))
            results: Sequence[Result] = _RESULTS.decode(receive(channel))
        except TimeoutError:
            self.close()
            raise Death(f"it did not return within {self._limit_s:g} s", hung=True) from None
        except (EOFError, OSError):
            raise Death(self._end(), hung=False) from None
        return results

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._end()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        # The variable would put the working folder before Python itself, and -m as well.
        path, last = import_path().split(os.pathsep), sys.path[-1:]
        here = last if last == [str(Path.cwd())] else []
        known = os.pathsep.join(each for each in path if each not in here)
        environment = {**os.environ, "PYTHONPATH": known}
        words = [str(theirs.fileno()), self._transform, *here]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, *words],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a transform that kills its group kills only itself
            )
        except OSError as error:
            ours.close()
            raise IsolationError(f"no process for isolated calls: {error}") from error
        finally:
            theirs.close()
        ours.settimeout(max(LOAD_S, self._limit_s))
        self._channel = ours
        try:
            send(ours, self._limits)
            receive(ours)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._process.kill()
            raise IsolationError(
                f"a process for isolated calls did not load the transform: {self._end()}"
            ) from error
        ours.settimeout(self._limit_s)
        return ours

    def _end(self) -> str:
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(OSError):
                channel.close()
        if process is None:
            return "it was closed"
        try:
            code = process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code >= 0:
            return f"it ended with exit code {code}"
        try:
            return f"it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was ended by signal {-code}"

"""A process that can be killed, paused and restarted, ports of its own, and a place for both."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hapax.sandbox.machine import SandboxError
from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

READY_TIMEOUT_S = 120.0  # three brokers after a kill of all took 47 s on a loaded machine
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_LAST_WORDS = 20
_LINE_MAX = 400
LOOPBACK = "127.0.0.1"


class ManagedProcess:
    """One process, started again and again with the same command, in the same folder.

    Servers of the sandbox, and the workers of ``hapax demo`` and ``hapax dev``.

    log          takes its standard output and error, after those of earlier starts; its folder is
                 where the process runs. None: the caller's standard error, and the caller's folder
    environment  its variables; None: those of the caller
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path | None,
        watchdog: ChildWatchdog,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = log
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        self.command = command
        self._environment = environment
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        if self._log is None:
            raise SandboxError(f"{self.name} logs to standard error.")
        return self._log

    @property
    def pid(self) -> int:
        if self._process is None:
            raise SandboxError(f"{self.name} was never started.")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the last start ended; None while it runs, or before the first."""
        return None if self._process is None else self._process.poll()

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        """Start the process, in a session of its own, which ^C does not reach. Does not wait.

        ``environment``: its variables from now on; None: those that it had.
        """
        if self.running:
            raise SandboxError(f"{self.name} runs already.")
        self._environment = environment or self._environment
        with ExitStack() as opened:
            log = self._log
            output: IO[Any] = sys.stderr if log is None else opened.enter_context(log.open("ab"))
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output.fileno(),
                stderr=output.fileno(),
                env=self._environment,
                cwd=None if log is None else log.parent,
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def kill(self) -> bool:
        """End it as a crash does (SIGKILL); return whether that ended it, once it is gone."""
        self._signal(signal.SIGKILL)
        return self._reap(STOP_TIMEOUT_S) == -signal.SIGKILL

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM, and SIGKILL after the timeout: the exit code is then -SIGKILL."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        return self._reap(timeout_s)

    def wait(self) -> int:
        return self._reap(None)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Raise SandboxError with the log's last lines when it ends before, or time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise SandboxError(f"{self.name} ended while it started:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"{self.name} did not answer for {timeout_s:.0f} s:\n{self.last_words()}"
                )
            time.sleep(_POLL_S)

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until a server answers as it does when it has caught up."""
        self.wait_until(self._answers, timeout_s)

    def _answers(self) -> bool:
        raise NotImplementedError(f"{self.name} is no server")

    def position(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def events(self, since: int = 0) -> Iterator[dict[str, object]]:
        """Yield the log's whole JSON lines from byte ``since`` on."""
        with self.log.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    yield json.loads(line)

    def has_logged(self, event: str, since: int = 0) -> bool:
        return any(line.get("event") == event for line in self.events(since))

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line[:_LINE_MAX] for line in lines[-_LAST_WORDS:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _reap(self, timeout_s: float | None) -> int:
        if self._process is None:
            return 0
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._watchdog.forget(self._process.pid)
        return self._process.returncode


class Ports:
    """Ports chosen by the kernel and kept for as long as this object is open.

    On Linux a socket that is bound with SO_REUSEADDR and does not listen keeps the kernel from
    handing its port to a process that asks for a free one or opens a connection, and still lets a
    server that names the port (and sets SO_REUSEADDR, as the JVM and Redis do) listen on it. So a
    killed broker finds its port free when it comes back. Elsewhere no port is reserved.
    """

    def __init__(self) -> None:
        self._kept: list[socket.socket] = []

    def reserve(self, wanted: int = 0) -> int:
        """Return a free port of 127.0.0.1 that stays reserved; ``wanted``: this one, or none."""
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind((LOOPBACK, wanted))
        except OSError as error:
            reservation.close()
            raise SandboxError(f"Port {wanted} of {LOOPBACK}: {error.strerror}.") from error
        port: int = reservation.getsockname()[1]
        if sys.platform == "linux":
            self._kept.append(reservation)
        else:
            reservation.close()
        return port

    def close(self) -> None:
        while self._kept:
            self._kept.pop().close()


@contextmanager
def workplace(data_dir: Path | None = None) -> Iterator[tuple[Path, Ports, ChildWatchdog]]:
    """Give servers their folder, ports and a watchdog for as long as the block lasts.

    ``data_dir``: outlives the block; None: a temporary folder, removed with it or after a kill.
    """
    with ExitStack() as exits:
        if data_dir is None:
            made = tempfile.TemporaryDirectory(prefix="hapax-sandbox-", ignore_cleanup_errors=True)
            folder = Path(exits.enter_context(made))
        else:
            data_dir.mkdir(parents=True, exist_ok=True)
            folder = data_dir.resolve()
        removed = [folder] if data_dir is None else []
        watchdog = exits.enter_context(closing(ChildWatchdog(*removed)))
        yield folder, exits.enter_context(closing(Ports())), watchdog


def http_answer(port: int, path: str, timeout_s: float) -> bytes | None:
    """Return what a server of this machine answers with status 200; None: it does not."""
    with (
        closing(HTTPConnection(LOOPBACK, port, timeout=timeout_s)) as connection,
        suppress(OSError, HTTPException),
    ):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read() if answer.status == HTTPStatus.OK else None
    return None

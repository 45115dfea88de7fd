"""A server process that can be killed, paused and restarted, with its log in its errors."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

from hapax.sandbox.machine import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hapax.sandbox.watchdog import ChildWatchdog

READY_TIMEOUT_S = 120.0  # three brokers after a kill of all took 47 s on a loaded machine
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_LAST_WORDS = 20


class Server:
    """One process, started again and again with the same command and the same data.

    ``log`` takes its standard output and error, after those of earlier starts.
    """

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, watchdog: ChildWatchdog
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The number of the process of the last start."""
        if self._process is None:
            raise SandboxError(f"{self.name} was never started.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, in a session of its own, which ^C does not reach. Does not wait."""
        if self.running:
            raise SandboxError(f"{self.name} runs already.")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL); return when it is gone."""
        self._signal(signal.SIGKILL)
        self._reap()

    def terminate(self) -> bool:
        """Ask it to end (SIGTERM); return when it is gone, and whether it went by itself."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        return self._reap()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a frozen process (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """Call ``ready`` until it returns true.

        Raises SandboxError with the server's last words when the process ends before, or when the
        time is up.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise SandboxError(f"{self.name} ended while it started:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise SandboxError(
                    f"{self.name} did not answer for {timeout_s:.0f} s:\n{self.last_words()}"
                )
            time.sleep(_POLL_S)

    def last_words(self) -> str:
        """Return the last lines of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LAST_WORDS:])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _reap(self) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_S)
        self._watchdog.forget(self._process.pid)
        return self._process.returncode != -signal.SIGKILL

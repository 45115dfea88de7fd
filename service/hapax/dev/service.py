"""The service as a process of its own: started, watched, started again."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from hapax.sandbox.watchdog import ChildWatchdog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

STOP_MARGIN_S = 5.0


class ServiceProcess:
    """``hapax run`` in a folder; its log goes to standard error."""

    def __init__(self, folder: Path, *, stop_s: float) -> None:
        self._folder = folder
        self._stop_s = stop_s + STOP_MARGIN_S
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = ChildWatchdog()

    def start(self, environ: Mapping[str, str]) -> None:
        """Start it with these variables and no others."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hapax", "run"],
            cwd=self._folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,  # Ctrl-C is for the parent, which stops it in its own order
        )
        self._watchdog.watch(self._process.pid)

    def ended(self) -> int | None:
        """Return its exit code, once; None while it runs, and when it was not started."""
        code = None if self._process is None else self._process.poll()
        if code is not None:
            self._forget()
        return code

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        if self._process is None:
            return 0
        code = self._process.wait()
        self._forget()
        return code

    def stop(self) -> None:
        """Let it finish its batch; kill it when that takes longer than its settings allow."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def close(self) -> None:
        """Stop it, and what would end it if this process were killed."""
        self.stop()
        self._watchdog.close()

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._watchdog.forget(process.pid)

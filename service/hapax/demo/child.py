"""A process of the demo: killed, frozen, restarted; its log is read for what it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hapax

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hapax.sandbox.watchdog import ChildWatchdog

_STOP_TIMEOUT_S = 30.0
_LAST_WORDS = 12


class DemoError(Exception):
    """The demo cannot continue. The message says what happened, with a log's last lines."""


class Child:
    """One process under one name, through all its lives. The log file is appended to.

    arguments    after the Python interpreter
    environment  further variables; no HAPAX_ variable of the demo itself reaches it
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        watchdog: ChildWatchdog,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.log.touch()
        self._arguments = [sys.executable, *arguments]
        self._environment = {**_inherited(), **environment}
        self._watchdog = watchdog
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """How its last life ended; None while it lives, or before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start it, in a session of its own, so that Ctrl-C reaches only the demo."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.log.parent,
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)

    def kill(self) -> bool:
        """End it by SIGKILL; return whether it was this signal that ended it."""
        return self._end(signal.SIGKILL) == -signal.SIGKILL

    def terminate(self) -> int:
        """Ask it to drain and exit (SIGTERM); return the exit code."""
        return self._end(signal.SIGTERM)

    def end(self) -> None:
        """End it, whatever it does, if it lives at all."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def freeze(self) -> None:
        """Stop it in its tracks (SIGSTOP): its connections stay open."""
        self._living().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it (SIGCONT)."""
        self._living().send_signal(signal.SIGCONT)

    def events(self, since: int = 0) -> Iterator[dict[str, object]]:
        """Yield the log's JSON lines from byte ``since`` on."""
        with self.log.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.startswith(b"{") and line.endswith(b"}\n"):
                    yield json.loads(line)

    def has_told(self, event: str, since: int = 0) -> bool:
        """Return whether the log has such a line after byte ``since``."""
        return any(line.get("event") == event for line in self.events(since))

    def position(self) -> int:
        """Return where the log ends now."""
        return self.log.stat().st_size

    def last_words(self) -> str:
        """Return the last lines of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line[:400]}" for line in lines[-_LAST_WORDS:])

    def check(self) -> None:
        """Raise DemoError when it has ended although it was not asked to."""
        if self.exit_code is not None:
            raise DemoError(
                f"{self.name} ended by itself with exit code {self.exit_code}. Its last lines:\n"
                f"{self.last_words()}"
            )

    def _end(self, number: signal.Signals) -> int:
        process = self._living()
        process.send_signal(number)
        try:
            code = process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DemoError(
                f"{self.name} did not leave within {_STOP_TIMEOUT_S:.0f} s. Its last lines:\n"
                f"{self.last_words()}"
            ) from None
        finally:
            self._watchdog.forget(process.pid)
        return code

    def _living(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise DemoError(f"{self.name} was never started.")
        return self._process


def _inherited() -> dict[str, str]:
    """Return this environment for a process that must find this very code from any folder."""
    code = str(Path(hapax.__file__).parents[1])
    others = os.environ.get("PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HAPAX_")}
    return {**inherited, "PYTHONPATH": f"{code}{os.pathsep}{others}" if others else code}

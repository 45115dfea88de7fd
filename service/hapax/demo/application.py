"""A Spark driver and all that it starts: killed as a container dies, or robbed of one worker."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from hapax.demo.child import Child, DemoError
from hapax.demo.processes import of_session, python_workers, send

if TYPE_CHECKING:
    from hapax.demo.processes import LiveProcess

_GONE_TIMEOUT_S, _POLL_S = 15.0, 0.01


class Application(Child):
    """The driver is the process that a supervisor sees; its session holds all the others.

    Only processes of the session that this driver has begun are ever touched.
    """

    _session: int | None = None
    _frozen: frozenset[int] = frozenset()

    def start(self) -> None:
        """Start the driver, in a session of its own."""
        super().start()
        self._session = self._living().pid

    def kill(self) -> bool:
        """End driver, JVM and Python workers by SIGKILL; return whether that ended the driver."""
        while everything := self._everything():
            for process in everything:
                send(process.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        self.thaw()
        self._session = None
        return self._end(signal.SIGKILL) == -signal.SIGKILL

    def terminate(self) -> int:
        """Ask the driver to drain and exit; raise DemoError when a process of it remains."""
        code = super().terminate()
        deadline_s = time.monotonic() + _GONE_TIMEOUT_S
        while left := self._everything():
            if time.monotonic() > deadline_s:
                commands = [_shown(process.command) for process in left]
                raise DemoError(f"{self.name} left, but processes of it live on: {commands}")
            time.sleep(_POLL_S)
        self._session = None
        return code

    def end(self) -> None:
        """End whatever lives of it."""
        if self._session is not None:
            self.kill()

    def freeze(self) -> None:
        """Stop everything in its tracks, also what is forked meanwhile."""
        while fresh := {process.pid for process in self._everything()} - self._frozen:
            for pid in fresh:
                self.freeze_one(pid)

    def thaw(self) -> None:
        """Resume everything that was frozen."""
        driver = self._living().pid
        alive = {process.pid for process in self._everything()}
        for pid in self._frozen:
            if pid in alive:
                send(pid, signal.SIGCONT)
            if pid != driver:
                self._watchdog.forget(pid)
        self._frozen = frozenset()

    def freeze_one(self, pid: int) -> None:
        """Stop one of its processes."""
        # It would not see that its parent is gone: if the demo dies, it must be ended by its id.
        self._watchdog.watch(pid)
        self._frozen |= {pid}
        send(pid, signal.SIGSTOP)

    def kill_one(self, pid: int) -> bool:
        """End one of its processes by SIGKILL; return whether it was still there."""
        return send(pid, signal.SIGKILL)

    def python_workers(self) -> list[int]:
        """Return the numbers of its Python workers, which run the tasks."""
        return python_workers(self._everything())

    def _everything(self) -> list[LiveProcess]:
        return [] if self._session is None else of_session(self._session)


def _shown(command: bytes) -> bytes:
    """Return the beginning of a command, its program without the folder, however long that is."""
    program, _, words = command.partition(b"\0")
    return (program.rpartition(b"/")[2] + b" " + words.replace(b"\0", b" "))[:80]

"""The members of a group under test: processes that are killed, frozen, stopped, started again.

A member is ``python -m hapax run``, a Spark driver, or any other command that takes the same
environment. Whoever ends one says so; an end that nobody asked for is told by ``surprise``.
"""

import http.client
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil  # type: ignore[import-untyped] # it carries no types

from tests.kit.managed_process import WorkerProcess
from tests.kit.probes import ask, free_port
from tests.kit.spark_process import SparkProcess
from tests.kit.waiting import reaches

WORDS = 12
"""Lines of a log that say why a process left."""
PROXIED = "w-0"
"""Which member goes through the proxy: one, because the proxy costs as much as it carries."""
IN_PYTHON = "w-1"
"""Which member does without the native record path, so that a run has both in one group."""


class Usage(NamedTuple):
    """What a process has used so far."""

    processor_s: float
    resident_bytes: int


class Member:
    """One member, through all its starts.

    tally  how many lines of its log named each event, so far
    away   it is not there because a strike took it away
    """

    def __init__(self, process: WorkerProcess, log: Path) -> None:
        self.process = process
        self.instance = process.instance
        self.tally: Counter[str] = Counter()
        self.kills = 0
        self.starts = 0
        self.away = True
        self.frozen = False
        self.port = 0
        self._log = log
        self._read_bytes = 0
        self._allowed: frozenset[int] = frozenset()

    @property
    def running(self) -> bool:
        return self.process.running

    @property
    def is_driver(self) -> bool:
        return isinstance(self.process, SparkProcess)

    @property
    def driver(self) -> SparkProcess:
        """The process as a Spark driver; AssertionError when it is a worker."""
        assert isinstance(self.process, SparkProcess)
        return self.process

    # -- coming and going -----------------------------------------------------------------

    def start(
        self, words: Sequence[str] | None = None, allowed: Sequence[int] = (), **settings: str
    ) -> None:
        """Start; ``allowed`` are the exit codes that this start may end in by itself."""
        self.port = free_port()
        more = {"HAPAX_TELEMETRY__PORT": str(self.port)} | settings
        if self.is_driver:
            self.process.start()
        else:
            self.process.start(words, more)
        self.starts += 1
        self.away = self.frozen = False
        self._allowed = frozenset(allowed)

    def kill(self) -> None:
        """SIGKILL; it stays away until it is started again."""
        self.away = True
        self.process.kill()
        self.kills += 1

    def restart(self) -> None:
        self.kill()
        self.start()

    def terminate(self, timeout_s: float = 30.0) -> int:
        self.away = True
        return self.process.terminate(timeout_s)

    def freeze(self) -> None:
        self.frozen = True
        self.process.freeze()

    def thaw(self) -> None:
        self.frozen = False
        self.process.thaw()

    def close(self) -> None:
        self.away = True
        self.process.close()

    def surprise(self) -> int | None:
        """Return the exit code of a process that left although nobody asked it to."""
        if self.away or self.running:
            return None
        code = int(self.process.process.returncode)
        return None if code in self._allowed else code

    # -- what can be seen of it -----------------------------------------------------------

    def probe(self, path: str) -> bool:
        """Ask ``/livez`` or ``/readyz``; no answer counts as no."""
        try:
            return ask(self.port, path)[0] == http.client.OK
        except OSError:
            return False

    def usage(self) -> Usage:
        process = psutil.Process(self.process.process.pid)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss)

    def read_log(self) -> Counter[str]:
        """Read what was logged since; return the tally."""
        if not self._log.exists():
            return self.tally
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            block = log.read()
        whole = block[: block.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                self._count(line)
        return self.tally

    def _count(self, line: bytes) -> None:
        try:
            told = _DECODER.decode(line)
        except msgspec.DecodeError:
            return  # torn: a killed process may leave half a line, and the next goes on behind it
        self.tally[told.event] += 1
        if told.fenced:
            self.tally["fenced"] += 1

    def last_words(self) -> str:
        return "\n".join(self.process.text().splitlines()[-WORDS:])


class _Line(msgspec.Struct):
    event: str = ""
    fenced: bool = False


_DECODER = msgspec.json.Decoder(_Line)


def await_exit(member: Member, timeout_s: float = 20.0) -> int | None:
    """Wait until a process leaves by itself; return its code, None when it does not."""
    gone = reaches(lambda: not member.running, timeout_s)
    return int(member.process.process.returncode) if gone else None

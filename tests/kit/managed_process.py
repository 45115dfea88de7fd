"""Processes that tests start, harm and end: each with an environment and a log file of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tests.kit.waiting import WORDS_MAX, reaches

SERVICE = (sys.executable, "-m", "hapax", "run")
HANG_S = 240.0
"""Nothing asserts these seconds: whatever has not ended by then hangs, on any machine."""


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HAPAX_")}


def required(
    app: str = "app",
    servers: str = "127.0.0.1:1",
    source: str = "in",
    target: str = "out",
    **more: str,
) -> dict[str, str]:
    """Return what each process of the service must have; ``more`` has names after ``HAPAX_``."""
    return {
        "HAPAX_APP": app,
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": servers,
        "HAPAX_INPUT__TOPICS": source,
        "HAPAX_OUTPUT__TOPIC": target,
        **{f"HAPAX_{name}": text for name, text in more.items()},
    }


@contextmanager
def child(words: Sequence[str | Path], **options: Any) -> Iterator[Any]:
    """Run a program that does not outlive the block; yield the Popen, with the streams asked for.

    ``with subprocess.Popen`` waits for its end, also where an assertion in the block has failed:
    that hung for its whole limit, and said nothing of the assertion.
    """
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


class ManagedProcess:
    """One command that may be started many times; all of its starts append to one log."""

    def __init__(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._words = tuple(words)
        self._log = log
        self._environment = None if environment is None else dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, words: Sequence[str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Start it; ``words`` and ``settings`` are another command and more for this start."""
        assert not self.running
        more = dict(settings or {})
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words or self._words,
                env=None if self._environment is None else self._environment | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def peak_bytes(self) -> int:
        """Return the most memory that it has had so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) << 10

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 30.0) -> int:
        self.process.terminate()
        return self.process.wait(timeout_s)

    def finish(self, timeout_s: float) -> None:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.close()
            code = None
        if code != 0:
            raise RuntimeError(f"{self._words} ended with {code}: {self.text()[-WORDS_MAX:]}")

    def exit_code(self, within_s: float = HANG_S) -> int:
        """Wait for its end; AssertionError with the stacks of all its threads if it hangs."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            words = self.text()
            self._dump_stacks()
            stacks = self.text()[len(words) :]
        raise AssertionError(
            f"it still ran after {within_s} s: {words[-WORDS_MAX:]}\n{stacks[-WORDS_MAX:]}"
        )

    def ends_with(self, code: int) -> None:
        """Wait for its end with an exit code; AssertionError with the end of its log."""
        found = self.exit_code()
        assert found == code, f"exit code {found}, not {code}: {self.text()[-WORDS_MAX:]}"

    def _dump_stacks(self) -> None:
        """Let a Python that hangs write its stacks and die; what is none dies all the same."""
        self.thaw()
        self.process.send_signal(signal.SIGABRT)
        reaches(lambda: not self.running, 10.0)

    def close(self) -> None:
        """End it, however it is; nothing that it started stays."""
        if self.running:
            self.thaw()
            self.kill()

    def lines(self, event: str | None = None) -> list[dict[str, object]]:
        lines = []
        # The last line of a process that is frozen or killed may be torn.
        for text in self.text().rpartition("\n")[0].splitlines():
            if text.startswith("{"):
                line = json.loads(text)
                if event is None or line["event"] == event:
                    lines.append(line)
        return lines

    def text(self) -> str:
        return self._log.read_text(errors="replace")


class WorkerProcess(ManagedProcess):
    """One ``python -m hapax run`` with its own instance name."""

    command: ClassVar[Sequence[str]] = SERVICE[1:]

    def __init__(
        self,
        environment: Mapping[str, str],
        instance: str,
        log: Path,
        words: Sequence[str] | None = None,
    ) -> None:
        named = {"PYTHONFAULTHANDLER": "1", **environment, "HAPAX_INSTANCE": instance}
        super().__init__(words or (sys.executable, *self.command), log, named)
        self.instance = instance


Kind = TypeVar("Kind", bound=WorkerProcess)

"""Runs parts side by side, shows how far they are, and measures what they took."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from tests.gate import yardstick
from tests.gate.parts import LOGS, ROOT, Part

_POLL_S = 0.5
_LINE_EVERY_S = 15.0
_MEASURE_EVERY_S = 5.0
_ABOVE_BUDGET = 1.25
_COUNTS = re.compile(r"(\d+) (passed|failed|skipped|xfailed|error)")
_PERCENT = re.compile(rb"\[ *(\d+)%\]")
_TAIL_BYTES = 4000


class Outcome(NamedTuple):
    """What came of a part. ``counts``: of tests, by what pytest calls them.

    slowness  of the machine while it ran, 1 or more (``tests/gate/yardstick.py``)
    """

    part: Part
    exit_code: int
    wall_s: float
    cpu_s: float
    slowness: float = 1.0

    @property
    def counts(self) -> dict[str, int]:
        """Return what the last line of pytest counts; nothing for other commands."""
        lines = tail(self.part).decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if _COUNTS.search(line)), "")
        return {what: int(number) for number, what in _COUNTS.findall(last)}

    @property
    def over_budget(self) -> bool:
        """Whether it took more processor time than it may on a machine of this speed."""
        return self.budget_s is not None and self.cpu_s > _ABOVE_BUDGET * self.budget_s

    @property
    def budget_s(self) -> float | None:
        return None if self.part.cpu_s is None else self.part.cpu_s * self.slowness

    @property
    def is_right(self) -> bool:
        return self.exit_code == 0 and not self.over_budget


def run(parts: Sequence[Part]) -> list[Outcome]:
    """Run all of them at once; a part that is over its limit of time is ended."""
    LOGS.mkdir(parents=True, exist_ok=True)
    began = shown = measured = time.monotonic()
    measures = [yardstick.slowness()]
    running = {_start(part): part for part in parts}
    done: list[Outcome] = []
    try:
        while running:
            for process in [each for each in running if _has_ended(each)]:
                part = running.pop(process)
                outcome = _outcome(process, part, time.monotonic() - began)
                done.append(outcome._replace(slowness=max(1.0, fmean(measures))))
                _say(_in_words(done[-1]))
            if running and time.monotonic() - measured > _MEASURE_EVERY_S:
                measures.append(yardstick.slowness())
                measured = time.monotonic()
            shown = _show(running.values(), began, shown)
            for process, part in running.items():
                if time.monotonic() - began > part.limit_s:
                    os.killpg(process.pid, signal.SIGTERM)
            time.sleep(_POLL_S)
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
    return sorted(done, key=lambda one: parts.index(one.part))


def tail(part: Part, size: int = _TAIL_BYTES) -> bytes:
    if not part.log.is_file():
        return b""
    with part.log.open("rb") as file:
        file.seek(max(0, part.log.stat().st_size - size))
        return file.read()


def _start(part: Part) -> subprocess.Popen[bytes]:
    """Start it in a group of its own, so that all of it can be ended."""
    with part.log.open("wb") as log:
        process = subprocess.Popen(
            part.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
    os.setpriority(os.PRIO_PROCESS, process.pid, part.niceness)
    return process


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping: the time that its processes took is told by the reaping alone."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _outcome(process: subprocess.Popen[bytes], part: Part, wall_s: float) -> Outcome:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(part, process.returncode, wall_s, usage.ru_utime + usage.ru_stime)


def _in_words(one: Outcome) -> str:
    budget = "" if one.budget_s is None else f" of {one.budget_s:.0f}"
    if one.slowness > 1:
        budget += f" (machine {one.slowness:.2f} x slower)"
    counts = ", ".join(f"{number} {what}" for what, number in one.counts.items())
    verdict = "exit 0" if one.exit_code == 0 else f"FAILED (exit {one.exit_code})"
    over = "; OVER ITS BUDGET" if one.over_budget else ""
    return (
        f"{one.part.name}: {verdict}{counts and ', '}{counts}, {one.wall_s:.0f} s, "
        f"{one.cpu_s:.0f} s{budget} of processor time{over}"
    )


def _show(parts: Iterable[Part], began: float, shown: float) -> float:
    """Write how far the parts are: on a terminal all the time, else a line now and then."""
    now, is_terminal = time.monotonic(), sys.stderr.isatty()
    if not is_terminal and now - shown < _LINE_EVERY_S:
        return shown
    line = f"{now - began:4.0f} s  " + "  ".join(f"{part.name} {_far(part)}" for part in parts)
    sys.stderr.write(f"\r\033[K{line}" if is_terminal else f"{line}\n")
    sys.stderr.flush()
    return now


def _far(part: Part) -> str:
    percents = _PERCENT.findall(tail(part))
    return f"{percents[-1].decode()} %" if percents else "…"


def _say(line: str) -> None:
    clear = "\r\033[K" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{clear}{line}\n")
    sys.stderr.flush()

"""Plays broken copies of a process that has loaded everything: a plugin of pytest.

The process collects all tests once. Each copy of it breaks the service in its own memory, plays its
tests until one fails, and ends: no file is touched, and a copy costs what its tests cost.
"""

import gc
import os
import resource
import select
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

import pytest

from tests.mutations import in_place
from tests.mutations.reach import without_values

CPU_S, CPU_TIMES = 15, 6
"""How much of the CPU a copy may use, and how many times what its tests took."""
WALL_S, WALL_TIMES = 90, 20
NEW_PROCESS = "new-process"


class Broken(NamedTuple):
    """What is broken, and the tests that are to notice: functions or files, in their order.

    cost_s  what those took of the CPU when that was recorded
    """

    name: str
    put: Callable[[], None]
    tests: Sequence[str]
    cost_s: float


class Played(NamedTuple):
    """``word``: killed, survived, timeout, or that only a new process could meet it."""

    word: str
    by: str
    seconds: float


class Forked:
    """Plays in place of the tests that were collected; ``settle`` gets each end as it comes."""

    def __init__(
        self, todo: Sequence[Broken], deadline: float, settle: Callable[[str, Played], None]
    ) -> None:
        self._todo = todo
        self._deadline = deadline
        self._settle = settle
        self._failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play one after the other until all are, or the time is over."""
        items: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            name = without_values(item.nodeid)
            items[name].append(item)
            items[name.partition("::")[0]].append(item)
        gc.collect()
        gc.freeze()  # copies share what none of them writes
        for one in self._todo:
            if time.monotonic() > self._deadline:
                break
            found = [item for test in one.tests for item in items.get(test, ())]
            self._settle(one.name, self._play(session, one, found))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def _play(self, session: pytest.Session, one: Broken, items: list[pytest.Item]) -> Played:
        begun = time.monotonic()
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            self._be(session, one, items, theirs)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], WALL_S + WALL_TIMES * one.cost_s)
        said = os.read(ours, 4096).decode() if ready else ""
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        word, _, test = said.partition(" ")
        return Played(word or "timeout", test, round(time.monotonic() - begun, 1))

    def _be(
        self, session: pytest.Session, one: Broken, items: list[pytest.Item], channel: int
    ) -> NoReturn:
        said = "killed it cannot be put in place"
        try:
            os.setsid()
            cpu_s = int(CPU_S + CPU_TIMES * one.cost_s)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
            said = self._tested(session, one, items)
        finally:
            os.write(channel, said.encode())
            os._exit(0)

    def _tested(self, session: pytest.Session, one: Broken, items: list[pytest.Item]) -> str:
        try:
            one.put()
        except in_place.UnreachableError:
            return NEW_PROCESS
        session.items = items
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed:
                return f"killed {self._failed}"
        return "survived"

"""Mistakes that are planted in the service, each with the tests without brokers that notice it.

``python -m tests.unit.mutants`` plays all, each in a copy of one process that has loaded the tests,
and prints a line for each: its name, what became of it and the test that failed.
"""

import gc
import os
import resource
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from hapax.cluster import group_start
from hapax.cluster.micro_batches import InputLogs
from hapax.core.interrupt import Interrupt
from hapax.kafka.consume import positions
from hapax.kafka.consume.client import GroupConsumer
from hapax.kafka.consume.positions import TopicIdentity
from hapax.kafka.produce import producer
from hapax.kafka.undecodable import StuckPartitions
from hapax.publish.stored import Acceptance
from hapax.schemas import avro
from hapax.telemetry.line_queue import LineQueue
from tests.fault.mutants.__main__ import MUTANTS as ON_BROKERS
from tests.kit.mutants import Patch, in_place_of

TABLE = Path(__file__).with_name("mutants.tsv")
UNASKED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # the service is imported before
CPU_S, WALL_S = 21, 110.0
UNBROKEN = "none"
"""Breaks nothing: the tests of all mutants must pass."""


class Planted(NamedTuple):
    """``tests``: by file, the function that notices what ``put`` breaks."""

    put: Callable[[], None]
    tests: tuple[str, ...]


def topic_id_not_compared(patch: Patch) -> None:
    """Read on in a topic that was deleted and created again, as if it were the same."""
    patch(TopicIdentity, "compare", lambda *_: None)
    patch(TopicIdentity, "follow", lambda _: None)


def topic_id_of_a_checkpoint_not_compared(patch: Patch) -> None:
    """The same of a checkpoint of Spark."""
    patch(InputLogs, "require_same", lambda *_: None)


def start_ignored_for_a_partition(patch: Patch) -> None:
    """Read from its first record what other clients have left without an offset."""
    for module in (group_start, positions):
        patch(module, "by_start", lambda _number, beside: not beside)


def accepted_before_it_is_checked(patch: Patch) -> None:
    """Acknowledge what no topic takes: it is refused when it is sent, again and again."""
    patch(Acceptance, "check", lambda *_, **__: None)


@in_place_of(StuckPartitions, "meet")
def offset_0_is_none(meet: Any, self: StuckPartitions, where: Any, offset: int, *rest: Any) -> None:
    """Take the first offset for one that is absent."""
    meet(self, where, offset or -1, *rest)


def timestamp_0_is_none(patch: Patch) -> None:
    """Let a record of 1970 leave as one of today."""
    patch(producer, "client_timestamp", lambda timestamp_ms: timestamp_ms or 0)


@in_place_of(GroupConsumer, "resume")
def resume_without_reasons(resume: Any, self: GroupConsumer, why: Any) -> None:
    """Read every partition once any reason for not reading one is gone."""
    self._reasons.clear()
    resume(self, why)


@in_place_of(avro._Union, "_index")
def branch_guessed(_real: Any, self: Any, data: Any) -> int | None:
    """Write data to the first branch of a union that it fits, whatever it names."""
    fit = [at for at, one in enumerate(self._branches) if one.fits(data, loose=True)]
    return fit[0] if fit else None


@in_place_of(LineQueue, "add")
def log_write_in_the_loop(_real: Any, self: LineQueue, text: bytes | str) -> None:
    """Write a line in the thread that has one, and let it wait for who reads."""
    line = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    self._write(line + b"\n")


@in_place_of(Interrupt, "again")
def call_counted_over_attempts(_real: Any, self: Interrupt, pause_s: float) -> bool:
    """Count the attempts at a record, and the pauses between them, as one."""
    self.pause(pause_s)
    return True


OURS = {
    patch.__name__.replace("_", "-"): patch
    for patch in (
        topic_id_not_compared,
        topic_id_of_a_checkpoint_not_compared,
        start_ignored_for_a_partition,
        accepted_before_it_is_checked,
        offset_0_is_none,
        timestamp_0_is_none,
        resume_without_reasons,
        branch_guessed,
        log_write_in_the_loop,
        call_counted_over_attempts,
    )
}


def _table() -> dict[str, Planted]:
    """Return what the table names: mistakes of ours, and those that are played on brokers as well.

    ``ignored-delivery-reports`` is harmless, so nothing here notices it.
    """
    puts, found = {**ON_BROKERS, **OURS}, dict[str, Planted]()
    for line in TABLE.read_text().splitlines()[1:]:
        name, test = line.split("\t")
        before = found[name].tests if name in found else ()
        found[name] = Planted(partial(puts[name], setattr), (*before, test))
    return found


MUTANTS = _table()


class Copies:
    """Plays broken copies of this process in place of the tests that were collected.

    The process has loaded everything. Each copy breaks the service in its own memory, plays its
    tests until one fails, and ends: no file is touched, and a copy costs what its tests cost.
    """

    def __init__(self, every: Mapping[str, Planted]) -> None:
        self._every = every
        self._failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            items[item.nodeid.partition("[")[0]].append(item)
        gc.collect()
        gc.freeze()  # copies share what none of them writes
        for name, one in self._every.items():
            session.items = [item for test in one.tests for item in items[test]]
            print("", f"{name}\t{self._play(session, one)}", sep="\n", flush=True)  # noqa: T201
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def _play(self, session: pytest.Session, one: Planted) -> str:
        """Return killed, survived or timeout, and the test that failed."""
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            self._be(session, one, theirs)
        os.close(theirs)
        ready, _, _ = select.select([ours], [], [], WALL_S)
        said = os.read(ours, 4096).decode() if ready else ""
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        return said or "timeout\t"

    def _be(self, session: pytest.Session, one: Planted, channel: int) -> NoReturn:
        said = "killed\tit cannot be put in place"
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            one.put()
            said = self._tested(session)
        finally:
            os.write(channel, said.encode())
            os._exit(0)

    def _tested(self, session: pytest.Session) -> str:
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed:
                return f"killed\t{self._failed}"
        return "survived\t"


def main() -> int:
    all_tests = tuple(test for one in MUTANTS.values() for test in one.tests)
    files = sorted({test.partition("::")[0] for test in all_tests})
    plain = ("-q", "--no-header", *UNASKED, "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    every = {UNBROKEN: Planted(lambda: None, all_tests), **MUTANTS}
    return int(pytest.main(list(plain), plugins=[Copies(every)]))


if __name__ == "__main__":
    sys.exit(main())

"""Mistakes that are planted in the service, each with the tests without brokers that notice it.

``python -m tests.unit.mutants`` plays all, each in a copy of one process that has loaded the tests,
and prints a line for each: its name, what became of it and the test that failed.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.mutations.forked import Broken, Forked, Played

TABLE = Path(__file__).with_name("mutants.tsv")
UNASKED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # the service is imported before
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


def main() -> int:
    every = {
        UNBROKEN: Planted(
            lambda: None, tuple(test for one in MUTANTS.values() for test in one.tests)
        )
    }
    every |= MUTANTS

    def settle(name: str, played: Played) -> None:
        print("", f"{name}\t{played.word}\t{played.by}", sep="\n", flush=True)  # noqa: T201

    broken = [Broken(name, one.put, one.tests, 1.0) for name, one in every.items()]
    files = sorted({test.partition("::")[0] for one in every.values() for test in one.tests})
    plain = ("-q", "--no-header", *UNASKED, "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    return int(pytest.main(list(plain), plugins=[Forked(broken, float("inf"), settle)]))


if __name__ == "__main__":
    sys.exit(main())

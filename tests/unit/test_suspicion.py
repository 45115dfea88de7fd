"""Records that kill their process: what marks mean, and that only the culprit is condemned."""

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.core.offset_commit import CommittedMetadata, Mark
from hapax.core.ports import Changes
from hapax.core.record_path import Batch
from hapax.core.records import Record
from hapax.engines.overlapping_calls import GatheredCalls, call_limits, open_transformer
from hapax.engines.spark.task import TaskSuspects
from hapax.engines.suspects import Probation, Suspects
from hapax.processing.crash_markers import Death, IsolationError, marked, suspects_until
from hapax.processing.transform import load_form
from hapax.settings import load_settings
from hapax.testing.source import InjectedFault, MemorySource
from hapax.wiring.builders import isolation
from tests.kit.doubles import CrashError, Script
from tests.kit.pipeline import Pipeline
from tests.simulation.business import work as upper
from tests.unit.test_settings import REQUIRED

STARTS_MAX = 10
IN = ("in", 0)


def deadly(record: Record) -> Any:
    if (record.value or b"").startswith(b"kill"):
        raise CrashError
    return upper(record)


def supervised(pipeline: Pipeline, starts_max: int = STARTS_MAX) -> int:
    """Start the worker again whenever it dies; return how often it died."""
    for deaths in range(starts_max):
        try:
            pipeline.run()
        except CrashError:
            pipeline.broker.group.expel("w")
            pipeline.start("w")
        else:
            return deaths
    return starts_max


def values(count: int) -> list[bytes]:
    return [b"r%d" % number for number in range(count)]


def test_what_was_being_worked_on_is_suspected_after_a_death_and_without_an_end_two_batches():
    assert suspects_until(CommittedMetadata(topic_id="t"), 5, 100) is None
    assert suspects_until(CommittedMetadata(deaths=1, until=9), 5, 100) == 9
    assert suspects_until(CommittedMetadata(deaths=3), 5, 100) == 205


def test_a_mark_keeps_what_else_stands_beside_an_offset():
    text = CommittedMetadata(topic_id="t", cluster_id="c", began=3).encode()
    assert CommittedMetadata.decode(marked(text, Mark(2, 7))) == CommittedMetadata(
        "t", "c", 3, deaths=2, until=7
    )
    assert CommittedMetadata.decode(marked(None, Mark(1))) == CommittedMetadata(deaths=1)


@pytest.mark.parametrize("place", [0, 37, 99, 1234, 2999])
def test_a_record_that_kills_its_process_is_a_dead_letter_after_at_most_three_deaths(place):
    pipeline = Pipeline(transform=deadly, marked=True, batch_max=1000)
    given = values(3000)
    given[place] = b"kill"
    pipeline.write(*given)
    assert supervised(pipeline) <= 2  # the third is that of the process of its own
    assert pipeline.dead() == [b"kill"]
    assert pipeline.outputs() == sorted(value.upper() for value in given if value != b"kill")
    (letter,) = pipeline.broker.records("dead")
    error = dict(letter.headers)["hapax-error"] or b""
    assert error.startswith(b"Killed: killed its process ")
    assert b"SIGSEGV" in error


def test_a_process_that_ends_for_a_mistake_of_its_function_did_not_die_of_a_record():
    pipeline = Pipeline(transform=lambda _record: {"no": "format"}, marked=True)
    pipeline.write(b"a")
    for _start in range(3):
        with pytest.raises(ConfigurationError):
            pipeline.run()
        pipeline.broker.group.expel("w")
        pipeline.start("w")
    assert pipeline.told.of("records_isolated") == []


def test_suspects_stay_so_while_a_fetch_brings_nothing(monkeypatch):
    """As after a rewind to what a slow start of their process has cut off."""
    take, calls = MemorySource.take, count()

    def slow(self: MemorySource, records_max: int, wait_s: float) -> Batch:
        number = next(calls)
        if number % 2 == 0:
            return Batch([], {}, {})
        return take(self, records_max if number == 1 else 10, wait_s)

    monkeypatch.setattr(MemorySource, "take", slow)
    pipeline = Pipeline(transform=deadly, marked=True, batch_max=1000)
    given = values(40)
    given[25] = b"kill"
    pipeline.write(*given)
    assert supervised(pipeline) == 1
    assert pipeline.dead() == [b"kill"]
    assert len(pipeline.outputs()) == 39


def test_control_without_marks_it_dies_at_every_start():
    pipeline = Pipeline(transform=deadly)
    pipeline.write(b"a", b"kill", b"b")
    assert supervised(pipeline) == STARTS_MAX
    assert pipeline.committed().get(IN) is None


def test_several_killers_each_cost_no_more_than_one_alone():
    pipeline = Pipeline(transform=deadly, marked=True)
    given = values(300)
    for place in (7, 8, 90, 299):
        given[place] = b"kill%d" % place
    pipeline.write(*given)
    assert supervised(pipeline) == 1
    assert len(pipeline.dead()) == 4
    assert len(pipeline.outputs()) == 296


def died() -> Pipeline:
    pipeline = Pipeline(transform=deadly, marked=True)
    pipeline.write(b"a", b"kill", b"b")
    with pytest.raises(CrashError):
        pipeline.run()
    pipeline.broker.group.expel("w")
    return pipeline


def test_another_member_that_takes_over_knows_of_the_death():
    pipeline = died()
    pipeline.start("another")
    pipeline.run()
    assert pipeline.dead() == [b"kill"]
    assert pipeline.elsewhere.called == [0, 1, 2]


@pytest.mark.parametrize("step", ["take", "send", "send_offsets", "commit"])
def test_kills_from_outside_never_condemn_a_record(step):
    """Killed again and again at the same step, which is worse than chance can do."""
    pipeline = Pipeline(marked=True, batch_max=50)
    pipeline.write(*values(200))
    for _ in range(40):
        script = Script()
        pipeline.faults = script

        def die(reached: str, script: Script = script) -> None:
            if reached == step and script.steps.count(step) > 1:
                raise CrashError

        script.then = die
        pipeline.start("w")
        try:
            pipeline.run()
        except CrashError:
            pipeline.broker.group.expel("w")
        else:
            break
    pipeline.faults = Script()
    pipeline.start("w")
    supervised(pipeline)
    assert pipeline.dead() == []
    pipeline.judge()


def test_marks_cost_two_commits_for_an_assignment_and_nothing_for_a_batch():
    commits = []
    for is_marked in (True, False):
        script = Script()
        pipeline = Pipeline(partitions=3, faults=script, marked=is_marked, batch_max=100)
        for partition in range(3):
            pipeline.write(*values(2000), partition=partition)
        pipeline.run()
        commits.append(script.steps.count("send_offsets"))
    assert commits[0] - commits[1] <= 2 * 3


@pytest.mark.parametrize("aborts", [0, 2])
def test_a_stop_clears_the_marks_and_a_batch_that_is_aborted_suspects_nothing(aborts):
    pipeline = Pipeline(faults=Script(send=[InjectedFault("aborted")] * aborts), marked=True)
    pipeline.write(*values(20))
    pipeline.run_judged()
    assert pipeline.elsewhere.called == []
    assert pipeline.told.of("records_isolated") == []
    assert pipeline.committed() == {IN: 20}
    assert pipeline.broker.beside == {}


def test_our_own_mark_is_no_death_when_the_partition_comes_back():
    faults = Script(send=[InjectedFault("aborted")], rewind=[InjectedFault("fenced")])
    pipeline = Pipeline(faults=faults, marked=True)
    pipeline.write(*values(20))
    pipeline.run_judged()
    assert pipeline.dead() == []


# -- Suspects that are called in a process of their own: how many of them at once ---------

TEN = [Record(*IN, offset, None, b"v") for offset in range(10)]


class Noted:
    """Another process, which notes what it is given; it dies over more than one record if told."""

    def __init__(self, *, dies: bool) -> None:
        self.given: list[int] = []
        self._dies = dies

    def call(self, records: Sequence[Record]) -> Any:
        self.given.append(len(records))
        if self._dies and len(records) > 1:
            raise Death("it was ended", hung=False)
        return [()] * len(records)

    def close(self) -> None:
        """Nothing is kept."""


def test_without_a_process_for_suspects_they_wait_and_no_process_dies_of_them_again():
    pipeline = died()
    pipeline.start("w")
    call, failures = pipeline.elsewhere.call, [IsolationError("none")] * 3

    def sometimes(records: Sequence[Record]) -> Any:
        if failures:
            raise failures.pop()
        return call(records)

    pipeline.elsewhere.call = sometimes  # type: ignore[method-assign]
    pipeline.run()
    assert (pipeline.outputs(), pipeline.dead()) == ([b"A", b"B"], [b"kill"])
    assert len(pipeline.told.of("isolation_failed")) == 3


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(
    ("transform", "concurrency", "most"),
    [("function", "1", 1), ("function", "3", 3), ("batch", "1", 4), ("coroutine_batch", "2", 8)],
)
def test_a_batch_of_suspects_is_given_away_in_groups_as_large_as_calls_overlap(
    transform, concurrency, most, *, dies
):
    environ = {
        "HAPAX_TRANSFORM": f"tests.kit.calls:{transform}",
        "HAPAX_CALL__CONCURRENCY": concurrency,
        "HAPAX_CALL__RECORDS_MAX": "4",
    }
    settings = load_settings(REQUIRED | environ)
    made = open_transformer(load_form(settings.transform), call_limits(settings))
    apart = isolation(settings, made, MagicMock())
    apart._elsewhere = noted = Noted(dies=dies)
    apart.suspect(IN, len(TEN), 1)
    assert apart.apply_all(Batch(TEN), Interrupt(), {}) == [()] * len(TEN)
    groups = [min(most, len(TEN) - at) for at in range(0, len(TEN), most)]
    alone = [[group, *[1] * group] if dies and group > 1 else [group] for group in groups]
    assert noted.given == [size for sizes in alone for size in sizes]
    if isinstance(made, GatheredCalls):
        made.close()


def test_a_partition_that_comes_back_is_trusted_no_more_and_who_has_no_mark_commits_none():
    ended: list[Any] = []
    core: Any = SimpleNamespace(end=lambda offsets, marks: ended.append((offsets, marks)))
    source: Any = SimpleNamespace(mark_processed=lambda _offsets: None)
    apart: Any = SimpleNamespace(forget=lambda _where: None)
    suspects = Suspects(source, core, apart, cast("Any", None), records_max=10)
    suspects._trusted = {IN}
    suspects.mark(Batch([], {IN: 0}, {IN: 1}))
    suspects.leave()
    assert ended == []
    suspects.observe(Changes(assigned=[IN]))
    assert suspects._trusted == set()


def test_a_range_reports_the_marks_that_stand_whoever_wrote_them():
    report: Any = SimpleNamespace(marks={})
    ours, theirs = Mark(1, 2), Mark(3)
    known: Any = SimpleNamespace(
        _ours={IN: theirs},
        _report=report,
        _probation={("in", 1): Probation(0, 1, mark=ours), ("in", 2): Probation(0, 1)},
    )
    TaskSuspects.report_marks(known)
    assert report.marks == {IN: theirs, ("in", 1): ours}

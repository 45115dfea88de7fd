"""The audit in this process: what it imports, and what it refuses to conclude from."""

import signal
import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from hapax.commands.tree import app
from hapax.kafka.read.range_reader import OffsetRange
from hapax.operations.audit import topics as audit_topics
from hapax.operations.audit.judgement import LocalAudit, View, named_topics
from hapax.operations.audit.result import NAMES, IncompleteError
from tests.kit import histories
from tests.kit.audited import judged_here, scope_of
from tests.kit.commands import output_of
from tests.kit.histories import PLANTED, planted
from tests.unit.test_settings import REQUIRED

RUN = CliRunner()
IMPORTS = """
import sys, hapax.commands.audit, hapax.operations.audit.topics
print(sorted({name.split(".")[0] for name in sys.modules} & {"pyspark", "pyarrow", "pandas"}))
"""


class Ranges:
    """Two ranges of inputs, of which the second may end early."""

    def __init__(self, *, whole: bool) -> None:
        self.stretches = [OffsetRange(0, "in", 0, 0, 1), OffsetRange(0, "in", 0, 1, 2)]
        self._whole = whole

    def __call__(self, number: int) -> Iterator[list[tuple[Any, ...]]]:
        yield [(0, number, True, number, None, 1, None, "t,u", None)]
        if self._whole or number == 0:
            yield [(0, *([None] * 7), 1)]


def test_it_needs_no_library_but_those_of_the_worker():
    assert output_of([sys.executable, "-c", IMPORTS], timeout=60).strip() == "[]"


def test_progress_is_reported_in_offsets_up_to_all_of_them():
    reports: list[tuple[str, int, int]] = []
    with LocalAudit.opened(lambda *report: reports.append(report)) as engine:
        engine.read("inputs", Ranges(whole=True), "reading")
        assert named_topics(engine) == {"t", "u"}
    assert reports[0] == ("reading", 0, 2)
    assert reports[-1] == ("reading", 2, 2)


def test_a_range_that_was_not_read_to_its_end_is_no_verdict():
    with (
        LocalAudit.opened(lambda *_report: None) as engine,
        pytest.raises(IncompleteError, match="in/0 was not read to its end"),
    ):
        engine.read("inputs", Ranges(whole=False), "reading")


def test_a_full_disk_is_one_sentence_that_says_what_to_do():
    many = [(0, 0, at, at, 1, 1, None, 0, b"x" * 1000, *[None] * 3) for at in range(1000)]
    with LocalAudit.opened(lambda *_report: None) as engine:
        engine._base.execute("pragma max_page_count = 10")
        with pytest.raises(IncompleteError, match=r"disk is full.*TMPDIR"):
            engine.add("effects", many)


def test_a_query_that_fails_is_the_same_sentence():
    with LocalAudit.opened(lambda *_report: None) as engine:
        engine._base.execute("pragma max_page_count = 10")
        with pytest.raises(IncompleteError, match="workspace") as refused:
            engine.define(View("copied", "select zeroblob(1000000) as much", ""))
    assert isinstance(refused.value.__cause__, sqlite3.Error)


def test_ctrl_c_ends_a_query_that_takes_long():
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"

    def interrupted(what: str, *_figures: object) -> None:
        if what == "judging":
            signal.raise_signal(signal.SIGINT)

    with LocalAudit.opened(interrupted) as engine, pytest.raises(KeyboardInterrupt):
        engine.rows(endless)


def test_spark_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(audit_topics, "find_spec", lambda _name: None)
    done = RUN.invoke(app, ["audit", "--engine", "spark"], env=REQUIRED)
    assert done.exit_code == 2
    assert "pip install 'hapax-kafka[spark]'" in done.stderr


@pytest.mark.parametrize(
    ("name", "plant"),
    [(name, plant) for name, plants in PLANTED.items() for plant in plants],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_planted_anomaly_is_found_by_its_name_and_nothing_else_is(name, plant):
    for history, number in planted(plant, 2):
        inputs, effects, reads, writes = histories.rows([history])
        totals = judged_here(inputs, effects, scope_of(reads, writes)).totals
        assert {one: totals[one] for one in NAMES if totals.get(one)} == {name: number}


def test_every_class_of_anomalies_is_planted():
    assert tuple(PLANTED) == NAMES

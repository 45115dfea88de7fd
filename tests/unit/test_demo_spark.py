import json
import re
from collections.abc import Callable, Iterable, Iterator
from io import StringIO
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from hapax.commands.demo import demo, figures, sentences, table
from hapax.demo import story
from hapax.demo.stage import DemoError, DemoFault, HandOver
from hapax.demo.story import (
    DemoSummary,
    DemoVerdict,
    SparkApplication,
    freeze_in_range,
    lane_is_back,
    verdict_of,
)
from hapax.operations.audit.result import NAMES, Audit, OutputBounds, OutputFindings
from hapax.sandbox.processes import ManagedProcess

APP = typer.Typer()
APP.command()(demo)
CLEAN = DemoVerdict(10, 9, 11, 1, 1)
HAND_OVER = HandOver("Spark", "worker", 1.5, 2.0, 5850, 0)


def outcome(*codes: int, hand_overs: list[HandOver]) -> DemoSummary:
    return DemoSummary(
        engine="spark",
        published=10,
        aborted=1,
        faults=[
            DemoFault("Python worker kill", "Spark", "inside a transaction of a range", 2.6),
            DemoFault("driver kill", "Spark", "inside a transaction of a range", 5.8),
            DemoFault("Python worker kill", "Spark", "inside a transaction of a range", 1.1),
        ],
        ordinary_faults=[DemoFault("kill", "ordinary-loop", "between two records")],
        hand_overs=hand_overs,
        ordinary_restarts=0,
        exit_codes=list(codes),
        hapax=CLEAN,
        ordinary=CLEAN,
    )


def printed(result: DemoSummary) -> str:
    text = StringIO()
    Console(file=text, width=80).print(table(result))
    return text.getvalue()


def test_faults_are_counted_by_kind_and_hand_overs_where_there_were_some():
    words = printed(outcome(0, hand_overs=[HAND_OVER, HAND_OVER]))
    assert "2 Python worker kills," in words
    assert re.search(r"\n +1 driver kill +\n +hand-overs +2 +\n", words)
    result = outcome(0, hand_overs=[])
    assert "hand-over" not in printed(result)
    assert sentences(result)[0] == "Exactly once: every event had its whole effect once, in order."


def test_who_did_not_leave_with_0_for_a_hand_over_breaks_the_promise():
    left_badly = HandOver("Spark", "worker", 1.5, 2.0, 5850, 1)
    assert outcome(0, hand_overs=[HAND_OVER]).exact
    assert not outcome(0, hand_overs=[left_badly]).exact
    assert any("[0, 1], not 0" in words for words in sentences(outcome(0, hand_overs=[left_badly])))


def test_the_figures_and_a_sentence_of_a_hand_over_say_how_long_it_took_under_which_load():
    result = outcome(0, hand_overs=[HAND_OVER])
    (told,) = [words for words in sentences(result) if "Hand-over" in words]
    assert told == (
        "Hand-over: Spark left 1.5 s after SIGTERM, worker commits after 2.0 s;"
        " 5,850 records came in meanwhile."
    )
    found = json.loads(json.dumps(figures(result)))
    assert found["engine"] == "spark"
    assert found["hand_overs"][0]["commits_after_s"] == 2.0


def lost(lane: int) -> dict[str, object]:
    return {"event": "task_lost", "lane": lane}


def settled(lane: int, transactions: int = 1) -> dict[str, object]:
    return {"event": "range_completed", "lane": lane, "transactions": transactions}


@pytest.mark.parametrize(
    ("lines", "back"),
    [
        ([], False),
        ([settled(0)], False),
        ([settled(0), lost(0)], False),
        ([lost(0), settled(1)], False),
        ([lost(0), settled(0, transactions=0)], False),
        ([lost(0), settled(1), settled(0)], True),
    ],
)
def test_only_a_commit_of_the_lane_that_lost_its_task_counts(
    lines: list[dict[str, object]],
    back: bool,  # noqa: FBT001 - a value of the table above
) -> None:
    assert lane_is_back(lines) is back


def test_half_a_line_and_words_of_java_are_no_events(tmp_path):
    child = ManagedProcess("spark", [], tmp_path / "log", cast("Any", None))
    child.log.write_text('Picked up JAVA_TOOL_OPTIONS\n{"event":"service_ready"}\n{"event":"ra')
    first = child.position()
    assert [line["event"] for line in child.events()] == ["service_ready"]
    with child.log.open("a") as log:
        log.write('nge_completed"}\n{"event":"task_lost"}\n')
    assert child.has_logged("range_completed")
    assert not child.has_logged("range_completed", first)
    assert child.has_logged("task_lost", first)


class Family(SparkApplication):
    """Three processes, of which two run tasks; nothing is really stopped."""

    def __init__(self, *workers: int) -> None:
        self.workers = [*workers]
        self.freezes: list[set[int]] = []

    def pause(self, chosen: Callable[[], Iterable[int]] | None = None) -> None:
        assert chosen is not None
        self.frozen = frozenset(chosen())
        self.freezes.append(set(self.frozen))

    def resume(self) -> None:
        self.frozen = frozenset()

    def _family(self) -> dict[int, tuple[int, bytes]]:
        return {9: (1, b"pyspark.daemon")} | dict.fromkeys(self.workers, (9, b"pyspark.daemon"))


def stage_with(looks: Iterator[dict[Any, Any]], family: Family, monkeypatch: Any) -> Any:
    def wait(condition: Callable[[], object], _what: str) -> None:
        assert condition()

    monkeypatch.setattr(story, "_caught", lambda _stage: True)
    monkeypatch.setattr(story, "undecided", lambda _client, _places: next(looks))
    monkeypatch.setattr(story, "_STALLED_S", 0.01)
    return SimpleNamespace(offsets=None, application=family, wait=wait)


def test_it_stays_frozen_only_where_its_transaction_stays_open(monkeypatch):
    def looks() -> Iterator[dict[Any, Any]]:
        yield {}  # over before it was frozen
        yield {("o", 0): (7, 9), ("o", 1): (3, 4)}  # of another member,
        yield {("o", 0): (9, 11)}  # which continues
        while True:
            yield {("o", 2): (5, 6)}

    family = Family(10, 11)
    freeze_in_range(stage_with(looks(), family, monkeypatch), "Spark", family.everything)
    assert family.frozen == {9, 10, 11}
    assert len(family.freezes) == 3
    family = Family(10)
    with pytest.raises(DemoError, match="Spark was open at none of 60 moments"):
        freeze_in_range(stage_with(repeat({}), family, monkeypatch), "Spark", family.everything)
    assert not family.frozen


def test_one_python_worker_is_frozen_at_a_time_and_never_the_pool(monkeypatch):
    family = Family(10, 11)
    with pytest.raises(DemoError, match="none of 60 moments"):
        freeze_in_range(stage_with(repeat({}), family, monkeypatch), "one", family.a_python_worker)
    assert {*map(frozenset, family.freezes)} == {frozenset({10}), frozenset({11})}
    family.frozen = frozenset({11})
    assert family.a_python_worker() == [11]  # what is frozen stays the chosen one
    with pytest.raises(DemoError, match="no Python worker"):
        Family().a_python_worker()


# -- what the audits came to -------------------------------------------------------------------


def audited(*, foreign: int = 0, **totals: int) -> Audit:
    def lane(topic: str, records: int, foreign: int = 0) -> OutputFindings:
        bounds = OutputBounds(topic=topic, partition=0, low=0, settled=9, end=9, high=9)
        return OutputFindings(bounds=bounds, records=records, foreign=foreign)

    return Audit(
        app="demo",
        compare="values",
        inputs=[],
        outputs=[lane("orders-priced", 7, foreign), lane("orders-dead", 2)],
        totals={"records": 10, "duplicates": 1, **totals},
        examples={name: [f"an example of {name}"] for name in totals},
        remarks=[],
    )


def test_a_clean_audit_is_exact_and_what_no_record_of_the_demo_asks_for_is_wrong():
    verdict = verdict_of(audited(), events=9)
    assert verdict == DemoVerdict(10, 9, 7, 2, 1)
    assert verdict.exact
    for found in (audited(foreign=1), audited(unexpected_dead=1)):
        assert verdict_of(found, events=9).wrong == 1


ROWS = {
    "lost": ["missing", "dedup_loss"],
    "wrong": ["torn", "wrong", "orphaned", "ahead"],
    "doubled_by_crashes": ["doubled"],
    "doubled_by_repeats": ["repeated"],
    "out_of_order": ["out_of_order"],
    "from_aborted": ["from_aborted"],
}


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in ROWS for name in ROWS[k]])
def test_each_anomaly_of_the_audit_has_its_row_and_its_examples(name: str, kind: str) -> None:
    verdict = verdict_of(audited(**{name: 3}), events=9)
    assert getattr(verdict, kind) == 3
    assert verdict.examples == {kind: [f"an example of {name}"]}
    assert not verdict.exact


def test_each_class_of_the_audit_is_counted():
    verdict = verdict_of(audited(**dict.fromkeys(NAMES, 1)), events=9)
    anomalies = verdict.lost + verdict.doubled + verdict.out_of_order + verdict.from_aborted
    assert anomalies + verdict.wrong == len(NAMES)


NO_PYSPARK = "hapax demo: PySpark is not installed. Run: pip install 'hapax-kafka[spark]'\n"
WITHOUT = {NO_PYSPARK: ("find_spec", lambda _: None), "Run it on Linux": ("PROC", Path("/no"))}


@pytest.mark.parametrize(("said", "patch"), WITHOUT.items())
def test_without_pyspark_or_proc_it_says_what_to_do_and_starts_nothing(monkeypatch, patch, said):
    monkeypatch.setattr(story, *patch)
    result = CliRunner().invoke(APP, ["--engine", "spark"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr

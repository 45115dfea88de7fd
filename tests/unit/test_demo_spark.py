import json
import re
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from hapax.commands.demo import demo
from hapax.demo import moments, spark_stage
from hapax.demo.child import Child, DemoError
from hapax.demo.damage import DemoFault, HandOver
from hapax.demo.judge import DemoVerdict
from hapax.demo.moments import freeze_in_range
from hapax.demo.spark_faults import PythonWorker, executors_listed, lane_is_back
from hapax.demo.story import DemoSummary
from hapax.demo.table import figures, sentences, table

APP = typer.Typer()
APP.command()(demo)
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
        hapax=DemoVerdict(),
        ordinary=DemoVerdict(),
    )


def printed(result: DemoSummary) -> str:
    text = StringIO()
    Console(file=text, width=80).print(table(result))
    return text.getvalue()


# -- what is shown -----------------------------------------------------------------------------


def test_faults_are_counted_by_kind_and_hand_overs_beside_them():
    words = printed(outcome(0, hand_overs=[HAND_OVER, HAND_OVER]))
    assert "2 Python worker kills," in words
    assert re.search(r"\n +1 driver kill +\n +hand-overs +2 +\n", words)


def test_without_hand_overs_none_are_spoken_of():
    result = outcome(0, hand_overs=[])
    assert "hand-over" not in printed(result)
    assert sentences(result)[0] == "Exactly once: every event had its whole effect once, in order."


def test_the_sentence_of_a_hand_over_says_how_long_it_took_under_which_load():
    (told,) = [
        words for words in sentences(outcome(0, hand_overs=[HAND_OVER])) if "Hand-over" in words
    ]
    assert told == (
        "Hand-over: Spark left 1.5 s after SIGTERM, worker commits after 2.0 s;"
        " 5,850 records came in meanwhile."
    )


def test_who_did_not_leave_with_0_for_a_hand_over_breaks_the_promise():
    left_badly = HandOver("Spark", "worker", 1.5, 2.0, 5850, 1)
    assert outcome(0, hand_overs=[HAND_OVER]).exact
    assert not outcome(0, hand_overs=[left_badly]).exact
    assert any("[0, 1], not 0" in words for words in sentences(outcome(0, hand_overs=[left_badly])))


def test_the_figures_hold_the_hand_overs():
    found = json.loads(json.dumps(figures(outcome(0, hand_overs=[HAND_OVER]))))
    assert found["engine"] == "spark"
    assert found["hand_overs"][0]["commits_after_s"] == 2.0


# -- what the log says -------------------------------------------------------------------------


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


def test_the_executors_are_those_that_the_driver_listed_last():
    def listed(*names: str) -> dict[str, object]:
        return {"event": "executors_changed", "executors": dict.fromkeys(names, "127.0.0.1:1")}

    assert executors_listed([]) == 0
    assert executors_listed([lost(0), listed("0", "1"), settled(0)]) == 2
    assert executors_listed([listed("0", "1"), listed("1")]) == 1


def test_half_a_line_and_words_of_java_are_no_events(tmp_path):
    child = Child("spark", [], {}, tmp_path, cast("Any", None))
    assert not child.has_told("range_completed")
    child.log.write_text('Picked up JAVA_TOOL_OPTIONS\n{"event":"service_ready"}\n{"event":"ra')
    first = child.position()
    assert [line["event"] for line in child.events()] == ["service_ready"]
    with child.log.open("a") as log:
        log.write('nge_completed"}\n{"event":"task_lost"}\n')
    assert child.has_told("range_completed")
    assert not child.has_told("range_completed", first)
    assert child.has_told("task_lost", first)


# -- the right moment --------------------------------------------------------------------------


class Victim:
    name = "Spark"

    def __init__(self) -> None:
        self.frozen = False
        self.freezes = 0

    def freeze(self) -> None:
        self.frozen = True
        self.freezes += 1

    def thaw(self) -> None:
        self.frozen = False


def stage_with(looks: Iterator[set[tuple[int, int]]]) -> Any:
    def wait(condition: Callable[[], object], _what: str) -> None:
        assert condition()

    transactions = SimpleNamespace(open=lambda: next(looks), catch=lambda _timeout_s: True)
    return SimpleNamespace(transactions=transactions, wait=wait)


def test_it_stays_frozen_only_where_its_transaction_stays_open(monkeypatch):
    monkeypatch.setattr(moments, "_STALLED_S", 0.01)
    victim = Victim()

    def looks() -> Iterator[set[tuple[int, int]]]:
        yield set()  # over before it was frozen
        yield {(0, 7), (1, 3)}  # of somebody else,
        yield {(0, 9)}  # who goes on
        while True:
            yield {(2, 5)}

    freeze_in_range(stage_with(looks()), victim)
    assert victim.frozen
    assert victim.freezes == 3


def test_where_no_moment_is_the_right_one_nobody_is_killed_or_left_frozen():
    victim = Victim()
    with pytest.raises(DemoError, match="Spark was open at none of 60 moments"):
        freeze_in_range(stage_with(repeat(set())), victim)
    assert not victim.frozen


class Pool:
    def __init__(self, *pids: int) -> None:
        self.pids = list(pids)
        self.frozen: list[int] = []
        self.killed: list[int] = []

    def python_workers(self) -> list[int]:
        return self.pids

    def freeze_one(self, pid: int) -> None:
        self.frozen.append(pid)

    def thaw(self) -> None:
        self.frozen.clear()

    def kill_one(self, pid: int) -> bool:
        self.killed.append(pid)
        return pid in self.pids


def test_each_try_takes_another_python_worker_and_the_frozen_one_is_killed():
    pool = Pool(10, 11)
    victim = PythonWorker(cast("Any", pool))
    seen = []
    for _ in range(4):
        victim.freeze()
        seen.append(pool.frozen[0])
        victim.thaw()
    assert sorted(seen) == [10, 10, 11, 11]
    victim.freeze()
    (frozen,) = pool.frozen
    victim.kill()
    assert pool.killed == [frozen]


def test_a_python_worker_that_ended_by_itself_is_not_counted_as_killed():
    pool = Pool(10)
    victim = PythonWorker(cast("Any", pool))
    victim.freeze()
    pool.pids.clear()
    with pytest.raises(DemoError, match="ended by itself"):
        victim.kill()
    with pytest.raises(DemoError, match="no Python worker"):
        victim.freeze()


# -- what it needs -----------------------------------------------------------------------------


def test_without_pyspark_it_says_what_to_install_and_starts_nothing(monkeypatch):
    monkeypatch.setattr(spark_stage, "find_spec", lambda _name: None)
    result = CliRunner().invoke(APP, ["--engine", "spark"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "hapax demo: PySpark is not installed. Run: pip install 'hapax-kafka[spark]'\n"
    )


def test_without_proc_it_says_where_to_run(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_stage, "PROC", tmp_path)
    result = CliRunner().invoke(APP, ["--engine", "spark"])
    assert result.exit_code == 1
    assert "Run it on Linux" in result.stderr

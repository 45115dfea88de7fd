"""The nemesis itself: its catalogue, its measures, and one short campaign on a real cluster."""

import importlib
import json
import math
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from tests.fault import campaign, plans
from tests.fault.cluster import java_hash
from tests.fault.members import Member, await_exit
from tests.fault.plan import CALLS, PAUSED, Fault, Plan, Step
from tests.fault.plans import Wish
from tests.fault.reporting.matrix import MATRIX, SPARK as SPARK_MATRIX
from tests.fault.results import Judgement
from tests.fault.scene import Scene
from tests.fault.striking import strikes
from tests.fault.striking.crash import POINTS
from tests.fault.striking.strikes_requests import INVALID_PRODUCER_EPOCH
from tests.fault.versions import BEGIN, END, Row, write_table
from tests.fault.watching.monitor import Progress
from tests.kit.managed_process import WorkerProcess
from tests.kit.proof import at_length
from tests.kit.turn import Box

ROWS = {
    *(f"P{number}" for number in range(1, 24)),
    *("Z1", "Z2", "Z3", "B1", "B2", "B3", "B4", "B5", "S-K1", "S-K2", "N1", "N2"),
    *("R1", "R2", "R9", "G1", "G3", "G4", "T4"),
    *("SP2", "SP4", "SP5", "SP8", "SP9", "SP10"),
    *(f"SP{number}" for number in range(28, 35)),
}


class Reader:
    """A live reader that says what it is told to."""

    done = 0

    def __init__(self, *fed_ms: int) -> None:
        self.fed_ms = list(fed_ms)

    def fed_seen_ms(self) -> list[int]:
        return self.fed_ms


def test_the_catalogue_has_a_fault_for_each_row_that_campaigns_can_strike():
    struck = {row for fault in strikes.CATALOGUE for row in fault.rows}
    assert struck == ROWS
    assert struck <= MATRIX.keys() | SPARK_MATRIX.keys()


def test_no_two_faults_have_one_name():
    names = [fault.name for fault in strikes.CATALOGUE]
    assert len(names) == len(set(names))


def test_ci_strikes_with_every_fault_of_workers_exactly_once():
    struck = [fault.name for (fault,) in plans.ci().steps(random.Random(1))]
    spark = {fault.name for fault in (*strikes.SPARK, strikes.ENGINES, *strikes.CLUSTER)}
    assert sorted(struck) == sorted({fault.name for fault in strikes.CATALOGUE} - spark)


@pytest.mark.parametrize(
    ("plan", "catalogue"), [(plans.ci, strikes.CATALOGUE), (plans.cluster, strikes.CLUSTER)]
)
def test_a_turn_strikes_each_row_of_its_share_and_a_series_strikes_with_every_fault(
    plan, catalogue
):
    whole = [fault for (fault,) in islice(plan(Wish()).steps(random.Random(1)), len(catalogue))]
    rows = {row for fault in whole for row in fault.rows}
    of_a_row = max(sum(row in fault.rows for fault in whole) for row in rows)
    for n in (1, 2, 3):
        struck: list[Fault] = []
        for first in range(7, 7 + n * of_a_row, n):
            parts = [_struck(plan, turn, n) for turn in range(first, first + n)]
            assert rows == {row for part in parts for fault in part for row in fault.rows}
            assert all(len(part) < len(whole) * 3 / 4 / n + 1 for part in parts)
            assert all(part == [fault for fault in whole if fault in part] for part in parts)
            struck += [fault for part in parts for fault in part]
        assert {fault.name for fault in struck} == {fault.name for fault in whole}


def _struck(plan: Callable[[Wish], Plan], turn: int, share: int) -> list[Fault]:
    wish = Wish(each_row=True, turn=turn, share=share)
    return [fault for (fault,) in plan(wish).steps(random.Random(1))]


def test_what_a_campaign_does_not_begin_in_its_box_is_owed_by_name(tmp_path):
    owed = tmp_path / "owed"
    owed.write_text("worker frozen past its session\n")
    box = Box(minutes=1, first=owed)
    plan = plans.ci(Wish(each_row=True, share=2, turn=5, box=box))
    steps = plan.steps(random.Random(1))
    played = [next(steps)[0].name, next(steps)[0].name]
    box.began_s -= 61
    assert list(steps) == []
    assert played[0] == "worker frozen past its session"
    assert len({*played, *box.left}) >= 21
    assert plan.seconds == math.inf, "the box ends it"


@pytest.mark.parametrize("form", [name for name in CALLS if name])
def test_the_same_faults_strike_members_with_calls_in_flight(form):
    plain, plan = plans.ci(), plans.ci(Wish(calls=form))
    assert _names(list(plan.steps(random.Random(1)))) == _names(list(plain.steps(random.Random(1))))
    assert plan.name == f"ci-{form}"
    more = {name: value for name, value in plan.settings.items() if name not in plain.settings}
    module, _, name = more.pop("HAPAX_TRANSFORM").partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    assert plan.settings == plain.settings | CALLS[form] | PAUSED


@pytest.mark.parametrize("engine", ["worker", "spark", "mixed"])
def test_chaos_is_the_same_for_the_same_seed_and_those_together_are_of_different_kinds(engine):
    plan = plans.chaos(Wish(seed=5, engine=engine))
    first, again, other = (list(islice(plan.steps(random.Random(n)), 200)) for n in (5, 5, 6))
    assert _names(first) == _names(again) != _names(other)
    several = [step for step in first if len(step) > 1]
    assert len(several) > 20
    for step in several:
        assert sum(len(fault.needs) for fault in step) == len(set.union(*(f.needs for f in step)))


def _names(steps: list[Step]) -> list[list[str]]:
    return [[fault.name for fault in step] for step in steps]


def test_recovery_counts_from_the_first_output_of_the_slowest_partition():
    reader = Reader(1_000, 1_000, 0)
    progress = Progress(reader)
    progress.start()
    try:
        assert progress.await_recovery(0.5, 5) is not None
        assert progress.recovered_s(1.0) is None, "a record of that very moment does not count"
        reader.fed_ms = [9_000, 1_000, 0]
        assert progress.await_recovery(1.0, 0.3) is None, "one partition stands still"
        before_s = time.time()
        reader.fed_ms = [9_000, 2_000, 0]
        seen_s = progress.await_recovery(1.0, 5)
        assert seen_s is not None
        assert before_s <= seen_s <= time.time()
        assert progress.recovered_s(2.0) is None
    finally:
        progress.close()


def test_a_coordinator_that_gives_no_answer_fails_the_run_and_its_log_is_printed(
    tmp_path, monkeypatch
):
    log = tmp_path / "broker.log"
    said: list[str] = []
    log.write_text("1 [main] INFO plain\n2 [main] ERROR cannot load\n")
    broker = SimpleNamespace(name="broker 2", log=log)
    cluster = SimpleNamespace(
        coordinator=lambda role, app: broker if (role, app) == ("offsets", "a") else None
    )
    stage: Any = SimpleNamespace(cluster=cluster, topics=SimpleNamespace(app="a"))

    def judge(*_arguments: object) -> Judgement:
        raise KafkaException("no coordinator")

    monkeypatch.setattr(campaign, "judge", judge)
    monkeypatch.setattr(campaign, "_tell", said.append)
    played = campaign._Campaign(plans.ci(), stage)
    assert played._judge(cast("Any", None), cast("Any", None)) == Judgement()
    assert played._found == {"hang": 1}
    assert "broker 2 does not let the run be judged" in said[0]
    assert "cannot load" in said[1]
    assert "plain" not in said[1]


@pytest.mark.parametrize("problem", [None, AssertionError("no such request")])
def test_a_strike_that_hits_nothing_is_played_once_and_fails_its_run(problem, monkeypatch):
    def miss(_scene: Scene) -> None:
        if problem:
            raise problem

    fault = Fault(("P1",), "worker killed", miss)
    played = campaign._Campaign(replace(plans.ci(), quiet_s=(0, 0)), _stage())
    monkeypatch.setattr(played, "_strike", lambda step: [_acted(played, one) for one in step])
    played._play((fault,))
    (strike,) = played._run.strikes
    assert strike.struck == 0
    assert str(problem or "") in strike.note
    assert not played._run.as_expected


@pytest.mark.parametrize(("lag", "paces"), [(40_000, []), (40_001, [1000, 4000])])
def test_members_that_are_far_behind_catch_up_before_the_next_fault(lag, paces, monkeypatch):
    stage, paced = _stage(), []
    stage.offsets.lag = lag

    def pace(rate: int) -> None:
        paced.append(rate)
        stage.offsets.lag = 0

    stage.feeder = SimpleNamespace(pace=pace)
    plan = replace(plans.ci(), quiet_s=(0, 0), rate=4000)
    played = campaign._Campaign(plan, stage)
    monkeypatch.setattr(played, "_strike", lambda _step: [])
    played._play(())
    assert paced == paces
    assert len(played._run.notes) == bool(paces)


def _stage() -> Any:
    offsets = SimpleNamespace(longest_stall_s=lambda *_: 0.0, lag=0)
    progress = SimpleNamespace(recovered_s=lambda since_s: since_s)
    return SimpleNamespace(members=[], offsets=offsets, progress=progress, began_s=0.0)


def _acted(played: campaign._Campaign, fault: Fault) -> Scene:
    scene = Scene(_stage(), fault, random.Random(1))
    played._act(scene)
    return scene


def test_names_find_their_coordinator_as_in_java():
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == 0x80000000, "the hash that has no absolute value"


@pytest.mark.parametrize("point", POINTS)
def test_each_crash_point_names_a_call_that_is_there(point):
    assert callable(getattr(POINTS[point].owner, POINTS[point].call))


def _member(tmp_path: Path, script: str) -> Member:
    log = tmp_path / "member.log"
    return Member(WorkerProcess({}, "w-9", log, [sys.executable, "-c", script]), log)


def test_an_exit_that_nobody_asked_for_is_a_surprise(tmp_path):
    member = _member(tmp_path, "raise SystemExit(4)")
    member.start()
    assert await_exit(member) == 4
    assert member.surprise() == 4
    member.start(allowed=[4])
    assert await_exit(member) == 4
    assert member.surprise() is None


def test_a_kill_and_a_stop_are_no_surprise(tmp_path):
    member = _member(tmp_path, "import time; time.sleep(60)")
    member.start()
    assert member.surprise() is None
    member.kill()
    assert (member.surprise(), member.kills) == (None, 1)
    member.start()
    assert member.terminate() == -signal.SIGTERM
    assert member.surprise() is None


def test_events_are_counted_once_although_the_log_is_read_while_it_grows(tmp_path):
    member = _member(tmp_path, "")
    log = tmp_path / "member.log"
    line = json.dumps({"event": "producer_died", "fenced": True}).encode() + b"\n"
    log.write_bytes(line + b"not json\n" + line[:10])
    assert member.read_log() == {"producer_died": 1, "fenced": 1}
    log.write_bytes(line + b"not json\n" + line + b'{"torn\n')
    assert member.read_log() == {"producer_died": 2, "fenced": 2}
    assert member.read_log() == {"producer_died": 2, "fenced": 2}


@pytest.mark.real
@pytest.mark.long  # make deep strikes each row in plain form
@pytest.mark.timeout(800)
@pytest.mark.rounds
@at_length
@pytest.mark.parametrize("form", ["coroutine", "list"])
def test_a_short_campaign_strikes_with_each_kind_and_finds_nothing(form):
    plan: Plan = plans.smoke(Wish(seed=3, calls=form))
    steps = list(plan.steps(random.Random(0)))
    found = campaign.run(plan)
    found.shared = True  # tests have company: times are for campaigns to judge
    assert found.as_expected, found.problems
    assert [strike.fault for strike in found.strikes] == [fault.name for (fault,) in steps]
    assert all(strike.struck and strike.recovery_s is not None for strike in found.strikes)
    counts = found.judgement.counts
    assert counts.records > 5_000
    assert counts.kills >= 1
    # Its producer was replaced before: because of the doubt, or because the commit was given up.
    (late,) = [strike for strike in found.strikes if strike.fault == strikes.LATE[0].name]
    assert f"late request {INVALID_PRODUCER_EPOCH}" in late.note, late
    assert counts.committed > 20
    assert len(found.samples) >= 10


FACTS = {"Kafka": "3.9.2", "Redis": "7.0.15", "Python": "3.11.7", "confluent-kafka": "2.16.1"}


def test_the_table_replaces_what_stands_between_the_marks_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}an older table\n{END}after\n")
    rows = [
        Row("Kafka 3.9.2", FACTS, 4, 12345, {}, "2026-01-02", "abc"),
        Row("Redis 8", FACTS, 4, 10, {"lost": 2}, "2026-01-02", "abc"),
        Row("Valkey 8", why="no apt-get"),
    ]

    write_table(page, rows)

    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}| | Kafka |")
    assert text.endswith(f"{END}after\n")
    assert "an older table" not in text
    assert "| Kafka 3.9.2 | 3.9.2 | 7.0.15 | 3.11.7 | 2.16.1 | 4 | 12,345 | none |" in text
    assert "| 10 | lost 2 |" in text
    assert "| Valkey 8 | not run: no apt-get |" in text

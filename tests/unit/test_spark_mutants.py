"""The real driver and tasks under random kills, zombies and rebalances; and broken ones."""

from collections import Counter
from functools import partial
from typing import Any, cast

import pytest

from hapax.core.record_path import Batch
from hapax.core.records import Progress
from hapax.engines.batch_runner import BatchRunner
from hapax.engines.spark.plan import Pacing
from hapax.engines.spark.task import Task
from hapax.testing.broker import InstantGroup
from hapax.testing.source import MemoryTransaction
from tests.kit import spark_schedules
from tests.kit.mutants import Mutant, Patch, in_place_of
from tests.kit.spark_schedules import Broker, LaneFences, Producing, Range, breaks_the_promise, play
from tests.kit.turn import first, of_this_turn

SCHEDULES = of_this_turn(60, 300)
SEEDS = range(1500)
KINDS = ("kill", "zombie", "crash", "peer", "expel", "away")
RARE = {
    **dict.fromkeys(("fault at take", "fault at begin", "fault at committed"), 106),
    **dict.fromkeys(("fault at send", "fault at send_offsets"), 106),
    **dict.fromkeys(("fault at open", "fault at commit", "fault at stable_ends"), 36),
    "fault at fence": 3,
    **dict.fromkeys(("aborted behind its ends", "fenced behind its ends"), 77),
}
"""What a turn may not meet, each with a seed that does."""


def test_whatever_happens_to_tasks_and_driver_every_record_has_its_effect_once():
    struck: Counter[str] = Counter()
    for seed in SCHEDULES:
        try:
            struck += play(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    few = len(SCHEDULES) < 300
    for kind in KINDS:
        assert struck[kind] > (5 if few else 30), struck
    assert struck["done behind its ends"] > (10 if few else 100), struck
    for what in RARE:
        assert struck[what] > (-1 if few else 3 + 2 * what.startswith("fault")), struck


def how_often(what: str, seed: int) -> int:
    return play(seed)[what]


@pytest.mark.filterwarnings("default:another seed")
def test_each_rare_thing_is_met():
    for what, seed in RARE.items():
        assert first(seed, range(300), partial(how_often, what)) is not None, what


def test_tasks_take_the_next_batch_ahead_in_those_schedules(monkeypatch):
    real, ahead = BatchRunner.look_ahead, []

    def note(self: BatchRunner) -> bool:
        looked = real(self)
        ahead.append(self.waiting)
        return looked

    monkeypatch.setattr(BatchRunner, "look_ahead", note)
    for seed in range(30):
        play(seed)
    assert ahead.count(True) > 30


@in_place_of(Range, "confirm")
def what_is_committed_is_not_read_after_init(_real: Any, self: Range) -> Progress:
    return {where: known for where, known in self._plan.starts.items() if known is not None}


def what_is_committed_is_read_before_init(patch: Patch) -> None:
    place, confirm = Range.place, Range.confirm
    early: dict[int, Any] = {}

    def placed(self: Range) -> None:
        place(self)
        early[id(self)] = confirm(self)

    patch(Range, "place", placed)
    patch(Range, "confirm", lambda self: early.pop(id(self)))


def metadata_of_a_stale_member_is_accepted(patch: Patch) -> None:
    patch(InstantGroup, "admit", lambda _self, _member, _progress: None)


def a_task_fences_nobody(patch: Patch) -> None:
    opened, number = Producing.open, iter(range(1_000_000))

    def of_its_own(self: Producing) -> None:
        self._transactional_id = f"task-{next(number)}"
        opened(self)

    patch(Producing, "open", of_its_own)


@in_place_of(Range, "take")
def the_rest_of_a_cut_batch_is_forgotten(
    _real: Any, self: Range, records_max: int, wait_s: float
) -> Any:
    batch = super(Range, self).take(records_max + 1, wait_s)
    batch.records = batch.records[:records_max]
    return batch


def doubts_are_not_fenced(patch: Patch) -> None:
    patch(Task, "_fence_doubt", lambda _self: None)
    patch(MemoryTransaction, "_refuse_doubts", lambda _self: None)


@in_place_of(Range, "member")
def a_task_that_stays_takes_the_newest_metadata(lent: Any, self: Range) -> Any:
    """As if the driver handed on what it is a member by now: it may have lost partitions since."""
    if not self._plan.stay_s:
        return lent(self)
    name = lent(self).decode().rsplit(":", 1)[0]
    return f"{name}:{cast('Broker', self._broker)._dealt.newest}".encode()


@in_place_of(Task, "_run")
def a_task_that_stays_keeps_an_end_that_records_came_behind(
    ran: Any, self: Task, batch: Batch, due: Any
) -> None:
    kept = {where: end + 1 for where, end in batch.next.items() if self._plan.stay_s}
    ran(self, batch, due)
    self._ends |= kept


def share_out_neither_fences_nor_keeps_lanes(patch: Patch) -> None:
    """Either of the two alone is enough: tasks fence their lane and read what is committed."""
    patch(LaneFences, "_register", lambda _self, _name: None)
    patch(spark_schedules, "Pacing", lambda **facts: Pacing(**{**facts, "sticky": False}))


MUTANTS: dict[Mutant, int] = {
    what_is_committed_is_not_read_after_init: 54,
    what_is_committed_is_read_before_init: 29,
    metadata_of_a_stale_member_is_accepted: 12,
    a_task_fences_nobody: 11,
    the_rest_of_a_cut_batch_is_forgotten: 0,
    doubts_are_not_fenced: 279,
    a_task_that_stays_takes_the_newest_metadata: 12,
    a_task_that_stays_keeps_an_end_that_records_came_behind: 113,
    share_out_neither_fences_nor_keeps_lanes: 551,
}
"""Each with a seed that shows it."""


@pytest.mark.filterwarnings("default:another seed")
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_driver_or_task_is_caught(mutant, monkeypatch):
    monkeypatch.setattr(spark_schedules, "TURNS_MAX", 1500)
    mutant(monkeypatch.setattr)
    assert first(MUTANTS[mutant], SEEDS, breaks_the_promise) is not None

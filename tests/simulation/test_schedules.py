"""Several real workers at once under random faults; and whether the simulation can be trusted."""

import re
from collections import Counter
from contextlib import suppress

import pytest

from hapax.testing.broker import MemoryBroker
from tests.kit.turn import first, of_this_turn
from tests.simulation.command import main
from tests.simulation.directed import DIRECTED
from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.options import FAULTS, KEPT_FAULTS, Item, Options
from tests.simulation.play import fails, found_by, play, shrink
from tests.simulation.spool.mutants import MUTANTS as SPOOL_MUTANTS
from tests.simulation.spool.play import WrongError, play as play_spool

SCHEDULES = (*of_this_turn(400, 2000), 41_004_223)
"""The last: a duplicate that was called while claims were away, refused, and known as one then."""
REPLAYED = of_this_turn(20, 60)


def test_whatever_goes_wrong_every_record_has_its_effect_once_and_in_order():
    counts: Counter[str] = Counter()
    for seed in SCHEDULES:
        outcome = play(seed)
        assert not outcome.found, f"seed {seed}: {outcome.found}; make simulate SEED={seed}"
        counts += outcome.counts

    def least(of_many: int) -> int:
        return of_many if len(SCHEDULES) >= 2000 else of_many // 20

    for kind in FAULTS:
        assert counts[kind] > least(50), f"too few faults of kind {kind}: {counts}"
    for kind in (*KEPT_FAULTS, "tails read", "disk older", "disk foreign", "moved back"):
        assert counts[kind] > least(10), f"{kind}: {counts}"
    assert counts["later tries"] > least(500), counts
    for late in ("EndTxn", "TxnOffsetCommit", "AddOffsetsToTxn", "Produce"):
        assert counts[f"late {late} accepted"] > least(10), late
        assert counts[f"late {late} refused"] > least(10), late
    for event in ("expired transactions", "member_fenced", "in_doubt_fenced", "partitions_lost"):
        assert counts[event] > least(20), event


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_schedules_meet_their_moment_and_break_nothing(name):
    met = 0
    for schedule in DIRECTED[name]():
        outcome = play(schedule.seed, schedule.options, played=schedule.strikes)
        assert not outcome.found, f"{schedule.strikes}: {outcome.found}"
        met += outcome.struck == schedule.strikes
    assert met


def test_what_was_aborted_lets_nothing_expire_before_those_that_are_committed():
    items = (Item(0.05, 0, (b"11/1", b"8/2", b"bad6/1")), Item(0.58, 0, (b"two1/0",)))
    assert not play(0, Options(batch_max=2, latency_s=0.05, items=items, stateful=True)).found


def test_a_seed_is_one_schedule():
    for seed in REPLAYED:
        first: list[str] = []
        second: list[str] = []
        one, other = play(seed, trace=first), play(seed, trace=second)
        assert first == second, seed
        assert (one.struck, one.counts) == (other.struck, other.counts)


def test_a_recorded_schedule_plays_as_it_was_drawn():
    for seed in REPLAYED:
        schedule = found_by(seed)
        drawn: list[str] = []
        played: list[str] = []
        play(seed, trace=drawn)
        play(seed, schedule.options, played=schedule.strikes, trace=played)
        # With the last of its faults a played schedule calms down, a drawn one may wait for more.
        until = next(at for at, line in enumerate(played) if line.endswith("calm"))
        assert played[:until] == drawn[:until], seed


def test_a_defect_is_cut_down_to_what_it_needs():
    with broken("no rewind after an abort"):
        seed = next(seed for seed in range(200) if play(seed).found)
        whole = found_by(seed)
        least = shrink(whole)
        assert play(seed, least.options, played=least.strikes).found
    values = sum(len(item.values) for item in least.options.items)
    assert values < sum(len(item.values) for item in whole.options.items)
    assert (values <= 5, least.options.workers, len(least.strikes) <= 1) == (True, 1, True)


def test_a_defect_is_told_with_its_seed_and_its_steps(capsys):
    assert main(["--seed", "0", "--count", "20", "--mutant", "a failed send is ignored"]) == 1
    told = capsys.readouterr().out
    assert "--seed 6" in told
    assert "is done without effect" in told


def test_a_clean_run_is_told_as_facts(capsys):
    assert main(["--seed", "7", "--count", "5"]) == 0
    told = capsys.readouterr().out
    rows = dict(re.findall(r"(?m)^(\S.*?) +([\d,.]+)$", told))
    assert rows["schedules"] == "5"
    assert int(rows["steps"].replace(",", "")) > 5
    assert "play it again" not in told  # of defects


def test_a_worker_that_only_waits_is_found_to_hang(monkeypatch):
    def nothing(_self: MemoryBroker, *_where: object) -> list[object]:
        return []

    monkeypatch.setattr("hapax.testing.broker.MemoryBroker.fetch", nothing)
    monkeypatch.setattr("tests.simulation.world.CALM_MAX_S", 5.0)
    assert {kind for seed in range(5) for kind, _ in play(seed).found} & {"hang", "lost-write"}


# -- Controls: a broken worker must be caught, or the green of the others proves nothing ---

SEEDS = range(4000)


@pytest.mark.filterwarnings("default:another seed")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_worker_is_caught_by_its_class(name):
    wanted, directed = set(MUTANTS[name].classes), MUTANTS[name].directed

    def caught(seed: int) -> bool:
        return any(kind in wanted for kind, _ in play(seed).found)

    with broken(name):
        if directed:
            assert any(fails(each) in wanted for each in DIRECTED[directed]())
        else:
            assert first(MUTANTS[name].seed, SEEDS, caught) is not None, f"none of {wanted}"


# -- The spool under power losses: schedules that must pass, and broken spools that must not


SPOOL_SCHEDULES, TRIES = of_this_turn(250, 2500), range(4000)


def test_power_losses_lose_nothing_double_nothing_and_keep_the_order():
    struck = Counter[str]()
    for seed in SPOOL_SCHEDULES:
        struck.update(play_spool(seed, flips=seed % 2 == 1))
    assert struck["power lost"] > len(SPOOL_SCHEDULES) / 2, struck
    assert struck["told"] > len(SPOOL_SCHEDULES) / 125, struck
    others = min(struck["disk failed"], struck["disk full"], struck["answer lost"])
    assert others > len(SPOOL_SCHEDULES) / 50, struck


def is_found_out(seed: int) -> bool:
    with suppress(Exception):
        try:
            play_spool(seed, flips=seed % 2 == 1)
        except WrongError:
            return True
    return False


@pytest.mark.filterwarnings("default:another seed")
@pytest.mark.parametrize("mutant", SPOOL_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_spool_that_is_broken_on_purpose_is_found_out(mutant, monkeypatch):
    mutant(monkeypatch.setattr)
    assert first(SPOOL_MUTANTS[mutant], TRIES, is_found_out) is not None

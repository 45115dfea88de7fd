"""A control that is broken without any fault proves nothing."""

from __future__ import annotations

import pytest

from tests.fault.controls.__main__ import LOOPS, PEERS
from tests.fault.controls.plans import CONTROLS
from tests.fault.controls.trials import play, share, undisturbed
from tests.fault.mutants.__main__ import MUTANTS
from tests.fault.mutants.plans import MUTANTS as TRIALS
from tests.fault.results import VIOLATIONS
from tests.kit.proof import at_length

EACH = {trial.words: undisturbed(trial) for trial in CONTROLS}


def test_every_control_and_every_mutant_has_its_trial():
    assert {trial.words[-1] for trial in CONTROLS} == {*LOOPS, *PEERS, "confluent-example"}
    assert {trial.words[-1] for trial in TRIALS} == {*MUTANTS}


def test_a_series_of_seeds_plays_all_trials_whatever_share_of_them_each_plays():
    quick = [each for each in CONTROLS if each.quick]
    for one_in in (1, 2, 3):
        parts = [share(quick, one_in, seed) for seed in range(7, 7 + one_in)]
        assert all(parts)
        names = sorted(each.name for part in parts for each in part)
        assert names == sorted(each.name for each in quick)


def test_what_trials_must_show_are_classes_that_the_checker_knows():
    for trial in (*CONTROLS, *TRIALS):
        assert set(trial.expected) <= set(VIOLATIONS), trial.name


@pytest.mark.long
@pytest.mark.rounds
@pytest.mark.parametrize(
    "trial",
    # The others are not struck in CI either.
    [each if each.quick else pytest.param(each, marks=at_length) for each in EACH.values()],
    ids=lambda trial: trial.words[-1],
)
def test_a_control_is_right_while_nothing_happens(trial, sandbox, proxied_broker, tmp_path):
    run = play(trial, sandbox, proxied_broker.proxy, tmp_path)
    assert run.as_expected, run.judgement
    assert run.judgement.counts.outputs > 0

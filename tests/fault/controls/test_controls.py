"""A control that is broken without any fault proves nothing."""

import pytest

from tests.fault.controls.__main__ import LOOPS, PEERS
from tests.fault.controls.plans import CONTROLS
from tests.fault.controls.trials import play, undisturbed
from tests.fault.mutants.__main__ import MUTANTS
from tests.fault.mutants.plans import MUTANTS as TRIALS
from tests.fault.results import VIOLATIONS
from tests.kit.mutants import require_same_arguments
from tests.kit.proof import at_length
from tests.simulation.mutants import MUTANTS as SIMULATED
from tests.simulation.spool.mutants import MUTANTS as OF_SPOOL
from tests.unit.mutants import OURS as OF_UNITS
from tests.unit.test_spark_mutants import MUTANTS as OF_SPARK

EACH = {trial.words: undisturbed(trial) for trial in CONTROLS}


def test_every_control_and_every_mutant_has_its_trial():
    assert {trial.words[-1] for trial in CONTROLS} == {*LOOPS, *PEERS, "confluent-example"}
    assert {trial.words[-1] for trial in TRIALS} == {*MUTANTS}


def test_what_trials_must_show_are_classes_that_the_checker_knows():
    for trial in (*CONTROLS, *TRIALS):
        assert set(trial.expected) <= set(VIOLATIONS), trial.name


PLANTED = {
    **{name: each.patch for name, each in SIMULATED.items()},
    **{
        each.__name__: each
        for each in (*MUTANTS.values(), *OF_UNITS.values(), *OF_SPOOL, *OF_SPARK)
    },
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_mutant_puts_in_place_takes_the_same_arguments(name):
    PLANTED[name](require_same_arguments)


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

"""A request that arrives inside the next transaction, and a crash behind it: KAFKA-17754.

Three groups of processes suffer the same: textbook transactions, the service, and the service
without its fence.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from hapax.sandbox import Sandbox
from tests.fault.controls import recipes
from tests.fault.controls.plans import DUPLICATE, LOST
from tests.fault.controls.trials import TRIES, Trial, play
from tests.fault.mutants import plans as mutants
from tests.fault.results import Run
from tests.kit.proof import Proof, at_length
from tests.kit.proxy import ProxiedBroker

pytestmark = [pytest.mark.long, pytest.mark.rounds, pytest.mark.row("S-K1")]
LATE: dict[recipes.Recipe, tuple[str, ...]] = {
    recipes.late_commit: DUPLICATE,
    recipes.late_abort: LOST,
    recipes.late_offsets: DUPLICATE,
}
"""What comes of each where it is accepted."""
EACH = [
    strike if strike is recipes.late_commit else pytest.param(strike, marks=at_length)
    for strike in LATE
]
"""make deep has the others among its controls, its mutants and the campaign."""
ACCEPTED, INVALID_PRODUCER_EPOCH = 0, 47


class Ring:
    """Where a trial is played, and how often its late request was delivered."""

    def __init__(self, sandbox: Sandbox, broker: ProxiedBroker, folder: Path, proof: Proof) -> None:
        self._sandbox = sandbox
        self._broker = broker
        self._folder = folder
        self._proof = proof

    def accepted(self, strike: recipes.Recipe, *command: str) -> Run:
        """Play until the late request was taken and did its harm.

        A slow client may have a new epoch by then, or nothing open that an abort could end. That
        is for controls alone: the service has one try, and the broker must refuse.
        """
        notes = []
        for number in range(TRIES):
            run = self._play(strike, command, self._folder / str(number))
            if _answered(run, ACCEPTED) and found(run):
                return run
            notes.append(f"{run.strikes[0].note}, found {found(run)}")
        raise AssertionError(f"no late request was taken and did harm: {notes}")

    def refused(self, strike: recipes.Recipe, *command: str) -> Run:
        """Play once; the late request must have been delivered, and refused."""
        run = self._play(strike, command, self._folder)
        assert _answered(run, INVALID_PRODUCER_EPOCH), run.judgement.examples
        return run

    def _play(self, strike: recipes.Recipe, command: tuple[str, ...], folder: Path) -> Run:
        name = strike.__name__.replace("_", "-")
        trial = Trial(name, strike, command=command, settings=mutants.LATE)
        if "controls" not in command[1]:
            trial = replace(trial, kind="service", claims=True)
        run = play(trial, self._sandbox, self._broker.proxy, folder)
        (told,) = run.strikes
        self._proof.note(struck=told.struck, note=told.note)
        return run


@pytest.fixture
def ring(sandbox: Sandbox, proxied_broker: ProxiedBroker, tmp_path: Path, proof: Proof) -> Ring:
    return Ring(sandbox, proxied_broker, tmp_path, proof)


def _answered(run: Run, code: int) -> bool:
    (told,) = run.strikes
    return (told.struck, told.note) == (
        1,
        f"the late request was delivered and answered with {code}",
    )


def found(run: Run) -> dict[str, int]:
    return {name: count for name, count in run.judgement.violations.items() if count}


@pytest.mark.parametrize("strike", EACH, ids=lambda strike: strike.__name__)
def test_textbook_transactions_lose_or_double_records_by_a_late_request(ring, strike):
    run = ring.accepted(strike, "-m", "tests.fault.controls", "plain-transactions")
    assert set(found(run)) & set(LATE[strike]), run.judgement


@pytest.mark.parametrize("strike", EACH, ids=lambda strike: strike.__name__)
def test_the_service_is_exactly_once_because_the_broker_refuses_the_late_request(ring, strike):
    run = ring.refused(strike, "-m", "hapax", "run")
    assert not found(run), run.judgement


@pytest.mark.parametrize("strike", EACH, ids=lambda strike: strike.__name__)
def test_without_its_fence_the_service_loses_or_doubles_them_too(ring, strike):
    run = ring.accepted(strike, "-m", "tests.fault.mutants", "no-fence-on-doubt")
    assert set(found(run)) & set(LATE[strike]), run.judgement

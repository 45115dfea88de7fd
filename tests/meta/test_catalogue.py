"""Everything that shows that the tests can fail: none of it vanishes without a line of a diff.

One table: what is broken or planted, where it is judged, the classes of which one must show, and
behind a tab the cheapest layer that catches it, in which ``make test`` or ``make deep`` plays it.

``python -m tests.meta.test_catalogue`` writes the catalogue again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hapax.operations.audit.result import NAMES
from tests.fault.checking.checker_anomalies import PLANTS
from tests.fault.controls.plans import CONTROLS
from tests.fault.controls.trials import chosen, parsed
from tests.fault.mutants.__main__ import MUTANTS as BY_NAME
from tests.fault.mutants.plans import MUTANTS as REAL
from tests.fault.reporting.matrix import INVARIANTS, ROWS
from tests.fault.results import VIOLATIONS
from tests.gate.layers import LAYERS
from tests.gate.rotating import ON_TRIAL, _boxes
from tests.kit.histories import PLANTED
from tests.kit.turn import Box
from tests.meta.played import BY_COST, CONTROLS as CONTROLS_PART, MUTANTS as MUTANTS_PART, collected
from tests.simulation.mutants import MUTANTS as SIMULATED
from tests.simulation.spool.mutants import MUTANTS as SPOOL
from tests.unit.mutants import MUTANTS as PLANTED_IN_UNITS
from tests.unit.test_spark_mutants import MUTANTS as SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.meta.played import Tests

CATALOGUE = Path(__file__).with_name("catalogue.txt")

AUDIT = "tests/unit/test_audit_local.py::test_a_planted_anomaly_is_found_by_its_name"
CHECKER = "tests/fault/checking/test_checker.py::test_one_planted_anomaly_is_found_by_its_name"
SIMULATION = "tests/simulation/test_schedules.py::test_a_broken_worker_is_caught_by_its_class"
TASKS = "tests/unit/test_spark_mutants.py::test_a_broken_driver_or_task_is_caught"
UNIT = "tests/unit/test_mutants.py::test_a_planted_mistake_is_noticed"
DISK = "tests/simulation/test_schedules.py::test_a_spool_that_is_broken_on_purpose_is_found_out"
ELSE = "_and_nothing_else"


def catalogue() -> str:
    kinds: dict[str, Iterable[str]] = {
        "class of the audit": NAMES,
        "class of the checker": VIOLATIONS,
        "control on brokers": [
            f"{_must_show(trial.name, trial.expected)}\t{CONTROLS_PART}" for trial in CONTROLS
        ],
        "invariant": INVARIANTS,
        **_mutants(collected()),
        **_plants(collected()),
        "row of the matrix": [f"{row}\t{collected().of_row(row)}" for row in ROWS],
    }
    return "".join(f"{kind}: {name}\n" for kind, names in kinds.items() for name in names)


def _mutants(tests: Tests) -> dict[str, list[str]]:
    return {
        "mutant in memory": [
            f"{_must_show(each, SIMULATED[each].classes)}\t{tests.of(SIMULATION, each)}"
            for each in SIMULATED
        ],
        "mutant in unit tests": [
            f"{each}\t{tests.of(UNIT, each)}" for each in PLANTED_IN_UNITS if each not in BY_NAME
        ],
        "mutant of Spark in memory": [
            f"{mutant.__name__}\t{tests.of(TASKS, mutant.__name__)}" for mutant in SPARK
        ],
        "mutant of the spool in memory": [
            f"{mutant.__name__}\t{tests.of(DISK, mutant.__name__)}" for mutant in SPOOL
        ],
        "mutant on brokers": [
            f"{_must_show(one.name, one.expected)}\t"
            f"{tests.of(UNIT, one.name) if one.name in PLANTED_IN_UNITS else MUTANTS_PART}"
            for one in REAL
        ],
    }


def _plants(tests: Tests) -> dict[str, list[str]]:
    return {
        "planted for the audit": [
            f"{_must_show(plant.__name__, [name])}\t"
            + tests.of(f"{AUDIT}{ELSE}_is", name, plant.__name__)
            for name, plants in PLANTED.items()
            for plant in plants
        ],
        "planted for the checker": [
            f"{_must_show(plant.__name__, sorted(classes))}\t"
            + tests.of(CHECKER + ELSE, plant.__name__, "")
            for plant, classes in PLANTS
        ],
    }


def _must_show(name: str, classes: Sequence[str]) -> str:
    return f"{name}: {', '.join(classes) or 'nothing'}"


def test_nothing_that_shows_that_tests_can_fail_has_vanished():
    assert catalogue() == CATALOGUE.read_text()


def test_every_layer_of_the_catalogue_is_one_that_make_test_or_make_deep_plays():
    parts = {*LAYERS, *ON_TRIAL, *(part.name for box in _boxes() for part in box.fill(1.0))}
    assert set(BY_COST) <= parts - {"alone"}
    layers = [line.partition("\t")[2] for line in CATALOGUE.read_text().splitlines()]
    assert set(layers) <= {"", *BY_COST}


@pytest.mark.parametrize(("kind", "every"), [(CONTROLS_PART, CONTROLS), (MUTANTS_PART, REAL)])
def test_a_series_of_commits_plays_every_trial(kind, every):
    (part,) = [part for box in _boxes() for part in box.fill(1.0) if part.name == kind]
    words = part.command[part.command.index("--all") :]
    played = {
        trial.name
        for turn in range(100)
        for trial in chosen(every, parsed(every, [*words, "--turn", str(turn)]), Box())
    }
    assert played == {trial.name for trial in every if not trial.rare}


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue())

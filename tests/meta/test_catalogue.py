"""Everything that shows that the tests can fail: none of it vanishes without a line of a diff.

One table: what is broken or planted, where it is judged, and the classes of which one must show.

``python -m tests.meta.test_catalogue`` writes the catalogue again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hapax.operations.audit.result import NAMES
from tests.fault.checking.checker_anomalies import PLANTS
from tests.fault.controls.plans import CONTROLS
from tests.fault.mutants.plans import MUTANTS as REAL
from tests.fault.reporting.matrix import INVARIANTS, ROWS
from tests.fault.results import VIOLATIONS
from tests.integration.test_audit_histories import PLANTED
from tests.simulation.mutants import MUTANTS as SIMULATED
from tests.simulation.spool.mutants import MUTANTS as SPOOL
from tests.unit.test_spark_mutants import MUTANTS as SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CATALOGUE = Path(__file__).with_name("catalogue.txt")


def catalogue() -> str:
    """Return all of it, one line each."""
    kinds: dict[str, Iterable[str]] = {
        "class of the audit": NAMES,
        "class of the checker": VIOLATIONS,
        "control on brokers": [_must_show(trial.name, trial.expected) for trial in CONTROLS],
        "invariant": INVARIANTS,
        "mutant in memory": [_must_show(each, SIMULATED[each].classes) for each in SIMULATED],
        "mutant of Spark in memory": [mutant.__name__ for mutant in SPARK],
        "mutant of the spool in memory": [mutant.__name__ for mutant in SPOOL],
        "mutant on brokers": [_must_show(trial.name, trial.expected) for trial in REAL],
        "planted for the audit": [
            _must_show(plant.__name__, [name])
            for name, plants in PLANTED.items()
            for plant in plants
        ],
        "planted for the checker": [
            _must_show(plant.__name__, sorted(classes)) for plant, classes in PLANTS
        ],
        "row of the matrix": ROWS,
    }
    return "".join(f"{kind}: {name}\n" for kind, names in kinds.items() for name in names)


def _must_show(name: str, classes: Sequence[str]) -> str:
    return f"{name}: {', '.join(classes) or 'nothing'}"


def test_nothing_that_shows_that_tests_can_fail_has_vanished():
    assert catalogue() == CATALOGUE.read_text()


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue())

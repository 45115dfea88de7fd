"""docs/events.md has a row for every event that is logged, with the levels of the code."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping

from hapax.telemetry.events import Events
from tests.meta.statements import ROOT

LEVELS = ("debug", "info", "warning", "error", "critical")
PAGE = ROOT / "docs/events.md"
UNLOGGED = {
    "brokers_are_away",
    "calls_observed",
    "certificates_seen",
    "log_line_dropped",
    "loop_moved",
    "records_wait",
    "state_measured",
}
"""Names of ``Events`` that only store a fact, or log under another name."""


def logged(source: str) -> dict[str, set[str]]:
    """Return by event the levels at which a module logs it, as far as the calls show them."""
    found: dict[str, set[str]] = defaultdict(set)
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        *_, last = name.split(".")
        of_logger = name == f"self._logger.{last}" and last in LEVELS
        if not of_logger and last not in {"tell", "_tell", "_changed"}:
            continue
        for given in call.args[:2]:
            if isinstance(given, ast.Constant) and "_" in str(given.value):
                found[str(given.value)] |= {last} if of_logger else set()
    return found


def all_logged() -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "service/hapax/telemetry").rglob("*.py")):
        for event, levels in logged(file.read_text()).items():
            found[event] = found.get(event, set()) | levels
    public = {name for name in dir(Events) if not name.startswith("_")}
    return {name: set[str]() for name in public - UNLOGGED} | found


def rows() -> dict[str, set[str]]:
    found = re.findall(r"(?m)^\| `(\w+)` \| ([a-z, ]+) \| .+ \|$", PAGE.read_text())
    assert len(found) == PAGE.read_text().count("\n| `")
    assert len(found) == len(dict(found))
    return {event: set(re.findall(r"\w+", levels)) - {"or"} for event, levels in found}


def test_every_event_that_is_logged_has_a_row_and_every_row_an_event():
    assert sorted(rows()) == sorted(all_logged())


def test_the_levels_are_those_of_the_code():
    listed = rows()
    assert set().union(*listed.values()) <= set(LEVELS)
    assert {event for event, levels in all_logged().items() if not levels <= listed[event]} == set()


def test_an_event_is_found_however_it_is_logged():
    found = logged(
        'self._logger.error("bell_broke")\ntell("bell_rang", by=1)\n'
        'self._tell(level, "bell_heard")\nself._changed("bell_moved", "x_y", 1)\n'
        'other("bell_stolen")\n'
    )
    assert found["bell_broke"] == {"error"}
    assert {"bell_broke", "bell_rang", "bell_heard", "bell_moved"} <= set(found)
    assert "bell_stolen" not in found

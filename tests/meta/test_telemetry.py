"""Nothing in telemetry is there for nobody: events are told, and metrics are moved."""

import ast
import inspect
from pathlib import Path

import pytest

from hapax.telemetry.events import Events
from hapax.telemetry.metrics import rows

SERVICE = Path(__file__).parents[2] / "service/hapax"
TELEMETRY = SERVICE / "telemetry"


def uses(source: str, owners: frozenset[str]) -> set[str]:
    """Return the attributes of the variables and attributes called ``owners`` that are read."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in owners
    }


def used(files: list[Path], *owners: str) -> set[str]:
    texts = [file.read_text() for file in files]
    parsed = [text for text in texts if any(f"{owner}." in text for owner in owners)]
    return set().union(*(uses(text, frozenset(owners)) for text in parsed))


def telling() -> list[Path]:
    return sorted((TELEMETRY / "events").glob("*.py"))


def told() -> set[str]:
    """Return the events that somebody tells: other folders, or one event another."""
    return used(sorted(SERVICE.rglob("*.py")), "events", "_events") | used(telling(), "self")


def test_every_event_is_told_by_somebody():
    methods = {name for name, _ in inspect.getmembers(Events, inspect.isfunction)}
    events = {name for name in methods if not name.startswith("_")}
    assert events
    assert events - told() == set()


def test_every_metric_is_moved_by_an_event():
    moved = used(telling(), "metrics", "_metrics")
    assert [row.attribute for row in rows() if row.attribute not in moved] == []


@pytest.mark.parametrize(
    "source",
    ["self._events.rang(1)", "shared.events.rang()", "Door(on_ring=events.rang)", "events.rang"],
)
def test_a_use_is_found_however_it_is_written(source):
    assert "rang" in uses(source, frozenset({"events", "_events"}))


@pytest.mark.parametrize("source", ["def rang(self): ...", '"events.rang"', "bells.rang()"])
def test_what_only_has_the_name_is_no_use(source):
    assert "rang" not in uses(source, frozenset({"events", "_events"}))

"""The dashboard: its expressions parse, and all that they name exists."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy.expressions import complaints, known_metrics, metrics_in
from tests.deploy.test_monitoring_rules import MONITORING, promtool, run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["promtool"]  # a fixture

DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
GRAFANA = {"$__rate_interval": "5m", "$job": "hapax", "$instance": ".+"}


def expressions(panel: dict[str, Any]) -> list[str]:
    """Return a panel's expressions with Grafana's variables filled in."""
    found = [target["expr"] for target in panel["targets"]]
    return [_filled(expression) for expression in found]


def _filled(expression: str) -> str:
    for name, value in GRAFANA.items():
        expression = expression.replace(name, value)
    return expression


def everywhere() -> Iterator[tuple[str, str]]:
    """Return all expressions, each with its place."""
    for panel in PANELS:
        for expression in expressions(panel):
            yield panel["title"], expression
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], _filled(annotation["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            question = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert question
            yield variable["name"], _filled(f"group by ({question[2]}) ({question[1]})")


@pytest.mark.deep
def test_the_expressions_are_sound(promtool, tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, (_title, expression) in enumerate(everywhere())
    ]
    (tmp_path / "panels.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]})
    )
    checked = run(promtool, "check", "rules", tmp_path / "panels.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_panels_name_metrics_labels_and_values_that_exist():
    known = known_metrics()
    for panel in PANELS:
        assert expressions(panel), panel
        for target, expression in zip(panel["targets"], expressions(panel), strict=True):
            assert metrics_in(expression), expression
            assert list(complaints(expression, known)) == []
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            labels = {label for name in metrics_in(expression) for label in known[name].labels}
            assert shown <= labels | {"job", "instance"}, expression
            # An aggregation leaves only the labels that it names.
            for kept in re.findall(r"\b(?:sum|max|min|count) by \(([^)]*)\)", expression):
                assert shown <= set(re.findall(r"\w+", kept)), expression


def test_what_annotations_and_variables_name_exists():
    known = known_metrics()
    titles = {panel["title"] for panel in PANELS}
    others = [expression for title, expression in everywhere() if title not in titles]
    assert len(others) == 3
    assert [found for expression in others for found in complaints(expression, known)] == []


def test_there_is_a_row_for_each_side_of_a_pipeline():
    rows = [one["title"] for one in DASHBOARD["panels"] if one["type"] == "row"]
    assert rows == [
        *("Health", "Throughput", "Latency", "Transactions", "Claims", "Partitions", "Spark")
    ]


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _y in cells) < 24
        assert not cells & taken
        taken |= cells


def test_every_metric_has_its_place():
    shown = set().union(*(metrics_in(expression) for _title, expression in everywhere()))
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    own = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in known_metrics()
        if name.startswith("hapax_")
    }
    # What a client's own lines could not say has no place on a board.
    assert own - bare == {"hapax_telemetry_failures_total"}

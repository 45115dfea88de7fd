"""What a PromQL expression names: metrics, labels and their values. And which of them exist.

promtool checks the grammar, so names can be picked out by simple patterns.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from hapax.telemetry.metrics import Metrics, rows

# What Prometheus adds to each series of a target, and PodMonitors do.
TARGET_LABELS = {"job", "instance", "namespace", "pod"}
WORDS = {
    *("and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"),
    *("offset", "bool", "inf", "Inf"),
}
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
CLAUSE = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(\s*\{[^}]*\})?(?!\w|\s*\()")


class Known(NamedTuple):
    """A metric: its labels, and of some labels all values."""

    labels: set[str]
    values: dict[str, set[str]]


def known_metrics() -> dict[str, Known]:
    """Return every series that a worker exposes, and those that Prometheus itself makes."""
    known = {"up": Known(set(), {}), "ALERTS": Known({"alertname", "alertstate", "severity"}, {})}
    for family in Metrics().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        for suffix in suffixes.get(family.type, [""]):
            known[family.name + suffix] = Known({"le"} if suffix == "_bucket" else set(), {})
    for row in rows():
        for name, metric in known.items():
            if name == row.name or re.fullmatch(rf"{row.name}_(bucket|sum|count)", name):
                metric.labels.update(label.name for label in row.labels)
                metric.values.update(
                    {label.name: set(label.values) for label in row.labels if label.values}
                )
    return known


def metrics_in(expression: str) -> set[str]:
    return {name for name, _matchers in _selectors(expression)}


def complaints(expression: str, known: dict[str, Known]) -> Iterator[str]:
    labels = set(TARGET_LABELS)
    for name, matchers in _selectors(expression):
        if name not in known:
            yield f"there is no metric {name}"
            continue
        metric = known[name]
        labels |= metric.labels
        for label, operator, value in MATCHER.findall(matchers):
            if label not in metric.labels | TARGET_LABELS:
                yield f"{name} has no label {label}"
            elif "~" not in operator and value not in metric.values.get(label, {value}):
                yield f"{label} of {name} is never {value}"
    for clause in CLAUSE.findall(expression):
        yield from (
            f"no metric here has a label {label}"
            for label in re.findall(r"\w+", clause)
            if label not in labels
        )


def _selectors(expression: str) -> list[tuple[str, str]]:
    bare = CLAUSE.sub(" ", re.sub(r"#.*", "", expression))
    bare = re.sub(r"\[[^]]*\]|\boffset\s+\w+", " ", bare)
    return [(name, matchers) for name, matchers in NAME.findall(bare) if name not in WORDS]

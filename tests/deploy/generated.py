"""Pages and files of deploy/ that are made from code: ``make generate`` writes them."""

import ast
import copy
import inspect
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, cast

from prometheus_client import Counter, Gauge, Histogram

import hapax
from hapax import context, publish, spark, testing
from hapax.commands.config import markdown
from hapax.core.errors import ConfigurationError, DeadLetterLimitError, ExitCode, HapaxError
from hapax.dev import FILES
from hapax.engines.membership import Opening
from hapax.processing.dead_letters import DeadLetter
from hapax.settings import VARIABLES
from hapax.telemetry.metrics import Label, Row, rows
from hapax.testing import pytest_plugin
from hapax.wiring import LIVENESS_MARGIN_S
from hapax.wiring.builders import FAREWELL_S
from tests.deploy import tools
from tests.deploy.manifests import CHART, DEPLOY, KUSTOMIZE
from tests.deploy.values_schema import CLOSED, OPEN, THRESHOLDS, names, schema
from tests.kit.commands import output_of

DOCS: Final = DEPLOY.parent / "docs"
ALERTS: Final = DEPLOY / "monitoring" / "alerts.yaml"
DASHBOARD: Final = DEPLOY / "monitoring" / "dashboard.json"
README: Final = CHART / "README.md"
CLUSTER: Final = KUSTOMIZE / "components/cluster"
# What grace period, probes, the pace of autoscaling and the memory limit are computed from.
FOLLOWED: Final = (
    "HAPAX_TRANSACTION__TIMEOUT",
    "HAPAX_GROUP__SESSION_TIMEOUT",
    "HAPAX_GROUP__MAX_POLL_INTERVAL",
    "HAPAX_SHUTDOWN__TIMEOUT",
    "HAPAX_WATCHDOG__TIMEOUT",
    "HAPAX_CALL__OUTPUT_BYTES_MAX",
)
MARGINS: Final = {"liveness": LIVENESS_MARGIN_S, "closing": FAREWELL_S, "start": Opening.TIMEOUT_S}

_DEFAULTS: Final = (
    "# Made from the code by make generate; a test compares. Seconds, unless a unit is given."
)
_METRICS: Final = """\
# Metrics

Written from the table in `service/hapax/telemetry/metrics.py`; a test compares.

Every process exposes these on `/metrics`: Prometheus text or, when asked, OpenMetrics.
The standard `process_…` and `python_gc_…` metrics are exposed as well.
A label lists its values, or has at most so many, beyond which they count as `other`: {limits}.
"""
_RULE: Final = """\
# Made from deploy/monitoring/alerts.yaml by make generate; a test compares.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: hapax
  labels:
    app.kubernetes.io/name: hapax
    app.kubernetes.io/instance: hapax
spec:
"""


def files() -> dict[Path, str]:
    alerts = ALERTS.read_text()
    return {
        DOCS / "settings.md": markdown(),
        DOCS / "metrics.md": metrics_reference(),
        DOCS / "api.md": api_page(),
        CHART / "values.schema.json": json.dumps(schema(), indent=1).replace(CLOSED, OPEN) + "\n",
        CHART / "names.json": _lines(names()),
        CHART / "alerts.yaml": _tokens(alerts),
        CHART / "dashboard.json": DASHBOARD.read_text(),
        CHART / "settings.yaml": _defaults(),
        CLUSTER / "prometheusrule.yaml": _RULE + textwrap.indent(alerts, "  "),
        CLUSTER / "hapax.json": DASHBOARD.read_text(),
        FILES / "monitoring/alerts.yaml.tmpl": alerts,
        FILES / "monitoring/dashboard.json.tmpl": DASHBOARD.read_text(),
    }


def chart_readme() -> str | None:
    """Return what helm-docs makes of the comments in values.yaml; nothing where there is no Go."""
    if program := tools.helm_docs():
        words = ["--dry-run", "--log-level", "error", "--sort-values-order", "file"]
        return output_of([program, *words, "--chart-search-root", CHART])
    return None


def _lines(names: dict[str, Any]) -> str:
    """Return JSON with a line for each name of the second level."""
    parts = []
    for key, level in names.items():
        lines = [f" {json.dumps(name)}: {json.dumps(below)}" for name, below in level.items()]
        parts.append(f"{json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}\n"


def _tokens(alerts: str) -> str:
    """Return the rules with a name where each threshold was: the chart puts a number there."""
    for name, expression in THRESHOLDS.items():
        found = re.compile(re.escape(expression).replace("@", r"([\d.]+)"))
        [(place, _number)] = [(one[0], one[1]) for one in found.finditer(alerts)]
        alerts = alerts.replace(place, expression.replace("@", f"@{name}@"))
    return alerts


def _defaults() -> str:
    """Return what templates compute with: defaults of durations, and margins of the code."""
    defaults = {each.name: each.default for each in VARIABLES}
    lines = [f"  {name}: {defaults[name]}" for name in FOLLOWED]
    margins = [f"  {name}: {seconds:g}" for name, seconds in MARGINS.items()]
    return "\n".join([_DEFAULTS, "defaults:", *lines, "margins:", *margins, ""])


_HEAD: Final = """\
# API

Public names, from their docstrings. Other modules are internal: they may change in any version.
Further: `HapaxSink`, `connector_jars` ([Spark](dataframes.md)); `Counter`, `Histogram`, `log`,
`instance` ([transforms](transforms.md)); of the [publisher](publish.md#stops) `RecordRefusedError`,
`SpoolDamagedError`, `SpoolDisagreesError`, `SpoolFailedError`, `SpoolFullError`, `SpoolMovedError`,
`SpoolOwnedError`.
"""
LINE_MAX: Final = 88
SECTIONS: Final[dict[str, list[Any]]] = {
    "hapax: what a transform needs": [
        *(hapax.Record, hapax.Output, hapax.State, hapax.Poison, hapax.RetryLater),
        hapax.Coordinates,
    ],
    "hapax.context: what a transform logs and counts": [context.counter, context.histogram],
    "hapax.core.errors: what a test may meet": [
        HapaxError,
        ConfigurationError,
        DeadLetterLimitError,
        ExitCode,
    ],
    "hapax.testing: records through a pipeline in memory": [
        testing.Pipeline,
        testing.Processed,
        DeadLetter,
        inspect.unwrap(pytest_plugin.hapax_pipeline),
    ],
    "hapax.publish: records from outside, without loss": [
        publish.Publisher,
        publish.PublisherOptions,
        publish.Receipt,
    ],
    "hapax.spark: the sink of PySpark jobs": [
        spark.register,
        spark.refresh_marker,
        spark.set_marker,
    ],
}


def api_page() -> str:
    parts = [_HEAD]
    for title, members in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [_entry(member) for member in members]
    return "\n".join(parts)


def _entry(member: Any) -> str:
    lines = [f"### {member.__name__}\n"]
    tree = _tree(member)
    if signature := _signature(tree, member):
        lines.append(f"```py\n{signature}\n```\n")
    lines.append(f"```text\n{_docstring(member.__doc__)}\n```\n")
    if isinstance(tree, ast.ClassDef):
        lines += [f"{line}\n" for line in _members(tree, member)]
    return "\n".join(lines)


def _tree(member: Any) -> ast.ClassDef | ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(member))).body[0]
    assert isinstance(tree, ast.ClassDef | ast.FunctionDef)
    return tree


def _signature(tree: ast.ClassDef | ast.FunctionDef, member: Any) -> str:
    """Return how it is called; nothing for errors and enumerations, which users only meet."""
    if isinstance(tree, ast.FunctionDef):
        return _call(tree.name, tree)
    met = issubclass(member, BaseException | IntEnum) and member is not hapax.RetryLater
    if met or member is hapax.State:
        return ""
    for each in tree.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _call(tree.name, each)
    own = [base for base in reversed(member.__mro__) if base.__module__.startswith("hapax.")]
    bodies = [each for base in own for each in cast("ast.ClassDef", _tree(base)).body]
    fields = [ast.unparse(each) for each in bodies if isinstance(each, ast.AnnAssign)]
    return f"class {tree.name}:\n" + textwrap.indent("\n".join(fields), "    ")


def _call(name: str, tree: ast.FunctionDef) -> str:
    """Return name, arguments and result; one argument a line where one line would be long."""
    arguments = copy.deepcopy(tree.args)
    arguments.args = [each for each in arguments.args if each.arg not in {"self", "cls"}]
    result = f" -> {ast.unparse(tree.returns)}" if tree.returns else ""
    if name[0].isupper():
        result = ""
    text = f"{name}({ast.unparse(arguments)}){result}"
    if len(text) <= LINE_MAX:
        return text
    # The black style of the project, by its own formatter, is not worth a process: a comma at the
    # depth of the arguments ends a line.
    depth, lines, start = 0, [], len(name) + 1
    for at, letter in enumerate(text[: len(text) - len(result) - 1]):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 1:
            lines.append(text[start:at].strip())
            start = at + 1
    lines.append(text[start : len(text) - len(result) - 1].strip())
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){result}"


def _members(tree: ast.ClassDef, member: type) -> Iterator[str]:
    """Yield a line for each public method, and for each member of an enumeration."""
    if issubclass(member, IntEnum):
        yield "\n".join(f"- {one.value}: `{one.name}`" for one in member)
        return
    for each in tree.body:
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
            continue
        if ast.get_docstring(each) is None or (member, each.name) == (hapax.State, "end"):
            continue  # overloads, and what ends a call
        plain = any(ast.unparse(one) == "property" for one in each.decorator_list)
        call = "" if plain else f"```py\n{_call(each.name, each)}\n```\n\n"
        text = _docstring(ast.get_docstring(each))
        yield f"#### {tree.name}.{each.name}\n\n{call}```text\n{text}\n```"


def _docstring(text: str | None) -> str:
    return inspect.cleandoc(text or "").replace("``", "`")


def metrics_reference() -> str:
    kinds = (("Counters", Counter), ("Histograms", Histogram), ("Gauges", Gauge))
    parts = [_METRICS.format(limits=_limits())]
    for title, kind in kinds:
        parts.append(f"\n## {title}\n\n| metric | labels | meaning |\n|---|---|---|\n")
        parts.extend(_line(row) for row in rows() if row.kind is kind)
    parts.append("\n## Buckets\n\n| upper bounds | histograms |\n|---|---|\n")
    bounds: dict[str, list[str]] = defaultdict(list)
    for row in rows():
        if row.buckets:
            bounds[", ".join(f"{bound:g}" for bound in row.buckets)].append(f"`{row.name}`")
    parts.extend(f"| {each} | {', '.join(names)} |\n" for each, names in bounds.items())
    return "".join(parts)


def _limits() -> str:
    """Return the labels that list no values, each with the most values that it may have."""
    labels = {label.name: label.limit for row in rows() for label in row.labels if label.limit}
    return ", ".join(f"`{name}` {limit:,}" for name, limit in sorted(labels.items()))


def _line(row: Row[Any]) -> str:
    labels = ", ".join(_label(label) for label in row.labels)
    return f"| `{row.name}` | {labels} | {row.meaning} |\n"


def _label(label: Label) -> str:
    if label.values:
        return f"`{label.name}`: {', '.join(f'`{value}`' for value in label.values)}"
    return f"`{label.name}`"


if __name__ == "__main__":
    for _path, _content in files().items():
        _path.write_text(_content)
    if _readme := chart_readme():
        README.write_text(_readme)

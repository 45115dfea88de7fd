"""Pages and files of deploy/ that are made from code: ``make generate`` writes them."""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING, Final

from deploy.licences import page as licences_page
from hapax.engines.producer_startup import Opening
from hapax.settings import VARIABLES
from hapax.settings.reference import markdown
from hapax.telemetry.reference import metrics_reference
from hapax.wiring import LIVENESS_MARGIN_S
from hapax.wiring.builders import FAREWELL_S
from tests.deploy.api_page import api_page
from tests.deploy.manifests import CHART, DEPLOY, KUSTOMIZE
from tests.deploy.values_schema import THRESHOLDS, schema

if TYPE_CHECKING:
    from pathlib import Path

DOCS: Final = DEPLOY.parent / "docs"
ALERTS: Final = DEPLOY / "monitoring" / "alerts.yaml"
DASHBOARD: Final = DEPLOY / "monitoring" / "dashboard.json"
CLUSTER: Final = KUSTOMIZE / "components/cluster"
# What grace period, probes and the pace of autoscaling are computed from.
DURATIONS: Final = (
    "HAPAX_TRANSACTION__TIMEOUT",
    "HAPAX_GROUP__SESSION_TIMEOUT",
    "HAPAX_GROUP__MAX_POLL_INTERVAL",
    "HAPAX_SHUTDOWN__TIMEOUT",
    "HAPAX_WATCHDOG__TIMEOUT",
)
MARGINS: Final = {
    "liveness": LIVENESS_MARGIN_S,
    "closing": FAREWELL_S,
    "start": Opening.TIMEOUT_S,
}

_DEFAULTS: Final = (
    "# Made from the code by make generate; a test compares. Seconds, unless a unit is given."
)
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
    """Return each file with what it should hold."""
    alerts = ALERTS.read_text()
    return {
        DOCS / "settings.md": markdown(),
        DOCS / "metrics.md": metrics_reference(),
        DOCS / "api.md": api_page(),
        DOCS / "licences.md": licences_page(),
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        CHART / "alerts.yaml": _tokens(alerts),
        CHART / "dashboard.json": DASHBOARD.read_text(),
        CHART / "settings.yaml": _defaults(),
        CLUSTER / "prometheusrule.yaml": _RULE + textwrap.indent(alerts, "  "),
        CLUSTER / "hapax.json": DASHBOARD.read_text(),
    }


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
    lines = [f"  {name}: {defaults[name]}" for name in DURATIONS]
    margins = [f"  {name}: {seconds:g}" for name, seconds in MARGINS.items()]
    return "\n".join([_DEFAULTS, "defaults:", *lines, "margins:", *margins, ""])


if __name__ == "__main__":
    for _path, _content in files().items():
        _path.write_text(_content)

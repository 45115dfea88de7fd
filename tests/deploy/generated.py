"""Pages and files of deploy/ that are made from code: ``make generate`` writes them."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any, Final

from hapax.settings import VARIABLES
from hapax.settings.reference import markdown
from hapax.telemetry.reference import metrics_reference
from tests.deploy.manifests import CHART, DEPLOY, KUSTOMIZE

if TYPE_CHECKING:
    from pathlib import Path

DOCS: Final = DEPLOY.parent / "docs"
ALERTS: Final = DEPLOY / "monitoring" / "alerts.yaml"
# The manifests themselves say these: one port for probes, service and scrapes; one name per pod.
OWNED: Final = frozenset({"HAPAX_INSTANCE", "HAPAX_TELEMETRY__PORT", "HAPAX_TELEMETRY__ADDRESS"})

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


def settable() -> dict[str, str]:
    """Return what may stand in a ConfigMap, with its meaning: no secrets, but their files."""
    return {
        name: variable.meaning
        for variable in VARIABLES
        if variable.name not in OWNED
        for name in (None if variable.form.secret else variable.name, variable.file_name)
        if name is not None
    }


def files() -> dict[Path, str]:
    """Return each file with what it should hold."""
    alerts = ALERTS.read_text()
    return {
        DOCS / "settings.md": markdown(),
        DOCS / "metrics.md": metrics_reference(),
        CHART / "values.schema.json": json.dumps(_schema(), indent=2) + "\n",
        CHART / "alerts.yaml": alerts,
        KUSTOMIZE / "components/monitoring/prometheusrule.yaml": _RULE
        + textwrap.indent(alerts, "  "),
    }


def _schema() -> dict[str, Any]:
    """Return what Helm checks before it installs anything."""
    text = {"type": ["string", "number", "boolean"]}
    settings = {
        "type": "object",
        "required": [variable.name for variable in VARIABLES if _required(variable.default)],
        "properties": {
            name: {**text, "description": meaning} for name, meaning in settable().items()
        },
        "additionalProperties": False,
    }
    dynamic = {"properties": {"HAPAX_GROUP__MEMBERSHIP": {"const": "dynamic"}}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "kind": {"enum": ["StatefulSet", "Deployment"]},
            "replicas": {"type": "integer", "minimum": 0},
            "settings": settings,
        },
        # A static member that never comes back under its name would only delay the others.
        "if": {"properties": {"kind": {"const": "Deployment"}}},
        "then": {"properties": {"settings": {**dynamic, "required": ["HAPAX_GROUP__MEMBERSHIP"]}}},
    }


def _required(default: str | None) -> bool:
    return default is None


if __name__ == "__main__":
    for _path, _content in files().items():
        _path.write_text(_content)

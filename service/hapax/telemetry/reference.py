"""The page of metrics, printed from the table: docs/metrics.md is this text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge, Histogram

from hapax.telemetry.metric_defs import OTHER
from hapax.telemetry.metrics import rows

if TYPE_CHECKING:
    from hapax.telemetry.metric_defs import Label, Row

_HEAD = f"""\
# Metrics

Written from the table in `service/hapax/telemetry/metrics.py`; a test compares.

Every process exposes these on `/metrics`: Prometheus text or, when asked, OpenMetrics.
Seconds and bytes are base units.
A label lists its values, or it has a limit beyond which values count as `{OTHER}`.
The standard `process_…` and `python_gc_…` metrics are exposed as well.
The same port has the [status page](status.md); spans go elsewhere ([tracing](tracing.md)).
"""


def metrics_reference() -> str:
    """Return the page, in Markdown."""
    kinds = (("Counters", Counter), ("Histograms", Histogram), ("Gauges", Gauge))
    parts = [_HEAD]
    for title, kind in kinds:
        parts.append(f"\n## {title}\n\n| metric | labels | meaning |\n|---|---|---|\n")
        parts.extend(_line(row) for row in rows() if row.kind is kind)
    parts.append("\n## Buckets\n\n| histogram | upper bounds |\n|---|---|\n")
    parts.extend(
        f"| `{row.name}` | {' · '.join(f'{bound:g}' for bound in row.buckets)} |\n"
        for row in rows()
        if row.buckets
    )
    return "".join(parts)


def _line(row: Row[Any]) -> str:
    labels = "; ".join(_label(label) for label in row.labels)
    return f"| `{row.name}` | {labels} | {row.meaning} |\n"


def _label(label: Label) -> str:
    if label.values:
        return f"`{label.name}`: {', '.join(f'`{value}`' for value in label.values)}"
    return f"`{label.name}` (at most {label.limit})"

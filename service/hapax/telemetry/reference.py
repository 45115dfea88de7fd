"""The page of metrics, printed from the table: docs/metrics.md is this text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

RENAMED: Final = {
    "hapax_dedup_store_emptied_total": "hapax_dedup_claim_losses_total",
    "hapax_ends_committed_total": "hapax_idle_offsets_committed_total",
    "hapax_fences_on_doubt_total": "hapax_in_doubt_fences_total",
    "hapax_partitions_orphaned_total": "hapax_partitions_unowned_total",
    "hapax_partitions_suspected_total": "hapax_partitions_isolated_total",
    "hapax_records_condemned_total": "hapax_crashing_records_total",
    "hapax_records_late_total": "hapax_late_rows_dropped_total",
    'hapax_records_skipped_total{reason="repeated"}': (
        'hapax_records_skipped_total{reason="redelivered"}'
    ),
}


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
    parts.append("\n## Renamed before 0.1.0\n\n| metric before | now |\n|---|---|\n")
    parts.extend(f"| `{old}` | `{new}` |\n" for old, new in RENAMED.items())
    return "".join(parts)


def _line(row: Row[Any]) -> str:
    labels = "; ".join(_label(label) for label in row.labels)
    return f"| `{row.name}` | {labels} | {row.meaning} |\n"


def _label(label: Label) -> str:
    if label.values:
        return f"`{label.name}`: {', '.join(f'`{value}`' for value in label.values)}"
    return f"`{label.name}` (at most {label.limit})"

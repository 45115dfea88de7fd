"""Rows of the table of metrics about other groups: what they have not read."""

from __future__ import annotations

from prometheus_client import Gauge

from hapax.telemetry.metric_defs import Label, Row

_LABELS = (Label("group", limit=100), Label("topic", limit=1_000), Label("partition", limit=10_000))


class ReaderMetrics:
    """Part of ``Metrics``."""

    reader_lag_records = Row(
        Gauge,
        "Committed records that a group of HAPAX_TELEMETRY__READERS has not read, at least: "
        "without markers of transactions, aborted records and an open tail. Of the worker that has "
        "partition 0 of the first input topic; no series while the group cannot be queried.",
        *_LABELS,
    )
    reader_lag_records_max = Row(
        Gauge,
        "The same at most: more where the group has no valid offset, so that its client decides "
        "where it begins, and while a long backlog is still being counted.",
        *_LABELS,
    )
    reader_lag_open = Row(
        Gauge,
        "Offsets that such a group has not read and that wait for open transactions.",
        *_LABELS,
    )

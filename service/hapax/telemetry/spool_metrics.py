"""The metrics of a spool, for the registry of the process that publishes (docs/publish.md)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hapax.telemetry.metric_defs import Row

_SYNCS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


class SpoolMetrics:
    """One publisher's metrics; ``registry`` is a collector that another registry takes."""

    spool_records_accepted = Row(Counter, "Records accepted: they are on disk.")
    spool_records_published = Row(Counter, "Records published: they are in Kafka.")
    spool_records_waiting = Row(Gauge, "Accepted records that are not known to be in Kafka.")
    spool_bytes = Row(Gauge, "Bytes that the spool's files take.")
    spool_waiting_seconds = Row(
        Gauge, "For how long accepted records have waited without any transaction; 0: none wait."
    )
    spool_sync_seconds = Row(
        Histogram, "Seconds of a round of the spool: one write and one sync.", buckets=_SYNCS
    )
    spool_full = Row(Gauge, "1 while a call waits for room in the spool, or was refused for it.")

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for row in [each for each in vars(type(self)).values() if isinstance(each, Row)]:
            setattr(self, row.attribute, row.build(self.registry))

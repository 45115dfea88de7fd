"""What the service reports: one fact becomes one log line and one movement of a metric.

``events`` is the only name that engines call. Nothing here knows Kafka, Redis or the core's steps;
it is called with plain values.
"""

"""What the service tells: one fact becomes one log line and one movement of a metric.

events        Events, the only name that engines call; its parts are the ``*_events`` files
narrator      what all events share: logger, metrics, health, limits on repeated lines
metrics       the one table of metrics; families builds it, reference prints it
logs          structlog to JSON lines or to a terminal
health        what the probes answer
http          one port for metrics, probes and status; routes knows the paths
status        what the page and /status.json say; page and page_style make HTML of it
troubles      the last warnings and errors
tracing       one span for each transaction; tracing_sdk knows where spans go
repeats       what is told in full, and what is only counted

Nothing here knows Kafka, Redis or the core's steps; it is told plain values.
"""

"""What the service reports: one fact becomes one log line and one movement of a metric.

events            Events, the only name that engines call; a file for each subject
metrics           the one table of metrics, and its page; metric_defs builds it
health            what the probes answer
http              one port for metrics, probes and the status page
logs              structlog to JSON lines or to a terminal; recent_errors keeps the last
line_queue        where lines wait for whoever reads them, or are dropped
log_rate_limiter  what is logged in full, and what is only counted
tracing           one span for each transaction; tracing_sdk knows where spans go

Nothing here knows Kafka, Redis or the core's steps; it is called with plain values.
"""

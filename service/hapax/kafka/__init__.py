"""Kafka: the only talkers to it. Errors leave here translated; nothing here logs.

consume     the Source port: records and positions, the group, who owns which partition
produce     the Transaction port: outputs and offsets in one transaction; micro-batches, replays
read        reading alongside the pipeline: ranges of logs, offsets, lag; joins nothing
admin       what commands and the doctor query: cluster, group, rights, certificates
properties  settings to client properties
native      the native record path: whether this process takes it
errors      what happens next, by error code and call
connection  the way to the brokers, and why none lets us in
client_log  what the consumer's own lines report: broken connections, ids of cluster and topics

Called by wiring and operations, and through ports by core and engines. Knows the core alone.
"""

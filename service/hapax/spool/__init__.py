"""Records on disk in front of Kafka: accepted when they are durable, in order, none lost silently.

Knows no Kafka. docs/decisions/spool.md has the reasons.
"""

"""Records on disk in front of Kafka: accepted when they are durable, in order, none lost silently.

errors        what can be wrong with a spool
folder        one owner of a folder, and the few calls of a file system that are used
spool         the records, in SQLite, and up to where they were acknowledged
group_commit  many callers, one transaction

Knows no Kafka. docs/decisions/spool.md has the reasons.
"""

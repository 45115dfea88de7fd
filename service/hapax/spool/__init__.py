"""Records on disk in front of Kafka: accepted when they are durable, in order, none lost silently.

errors        what can be wrong with a spool
disk          the few calls of a file system that are used, so that a model can take its place
frames        bytes: frames of records, slots that say how far a file is durable
segment       one file
recovery      what a folder holds after a crash: what is cut, what is refused
log           all files: append, make durable, read, delete what is drained
group_commit  many callers, one fdatasync
spool_id      whose folder it is
lock          one owner

Knows no Kafka. docs/decisions/spool.md has the reasons.
"""

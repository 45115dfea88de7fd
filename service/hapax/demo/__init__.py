"""``hapax demo``: real processes, real faults, and an audit that counts what came out.

story     the order of things: publish, break, drain, audit
stage     servers, topics, processes, and a way to wait for them
faults    the right moment for a kill; kills and freezes of two workers
spark     Spark in place of the workers: its processes, its kills, its hand-overs
orders    the business rule; what HAPAX_TRANSFORM names
traffic   what is published, from a seed, and how
ordinary  the loop people write, for comparison, as a process of its own
result    both audits side by side, for people and for machines
screen    what is shown while it runs

The service is used only as a user does: by its environment, its topics, and its audit.
"""

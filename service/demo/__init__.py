"""``hapax demo``: real processes, real faults, and a judge that counts what came out.

story      the order of things: publish, break, drain, judge
orders     the business rule of the demo; what HAPAX_TRANSFORM names
traffic    what is published, from a seed: repeats, poison, transactions that are aborted
publisher  publishes it at a steady pace while processes die
child      a process that is killed, frozen and restarted, with its log
ordinary   the loop people write, for comparison, as a process of its own
readings   what Kafka says: lag, committed offsets, and topics read back
judge      pure: input and output to lost, doubled, out of order
screen     what is shown while it runs

Uses the sandbox and plain clients, and the service only as a user does: by its environment.
"""

"""``hapax demo``: real processes, real faults, and a judge that counts what came out.

story      the order of things: publish, break, drain, judge
engines    which engine is broken: two workers, or Spark and a worker that take over in turn
stage      servers, topics, processes; spark_stage the same with Spark, cluster_stage with a cluster
rounds     what is done to workers, in its order; spark_rounds to Spark, cluster_rounds to a cluster
faults     kills and freezes of workers; spark_faults kills and hand-overs of Spark
moments    the right moment for a kill: frozen first, and checked
damage     what was done, in figures and sentences
orders     the business rule of the demo; what HAPAX_TRANSFORM names
traffic    what is published, from a seed: repeats, poison, transactions that are aborted
publisher  publishes it at a steady pace while processes die
child      a process that is killed, frozen and restarted, with its log; application: all of Spark
processes  the processes of one session, read from /proc
ordinary   the loop people write, for comparison, as a process of its own
readings   what Kafka reports: lag, committed offsets, open transactions, topics read back
judge      pure: input and output to lost, doubled, out of order
table      the result, for people and for machines
screen     what is shown while it runs

Uses the sandbox and plain clients, and the service only as a user does: by its environment.
"""

"""Engines: who brings records and owns progress. They know the ports of the core, no client.

worker        one process, one member, one batch at a time
batch_runner  takes and runs batches; under a backlog the next one's claim travels meanwhile
recovery      reactions to what failed
lifecycle     when to exit, and by when
watchdog      calls that never return
idle_offsets  ends of idle partitions, and what bounds a run
bounded_run   how a bounded run ends
membership    what rebalances bring
hold          intake paused by an operator
preflight     what must be there before the first record is read
producer_startup  the producer's registration, alongside everything else that a start waits for
lag_monitor   offsets of the logs, and lag of readers, now and then
suspects      records that may kill their process
isolated_*    calls of the transform in a process that may die
import_path   where a child process finds business code
heap          freed memory that the C library keeps for the next batch
spark         the same promise on Spark, a room of its own

Called by wiring.
"""

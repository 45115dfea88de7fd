"""The fault matrix: every row, what strikes, and what must hold beyond the invariants.

A row is covered when a strike of a run or a test names it. ``NOT_BUILT`` gives the reason for rows
that nothing here can strike; a row that has neither is a gap, and the report fails on it.
"""

from typing import Literal, NamedTuple

Moment = Literal["not delivered", "answer lost", "answer delivered"]

INVARIANTS = {
    "I1": "no record is lost",
    "I2": "no record has its effect twice",
    "I3": "order per input partition and key holds in each output partition",
    "I4": "nothing of an aborted or torn transaction is visible under read_committed",
    "I5": "committed offsets and effects agree",
    "I6": "no partition is blocked beyond the transaction timeout and a bound",
    "I7": "no producer in an undefined state is used",
    "I8": "it recovers by itself, or exits with a code",
}


class Row(NamedTuple):
    fault: str
    must_hold: str = ""


REQUESTS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
DELIVERIES: tuple[Moment, ...] = ("not delivered", "answer lost", "answer delivered")
_AGAIN = "the old transaction is aborted or was committed; read again from the committed offset"
_CLAIM = "a claim with our own coordinates is processed, not dropped"

MATRIX: dict[str, Row] = {
    **{
        f"P{number}": Row(f"kill -9 at {request}, {delivery}", _AGAIN)
        for number, (request, delivery) in enumerate(
            ((request, delivery) for request in REQUESTS for delivery in DELIVERIES), start=1
        )
    },
    "P19": Row("kill -9 before the claim", _CLAIM),
    "P20": Row("kill -9 after the claim", _CLAIM),
    "P21": Row("kill -9 after produce", _CLAIM),
    "P22": Row("kill -9 after the commit, before bookkeeping", _CLAIM),
    "P23": Row("kill -9 every few seconds", "progress; open transactions bounded"),
    "Z1": Row("frozen past the session; partitions move; thawed", "the zombie's commit fails"),
    "Z2": Row("frozen past the transaction, within the session", "rebuild, rewind, continue"),
    "Z3": Row("frozen between commit and its answer", "the same commit again, or rebuild"),
    "D1": Row("one transactional id twice", "the loser exits with a reason; no ping-pong"),
    "B1": Row("kill -9 of leaders and coordinators", "progress after the election"),
    "B2": Row("leaders and coordinators frozen", "fence on doubt"),
    "B3": Row("leaders moved, replicas reassigned, rolling restart", "no restart of a worker"),
    "B4": Row("below min.insync.replicas", "waits; readiness false, liveness true"),
    "B5": Row("all brokers down", "no busy loop, memory bounded, resumes"),
    "S-K1": Row(
        "EndTxn or TxnOffsetCommit held, released into a later transaction", "fence on doubt"
    ),
    "S-K2": Row("coordinator frozen during the commit", "fence on doubt"),
    "N1": Row("worker cut off from one broker, from all; one way", "no live zombie"),
    "N2": Row("slow and broken network", "slower only"),
    "R1": Row("Redis killed, refusing", "held or passed; nothing dropped"),
    "R2": Row("Redis slow, frozen", "bounded; the batch is put back"),
    "R3": Row("Redis emptied", "noticed; nothing lost"),
    "R4": Row("failover that loses the last writes", "duplicates only in the documented window"),
    "R5": Row("eviction, memory full", "start refused; full counts as away"),
    "R6": Row("time to live below the worst replay", "said at the start"),
    "R7": Row("one id on two partitions, two workers", "exactly one effect"),
    "R8": Row("clock skew between workers and Redis", "time to live by the clock of Redis"),
    "R9": Row("READONLY, LOADING, NOPERM, NOSCRIPT", "counts as away"),
    "R10": Row("twins in one batch, another batch, another partition", "the first one owns"),
    "C1": Row("clock of worker or coordinator jumps by an hour", "timeouts are monotonic"),
    "F1": Row("disk of a broker full", "waits"),
    "F2": Row("disk of the worker full", "continues, or exits"),
    "F3": Row(
        "publisher and worker killed, disk of the spool full, brokers killed", "each record once"
    ),
    "G1": Row("members join and leave all the time", "progress, order, no unfenced commit"),
    "G2": Row("max.poll.interval exceeded", "abort; no commit after the loss"),
    "G3": Row("scaled up and down by SIGTERM", "drained; no wait for a timeout"),
    "G4": Row("rebalance inside a transaction", "dropped or finished"),
    "T1": Row("transaction longer than its timeout", "prevented: cut by time"),
    "T2": Row("output too large", "dead letter in the same transaction"),
    "T3": Row("poison record", "dead letter in the same transaction, fixed retries"),
    "T4": Row("callback raises; SIGTERM inside a call", "no record skipped"),
    "A1": Row("a right revoked: topic, group, transactional id", "stops with the reason; resumes"),
    "A2": Row("credentials expire", "connects again, or as A1"),
    "M1": Row("topic deleted and recreated", "never stale offsets"),
    "M2": Row("partitions added", "read from their beginning"),
    "M3": Row("one output partition offline", "the whole transaction waits or aborts"),
    "M4": Row("retention overtakes the committed offset", "stops and says so"),
    "M5": Row("the group's offsets deleted", "stops where it can be known"),
    "M6": Row("unclean election", "offsets beyond the end of the log: stops"),
    "H1": Row("grace of 30 s, out of memory, two pods of one name", "as P and D"),
    "X1": Row("random pairs, quiet periods", "all"),
}

SPARK: dict[str, Row] = {
    "SP1": Row("write raises before and after each call"),
    "SP2": Row("SIGKILL of a task's process"),
    "SP3": Row("a partition truncated half-way", "nothing of it is committed"),
    "SP4": Row("stop, SIGTERM inside a range; started again at once"),
    "SP5": Row("kill -9 of the driver"),
    "SP6": Row("the first micro-batch again, with more data"),
    "SP7": Row("checkpoint deleted, older, damaged, foreign", "recognised; stops"),
    "SP8": Row("two drivers"),
    "SP9": Row("a task beyond its transaction's timeout"),
    "SP10": Row("the producer is fenced inside a transaction"),
    "SP11": Row("coordinator restarts under a task"),
    "SP12": Row("group offsets deleted, moved back, moved forward"),
    "SP13": Row("topic recreated; retention past the start"),
    "SP14": Row("aborted input, markers at the end, open transactions, empty ranges"),
    "SP15": Row("a filter drops everything"),
    "SP16": Row("poison", "dead letter in the same transaction"),
    "SP17": Row("input partitions added"),
    "SP18": Row("limits, trigger or cores changed at a restart"),
    "SP19": Row("a bounded run leaves its last offsets in the group"),
    "SP20": Row("commit raises once"),
    "SP21": Row("Redis away; a claim exists but Kafka aborted"),
    "SP22": Row("headers, nulls, timestamps, 1 MB, 10,000 rows"),
    "SP23": Row("order per key"),
    "SP24": Row("rate of polls when idle"),
    "SP25": Row("chaos with an audit"),
    "SP26": Row("what the DataFrame form refuses"),
    "SP27": Row("metrics visible; liveness red when a query dies"),
    "SP28": Row("cluster: kill -9 of an executor, of all executors"),
    "SP29": Row("cluster: kill -9 of a worker daemon, started again"),
    "SP30": Row("cluster: kill -9 of the master, started again"),
    "SP31": Row("cluster: kill -9 of the driver or its JVM", "another driver continues"),
    "SP32": Row("cluster: executors cut off from the driver"),
    "SP33": Row("cluster: an executor frozen past its transaction, thawed", "its commit fails"),
    "SP34": Row("cluster: an executor joins late, and dies", "lanes grow"),
    "SP35": Row("cluster: the disk of an executor full", "the others continue"),
}

BUGS: dict[str, Row] = {
    "KAFKA-9079": Row("the first transaction of a partition without offset is aborted"),
    "KAFKA-6607": Row("input that begins with a control record, or holds nothing else", "lag 0"),
    "KAFKA-6906": Row("outputs without offsets", "committed all the same"),
    "KAFKA-13412": Row("init_transactions with its coordinator away", "waits; no second id"),
    "FLINK-31363": Row("a commit of offsets alone", "goes through"),
    "aiokafka-844": Row("a member joins between produce and send_offsets"),
    "librdkafka-3265": Row("kill between TxnOffsetCommit and EndTxn", "the new owner waits"),
    "librdkafka-3297": Row("a transaction that is held beyond its timeout", "rebuild"),
    "librdkafka-4849": Row("an abort right after the first produce", "no fatal error"),
}
"""What has bitten other clients, as scenarios."""

ROWS: dict[str, Row] = MATRIX | SPARK | BUGS
"""All that must be covered."""

NOT_BUILT: dict[str, str] = {}
"""Rows that cannot be built on one machine, with the reason."""

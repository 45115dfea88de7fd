"""Faults of what is around the members, as data: brokers, requests, Redis, the group; Spark."""

from __future__ import annotations

from functools import partial

from tests.fault.plan import Fault
from tests.fault.striking import (
    strikes_brokers,
    strikes_group,
    strikes_requests,
    strikes_spark,
    strikes_stores,
    strikes_workers,
)

ROLES = {
    "input": "input",
    "output": "output",
    "offsets": "__consumer_offsets",
    "transactions": "__transaction_state",
}
B_KILLS = [
    Fault(
        ("B1",),
        f"broker killed, leader of {name}",
        partial(strikes_brokers.kill, role=role),
        "broker",
        promise="broker",
    )
    for role, name in ROLES.items()
]
B_FREEZES = [
    Fault(
        ("B2",),
        f"broker frozen {seconds} s, leader of {name}",
        partial(strikes_brokers.freeze, role=role, seconds=seconds),
        "broker",
    )
    for seconds in (2, 6)
    for role, name in ROLES.items()
]
B_MOVES = [
    Fault(("B3",), "leaders and coordinators moved", strikes_brokers.move_leaders, "broker"),
    Fault(("B3",), "replicas reassigned 3 to 2 to 3", strikes_brokers.reassign, "broker"),
    Fault(("B3",), "rolling restart of the brokers", strikes_brokers.restart_all, "broker"),
]
B_OUTAGES = [
    Fault(
        ("B4",),
        "two brokers of three frozen",
        partial(strikes_brokers.freeze_two, seconds=6),
        "broker",
    ),
    Fault(
        ("B4",),
        "below min.insync.replicas",
        partial(strikes_brokers.below_min_isr, seconds=8),
        "broker",
    ),
    Fault(("B5",), "all brokers killed", partial(strikes_brokers.kill_all, seconds=10), "broker"),
]
LATE = [
    Fault(
        ("S-K1",),
        "late commit in the next transaction",
        partial(strikes_requests.late, api="EndTxn", commits=True),
    ),
    Fault(
        ("S-K1",),
        "late abort in the next transaction",
        partial(strikes_requests.late, api="EndTxn", commits=False),
    ),
    Fault(
        ("S-K1",),
        "late offsets in the next transaction",
        partial(strikes_requests.late, api="TxnOffsetCommit"),
    ),
    Fault(
        ("S-K1",),
        "late commit in the next transaction, crash behind it",
        partial(strikes_requests.late, api="EndTxn", commits=True, crash="behind"),
    ),
    Fault(
        ("S-K1",),
        "late offsets in the next transaction, crash behind it",
        partial(strikes_requests.late, api="TxnOffsetCommit", crash="behind"),
    ),
    Fault(
        ("S-K2",),
        "coordinator frozen in commit, 3 s",
        partial(strikes_brokers.freeze_in_commit, seconds=3),
        "broker",
    ),
    Fault(
        ("S-K2",),
        "coordinator frozen in commit, 6 s",
        partial(strikes_brokers.freeze_in_commit, seconds=6),
        "broker",
    ),
]
NETWORK = [
    Fault(
        ("N1",),
        "worker cut off from one broker",
        partial(strikes_requests.cut, seconds=4, one=True),
    ),
    Fault(
        ("N1",),
        "worker cut off from all brokers, within its session",
        partial(strikes_requests.cut, seconds=3, one=False),
    ),
    Fault(
        ("N1",),
        "worker cut off from all brokers, past its session",
        partial(strikes_requests.cut, seconds=9, one=False),
    ),
    Fault(
        ("N1",),
        "requests to one broker lost",
        partial(strikes_requests.silence, seconds=5, way="drop"),
    ),
    Fault(
        ("N1",),
        "answers of one broker lost",
        partial(strikes_requests.silence, seconds=5, way="mute_after"),
    ),
    Fault(("N2",), "network slow, 200 ms", partial(strikes_requests.slow_network, seconds=6)),
    Fault(
        ("N2",),
        "network slow and resets",
        partial(strikes_requests.slow_network, seconds=6, resets=4),
    ),
]
STORES = [
    Fault(("R1",), "Redis killed", partial(strikes_stores.kill, seconds=2), "redis"),
    Fault(("R2",), "Redis frozen 3 s", partial(strikes_stores.freeze, seconds=3), "redis"),
    Fault(("R2",), "Redis answers after 1 s", partial(strikes_stores.slow, times=3), "redis"),
    Fault(("R9",), "Redis answers LOADING", partial(strikes_stores.loading, seconds=2), "redis"),
    Fault(("R9",), "Redis answers READONLY", partial(strikes_stores.read_only, seconds=2), "redis"),
]
GROUP = [
    Fault(
        ("G1",), "a member joins and leaves every 1-3 s", partial(strikes_group.churn, seconds=12)
    ),
    Fault(("G3",), "scaled to 1 and back by SIGTERM", strikes_group.scale, promise="handed over"),
    Fault(("G3",), "SIGTERM, handover", strikes_workers.hand_over, promise="handed over"),
    Fault(
        ("G4",),
        "rebalance while offsets are sent",
        partial(strikes_requests.rebalance_during, api="TxnOffsetCommit"),
    ),
    Fault(
        ("G4",), "rebalance during commit", partial(strikes_requests.rebalance_during, api="EndTxn")
    ),
    Fault(
        ("G4",),
        "rebalance during produce",
        partial(strikes_requests.rebalance_during, api="Produce"),
    ),
]
SPARK = [
    Fault(("SP2",), "task killed", strikes_spark.kill_task, "spark"),
    Fault(
        ("SP9",),
        "task frozen past its transaction",
        partial(strikes_spark.freeze_task, seconds=12),
        "spark",
    ),
    Fault(("SP5",), "JVM killed", strikes_spark.kill_jvm, "spark"),
    Fault(("SP5",), "driver killed without its tasks", strikes_spark.kill_driver, "spark"),
    Fault(("SP5",), "application killed", strikes_spark.kill_application, "spark"),
    Fault(
        ("SP10",),
        "driver frozen past its session",
        partial(strikes_spark.freeze_driver, seconds=13),
        "spark",
    ),
    Fault(("SP4",), "SIGTERM to a driver, handover", strikes_spark.hand_over, "spark"),
    Fault(
        ("SP8",),
        "a second driver for a while",
        partial(strikes_spark.second_driver, seconds=12),
        "spark",
    ),
]
ENGINES = Fault(
    ("SP4",), "from Spark to workers and back", strikes_spark.hand_over_engines, "spark"
)

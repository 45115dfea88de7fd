"""The catalogue: every fault that a campaign can strike with, as data."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Concatenate, ParamSpec

from hapax.sandbox.jars import KAFKA_VERSION
from tests.fault.plan import Fault
from tests.fault.reporting.matrix import DELIVERIES, REQUESTS
from tests.fault.scene import Scene
from tests.fault.striking import (
    strikes_brokers,
    strikes_cluster,
    strikes_group,
    strikes_requests,
    strikes_spark,
    strikes_stores,
    strikes_workers,
)

P = ParamSpec("P")

CRASH_POINTS = {
    "before-claim": "P19",
    "after-claim": "P20",
    "before-send": "P20",
    "after-send": "P21",
    "before-offsets": "P21",
    "after-offsets": "P21",
    "during-commit": "P17",
    "after-commit": "P22",
}
STOPPED_IN = {
    "consume": "Fetch",
    "add offsets": "AddOffsetsToTxn",
    "send_offsets": "TxnOffsetCommit",
    "commit": "EndTxn",
}
ROLES = {
    "input": "input",
    "output": "output",
    "offsets": "__consumer_offsets",
    "transactions": "__transaction_state",
}


def fault(
    row: str,
    name: str,
    strike: Callable[Concatenate[Scene, P], None],
    *values: P.args,
    **how: P.kwargs,
) -> Fault:
    return Fault((row,), name, lambda scene: strike(scene, *values, **how))


def at(whom: str, *faults: Fault, waits: str = "") -> list[Fault]:
    """Return faults that need something else for themselves than a worker alone."""
    return [replace(each, whom=whom, waits=waits) for each in faults]


def promised(promise: str, faults: Iterable[Fault]) -> list[Fault]:
    """Return faults after which all must go on as soon as was promised."""
    return [replace(each, promise=promise) for each in faults]


def _kills() -> Iterable[Fault]:
    """P1 to P18: six requests, three moments each; and Produce later in a transaction."""
    kill_at = strikes_workers.kill_at
    cells = [(api, moment) for api in REQUESTS for moment in DELIVERIES]
    for number, (api, moment) in enumerate(cells, start=1):
        yield fault(f"P{number}", f"worker killed, {api} {moment}", kill_at, api=api, moment=moment)
    for place, nth in {"middle": 4, "last": 8}.items():
        for number, moment in enumerate(DELIVERIES[:2], start=7):
            name = f"worker killed, {place} Produce {moment}"
            yield fault(f"P{number}", name, kill_at, api="Produce", moment=moment, nth=nth)


def _take_overs() -> Iterable[Fault]:
    """Killed for good: another instance goes on."""
    moment = DELIVERIES[2]
    for row, api in {"P9": "Produce", "P15": "TxnOffsetCommit", "P18": "EndTxn"}.items():
        name = f"worker killed for good, {api} {moment}"
        yield fault(row, name, strikes_workers.kill_at, api=api, moment=moment, away=True)


P_ROWS = promised("back", _kills())
TAKE_OVERS = promised("taken over", _take_overs())
CRASHES = [
    fault(row, f"worker dies {point.replace('-', ' ')}", strikes_workers.crash_at, point=point)
    for point, row in CRASH_POINTS.items()
]
KILL_LOOP = fault("P23", "workers killed every 1-2 s", strikes_workers.kill_often, seconds=10)
_between = "worker frozen between commit and answer"
Z_ROWS = [
    fault("Z1", "worker frozen past its session", strikes_workers.freeze, seconds=9),
    fault(
        "Z2",
        "worker frozen past its transaction, within its session",
        strikes_workers.freeze_within_session,
        seconds=7,
        session="15s",
    ),
    *(
        fault("Z3", f"{_between}, {how_long}", strikes_workers.freeze_in_commit, seconds=seconds)
        for how_long, seconds in {"2 s": 2, "past its session": 8}.items()
    ),
]
STOPS = [
    fault("T4", f"SIGTERM in {call}", strikes_workers.stop_at, api=api)
    for call, api in STOPPED_IN.items()
]
B_KILLS = promised(
    "broker",
    at(
        "broker",
        *(
            fault("B1", f"broker killed, leader of {name}", strikes_brokers.kill, role=role)
            for role, name in ROLES.items()
        ),
    ),
)
B_FREEZES = at(
    "broker",
    *(
        fault(
            "B2",
            f"broker frozen {seconds} s, leader of {name}",
            strikes_brokers.freeze,
            role=role,
            seconds=seconds,
        )
        for seconds in (2, 6)
        for role, name in ROLES.items()
    ),
)
B_MOVES = at(
    "broker",
    fault("B3", "leaders and coordinators moved", strikes_brokers.move_leaders),
    fault("B3", "replicas reassigned 3 to 2 to 3", strikes_brokers.reassign),
    fault("B3", "rolling restart of the brokers", strikes_brokers.restart_all),
)
UPGRADE = at(
    "broker",
    fault(
        "B3",
        f"rolling upgrade of the brokers to {KAFKA_VERSION}",
        strikes_brokers.restart_all,
        kafka=KAFKA_VERSION,
    ),
)
B_OUTAGES = at(
    "broker",
    fault("B4", "two brokers of three frozen", strikes_brokers.freeze_two, seconds=6),
    fault("B4", "below min.insync.replicas", strikes_brokers.below_min_isr, seconds=8),
    fault("B5", "all brokers killed", strikes_brokers.kill_all, seconds=10),
)
_late, _next = strikes_requests.late, "in the next transaction"
_frozen = "coordinator frozen in commit"
LATE = [
    *at(
        "worker",
        fault("S-K1", f"late commit {_next}", _late, api="EndTxn", commits=True),
        fault("S-K1", f"late abort {_next}", _late, api="EndTxn", commits=False),
        fault("S-K1", f"late offsets {_next}", _late, api="TxnOffsetCommit"),
        fault(
            "S-K1",
            f"late commit {_next}, crash behind it",
            _late,
            api="EndTxn",
            commits=True,
            crash="behind",
        ),
        fault(
            "S-K1",
            f"late offsets {_next}, crash behind it",
            _late,
            api="TxnOffsetCommit",
            crash="behind",
        ),
        waits="broker",
    ),
    *at(
        "broker",
        *(
            fault("S-K2", f"{_frozen}, {s} s", strikes_brokers.freeze_in_commit, seconds=s)
            for s in (3, 6)
        ),
        waits="worker",
    ),
]
_cut, _silence = strikes_requests.cut, strikes_requests.silence
_all = "worker cut off from all brokers"
NETWORK = [
    fault("N1", "worker cut off from one broker", _cut, seconds=4, one=True),
    fault("N1", f"{_all}, within its session", _cut, seconds=3, one=False),
    fault("N1", f"{_all}, past its session", _cut, seconds=9, one=False),
    fault("N1", "requests to one broker lost", _silence, seconds=5, way="drop"),
    fault("N1", "answers of one broker lost", _silence, seconds=5, way="mute_after"),
    fault("N2", "network slow, 200 ms", strikes_requests.slow_network, seconds=6),
    fault("N2", "network slow and resets", strikes_requests.slow_network, seconds=6, resets=4),
]
STORES = at(
    "redis",
    fault("R1", "Redis killed", strikes_stores.kill, seconds=2),
    fault("R2", "Redis frozen 3 s", strikes_stores.freeze, seconds=3),
    fault("R2", "Redis answers after 1 s", strikes_stores.slow, times=3),
    fault("R9", "Redis answers LOADING", strikes_stores.loading, seconds=2),
    fault("R9", "Redis answers READONLY", strikes_stores.read_only, seconds=2),
    fault("R9", "Redis answers NOPERM", strikes_stores.forbid, seconds=2),
)
_rebalance = strikes_requests.rebalance_during
GROUP = [
    fault("G1", "a member joins and leaves every 1-3 s", strikes_group.churn, seconds=12),
    *promised(
        "handed over",
        (
            fault("G3", "scaled to 1 and back by SIGTERM", strikes_group.scale),
            fault("G3", "SIGTERM, handover", strikes_workers.hand_over),
        ),
    ),
    fault("G4", "rebalance while offsets are sent", _rebalance, api="TxnOffsetCommit"),
    fault("G4", "rebalance during commit", _rebalance, api="EndTxn"),
    fault("G4", "rebalance during produce", _rebalance, api="Produce"),
]
SPARK = at(
    "spark",
    fault("SP2", "task killed", strikes_spark.kill_task),
    fault("SP9", "task frozen past its transaction", strikes_spark.freeze_task, seconds=12),
    fault("SP5", "JVM killed", strikes_spark.kill_jvm),
    fault("SP5", "driver killed without its tasks", strikes_spark.kill_driver),
    fault("SP5", "application killed", strikes_spark.kill_application),
    fault("SP10", "driver frozen past its session", strikes_spark.freeze_driver, seconds=13),
    fault("SP4", "SIGTERM to a driver, handover", strikes_spark.hand_over),
    fault("SP8", "a second driver for a while", strikes_spark.second_driver, seconds=12),
)
(ENGINES,) = at(
    "spark", fault("SP4", "from Spark to workers and back", strikes_spark.hand_over_engines)
)
_freeze = strikes_cluster.freeze_executor
CLUSTER = at(
    "spark",
    fault("SP28", "executor killed", strikes_cluster.kill_executor),
    fault("SP34", "an executor joins late and is killed", strikes_cluster.late_executor),
    fault("SP32", "executors cut off from the driver", strikes_cluster.cut_executors, seconds=4),
    fault("SP33", "executor frozen past its transaction", _freeze, seconds=12),
    fault("SP33", "executor frozen past its range's time", _freeze, seconds=24),
    fault("SP28", "all executors killed", strikes_cluster.kill_all_executors),
    fault("SP29", "worker daemon killed", strikes_cluster.kill_daemon, seconds=2),
    fault("SP30", "master killed with an executor", strikes_cluster.kill_master, seconds=3),
    fault("SP31", "driver killed, another one goes on", strikes_cluster.other_driver),
    fault("SP31", "the driver's JVM killed", strikes_cluster.kill_jvm),
)
CATALOGUE = (
    *P_ROWS, *TAKE_OVERS, *CRASHES, KILL_LOOP, *Z_ROWS, *STOPS,
    *B_KILLS, *B_FREEZES, *B_MOVES, *B_OUTAGES,
    *LATE, *NETWORK, *STORES, *GROUP, *SPARK, ENGINES, *CLUSTER,
)  # fmt: skip

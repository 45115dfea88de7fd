"""The catalogue: every fault that a campaign can strike with, as data.

Faults of members stand here, those of what is around them in strikes_around.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.fault.plan import Fault
from tests.fault.striking import strikes_workers
from tests.fault.striking.strikes_around import (
    B_FREEZES,
    B_KILLS,
    B_MOVES,
    B_OUTAGES,
    ENGINES,
    GROUP,
    LATE,
    NETWORK,
    SPARK,
    STORES,
)

if TYPE_CHECKING:
    from tests.fault.striking.strikes_workers import Moment

REQUESTS = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
MOMENTS: tuple[Moment, ...] = ("not delivered", "answer lost", "answer delivered")


def _kills() -> list[Fault]:
    """P1 to P18: six requests, three moments each."""
    cells = [(api, moment) for api in REQUESTS for moment in MOMENTS]
    kills = [
        Fault(
            (f"P{number}",),
            f"worker killed, {api} {moment}",
            partial(strikes_workers.kill_at, api=api, moment=moment),
            promise="back",
        )
        for number, (api, moment) in enumerate(cells, start=1)
    ]
    places = {"middle": 4, "last": 8}
    return kills + [
        Fault(
            (f"P{7 + MOMENTS.index(moment)}",),
            f"worker killed, {place} Produce {moment}",
            partial(strikes_workers.kill_at, api="Produce", moment=moment, nth=nth),
            promise="back",
        )
        for place, nth in places.items()
        for moment in MOMENTS[:2]
    ]


def _take_overs() -> list[Fault]:
    """Killed for good: another instance goes on."""
    return [
        Fault(
            (row,),
            f"worker killed for good, {api} {moment}",
            partial(strikes_workers.kill_at, api=api, moment=moment, away=True),
            promise="taken over",
        )
        for row, api, moment in (
            ("P9", "Produce", MOMENTS[2]),
            ("P15", "TxnOffsetCommit", MOMENTS[2]),
            ("P18", "EndTxn", MOMENTS[2]),
        )
    ]


def _crashes() -> list[Fault]:
    rows = {
        "before-claim": "P19",
        "after-claim": "P20",
        "before-send": "P20",
        "after-send": "P21",
        "before-offsets": "P21",
        "after-offsets": "P21",
        "during-commit": "P17",
        "after-commit": "P22",
    }
    return [
        Fault(
            (row,),
            f"worker dies {point.replace('-', ' ')}",
            partial(strikes_workers.crash_at, point=point),
        )
        for point, row in rows.items()
    ]


def _stops() -> list[Fault]:
    apis = {"consume": "Fetch", "add offsets": "AddOffsetsToTxn"}
    apis |= {"send_offsets": "TxnOffsetCommit", "commit": "EndTxn"}
    return [
        Fault(("T4",), f"SIGTERM in {call}", partial(strikes_workers.stop_at, api=api))
        for call, api in apis.items()
    ]


P_ROWS = _kills()
TAKE_OVERS = _take_overs()
CRASHES = _crashes()
KILL_LOOP = Fault(
    ("P23",), "workers killed every 1-2 s", partial(strikes_workers.kill_often, seconds=10)
)
Z_ROWS = [
    Fault(("Z1",), "worker frozen past its session", partial(strikes_workers.freeze, seconds=9)),
    Fault(
        ("Z2",),
        "worker frozen past its transaction, within its session",
        partial(strikes_workers.freeze_within_session, seconds=7, session="15s"),
    ),
    Fault(
        ("Z3",),
        "worker frozen between commit and answer, 2 s",
        partial(strikes_workers.freeze_in_commit, seconds=2),
    ),
    Fault(
        ("Z3",),
        "worker frozen between commit and answer, past its session",
        partial(strikes_workers.freeze_in_commit, seconds=8),
    ),
]
STOPS = _stops()
CATALOGUE = (
    *P_ROWS, *TAKE_OVERS, *CRASHES, KILL_LOOP, *Z_ROWS, *STOPS,
    *B_KILLS, *B_FREEZES, *B_MOVES, *B_OUTAGES,
    *LATE, *NETWORK, *STORES, *GROUP, *SPARK, ENGINES,
)  # fmt: skip

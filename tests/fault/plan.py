"""What a campaign is to do, as data: who runs, what strikes, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.kit import calls

if TYPE_CHECKING:
    from tests.fault.scene import Scene

SHORT = {"HAPAX_GROUP__SESSION_TIMEOUT": "6s", "HAPAX_TRANSACTION__TIMEOUT": "4s"}
"""So that what waits for a timeout is over soon."""
SPARK = {"HAPAX_GROUP__SESSION_TIMEOUT": "10s", "HAPAX_TRANSACTION__TIMEOUT": "8s"}
"""The same for Spark, whose transactions are longer."""
CLUSTER = SPARK | {
    # Past it a task counts as lost, however its executor is: another one takes its range.
    "HAPAX_GROUP__MAX_POLL_INTERVAL": "16s",
    "HAPAX_WATCHDOG__TIMEOUT": "15s",
    "HAPAX_SPARK__EXECUTOR_TIMEOUT": "4m",
}
"""The same for executors of a cluster, whose start takes a minute on a busy machine."""
MEMBERSHIPS = {
    "static": {},
    "dynamic": {"HAPAX_GROUP__MEMBERSHIP": "dynamic"},
    "kip848": {"HAPAX_GROUP__MEMBERSHIP": "dynamic", "HAPAX_GROUP__PROTOCOL": "consumer"},
}
CALLS = {
    "": {},
    "coroutine": {"HAPAX_TRANSFORM": f"{calls.MODULE}:coroutine", "HAPAX_CALL__CONCURRENCY": "16"},
    "threads": {"HAPAX_TRANSFORM": f"{calls.MODULE}:function", "HAPAX_CALL__CONCURRENCY": "16"},
    "list": {"HAPAX_TRANSFORM": f"{calls.MODULE}:batch"},
    "list-coroutine": {
        "HAPAX_TRANSFORM": f"{calls.MODULE}:coroutine_batch",
        "HAPAX_CALL__CONCURRENCY": "4",
        "HAPAX_CALL__RECORDS_MAX": "64",
    },
}
"""Forms of the transform, by name; empty: a plain function, as elsewhere. Each call takes up to
CALLS_PAUSE_MAX_S, so that answers come in another order than records."""
PAUSED = {calls.PAUSE_MAX_S: "0.004"}
PROMISES = {
    "back": {"static": 2.0, "dynamic": 7.0, "kip848": 7.0},
    "taken over": {"static": 7.0, "dynamic": 7.0, "kip848": 7.0},
    "handed over": {"static": 7.0, "dynamic": 1.0, "kip848": 1.0},
    "broker": {"static": 6.0, "dynamic": 6.0, "kip848": 6.0},
}
"""How soon all partitions go on, by membership, with a session of 6 s.

back         killed, the same instance is started at once: a static member takes its place again,
             any other waits until the group has missed the one that is gone
taken over   killed, and another instance goes on: session + 1 s
handed over  SIGTERM: a dynamic member leaves the group, a static one is missed for its session
broker       killed, with controllers that miss it after 3 s
"""


@dataclass(frozen=True)
class Fault:
    """One row of the catalogue.

    rows   ids of the matrix
    name   the class under which it is counted
    strike does it all: strikes, heals, and says to the scene what it did
    whom   what it strikes: ``worker``, ``broker``, ``redis`` or ``spark``
    waits  for whose request or answer it waits: what needs the same never strikes at once
    promise  what was promised for such a fault, a key of PROMISES; empty: nothing
    """

    rows: tuple[str, ...]
    name: str
    strike: Callable[[Scene], None]
    whom: str = "worker"
    promise: str = ""
    waits: str = ""

    @property
    def needs(self) -> set[str]:
        """Return what it needs for itself."""
        return {self.whom, self.waits or self.whom}


Step = tuple[Fault, ...]
"""Faults that strike together; usually one."""
Steps = Callable[[random.Random], Iterator[Step]]


@dataclass(frozen=True)
class Plan:
    """One campaign.

    kinds    of each member: ``worker`` or ``spark``; the first member goes through the proxy
    steps    what strikes, in order, from a generator of random numbers; may be endless
    seconds  no step begins later than this
    rate     records a second that are written
    membership  key of MEMBERSHIPS
    quiet_s  how long nothing happens between two steps
    start_s     how long it may take until every partition has an output
    settle_s    how long lag may take to come to 0 at the end
    patience_s  how long a strike waits for the request that it is to harm
    recovery_s  how long all partitions may take to go on: beyond it is ``hang``
    brokers     properties of the brokers
    spark_workers  of a cluster that Spark applications run on, besides one that comes later; 0:
                   they run in a process of their own
    records     at least so many are written, after the last step if need be
    """

    name: str
    steps: Steps
    kinds: tuple[str, ...] = ("worker", "worker", "worker")
    engine: str = "worker"
    settings: dict[str, str] = field(default_factory=lambda: dict(SHORT))
    membership: str = "static"
    seed: int = 1
    seconds: float = 600.0
    rate: int = 2000
    partitions: int = 4
    quiet_s: tuple[float, float] = (0.2, 0.6)
    start_s: float = 120.0
    settle_s: float = 60.0
    patience_s: float = 30.0
    recovery_s: float = 60.0
    brokers: dict[str, str] = field(default_factory=dict)
    spark_workers: int = 0
    records: int = 0

"""The campaigns that are run, by name."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest

from tests.fault.plan import (
    CALLS,
    CLUSTER,
    MEMBERSHIPS,
    PAUSED,
    SHORT,
    SPARK,
    Fault,
    Plan,
    Step,
    Steps,
)
from tests.fault.striking import strikes
from tests.kit.turn import Box, share

BROKERS = (*strikes.B_KILLS, *strikes.B_FREEZES, *strikes.B_MOVES, *strikes.B_OUTAGES)
MEMBERS = (*strikes.P_ROWS, *strikes.TAKE_OVERS, *strikes.CRASHES, *strikes.Z_ROWS, *strikes.STOPS)
AROUND = (*strikes.LATE, *strikes.NETWORK, *strikes.STORES, *strikes.GROUP, strikes.KILL_LOOP)
WORKERS = (*MEMBERS, *AROUND, *strikes.B_KILLS, *strikes.B_FREEZES, *strikes.B_MOVES)
KINDS = {
    "worker": ("worker", "worker", "worker"),
    "spark": ("spark", "spark"),
    "mixed": ("worker", "worker", "spark"),
}
TOGETHER = (4, 4, 2)
"""How often random faults come alone, in pairs and in threes: what is together shares a wait."""


@dataclass(frozen=True)
class Wish:
    """What the command line says.

    seconds  0: as the plan says
    factor   scales the gaps between random faults: 1 is 5 to 15 s
    only     rows, or parts of names, with commas between them: nothing else strikes
    calls    key of CALLS: the form of the transform
    faults   so many at most; 0: as the plan says
    records  at least so many are written
    each_row one fault of each row, which one by the turn: a series of turns strikes with them all
    share    of the rows, one in so many, by the turn as well
    box      of that, what is begun in time
    """

    seed: int = 1
    seconds: float = 0.0
    membership: str = "static"
    engine: str = "worker"
    factor: float = 0.4
    only: str = ""
    calls: str = ""
    faults: int = 0
    records: int = 0
    each_row: bool = False
    turn: int = 0
    share: int = 1
    box: Box = field(default_factory=Box)

    def apply(self, plan: Plan) -> Plan:
        return replace(
            plan,
            seed=self.seed,
            seconds=math.inf if self.each_row else self.seconds or plan.seconds,
            records=self.records or plan.records,
            name="-".join(filter(None, (plan.name, self.calls, self._member))),
            membership=self.membership,
            settings=plan.settings
            | MEMBERSHIPS[self.membership]
            | CALLS[self.calls]
            | (PAUSED if self.calls else {}),
            steps=self._steps(plan.steps),
        )

    @property
    def _member(self) -> str:
        return "" if self.membership == "static" else self.membership

    def _steps(self, steps: Steps) -> Steps:
        def chosen(rng: random.Random) -> Iterator[Step]:
            wanted: Iterator[Step]
            wanted = (step for step in steps(rng) if all(map(self._wanted, step)))
            if self.each_row:
                every = [*wanted]
                some = _of_each_row(every, self.share, self.turn)
                some = self.box.order(some, every, _name, self.turn)
                wanted = self.box.fill(iter(some), _name)
            return islice(wanted, self.faults or None)

        return chosen

    def _wanted(self, fault: Fault) -> bool:
        words = self.only.split(",")
        return any(word in fault.rows or word in fault.name for word in words)


def smoke(wish: Wish = Wish()) -> Plan:
    """Return a handful of each kind, to see that all of it works."""
    some = (strikes.P_ROWS[15], strikes.LATE[0], strikes.STORES[0], strikes.B_KILLS[3])
    return wish.apply(Plan("smoke", _once(some), rate=1000, seconds=400))


def upgrade(wish: Wish = Wish()) -> Plan:
    """Return an upgrade of the brokers, one after another, between faults before and after it.

    They begin as the version that SANDBOX_KAFKA names.
    """
    some = (strikes.P_ROWS[15], *strikes.UPGRADE, strikes.LATE[0], strikes.B_KILLS[3])
    return wish.apply(Plan("upgrade", _once(some), rate=1000, seconds=400))


def ci(wish: Wish = Wish()) -> Plan:
    """Return the whole catalogue for workers, each once."""
    faults = mixed_up(BROKERS, (*MEMBERS, *AROUND))
    return wish.apply(Plan("ci", _once(faults), rate=2000, seconds=math.inf, brokers=QUICK_BROKERS))


def brokers(wish: Wish = Wish()) -> Plan:
    """Return kills of brokers whose death the controllers notice soon.

    Members keep the service's own timeouts: with short ones every transaction would end meanwhile.
    """
    faults = strikes.B_KILLS * 2
    plan = Plan("brokers", _once(faults), rate=2000, brokers=QUICK_BROKERS, settings={})
    return wish.apply(plan)


def spark(wish: Wish = Wish()) -> Plan:
    """Return faults of Spark and of brokers, again and again."""
    rare = (
        _also(strikes.B_KILLS[2], "SP11"),
        _also(strikes.STORES[0], "SP21"),
        _also(strikes.B_KILLS[3], "SP11"),
        strikes.B_KILLS[1],
    )
    faults = mixed_up(rare, strikes.SPARK)
    plan = Plan(
        "spark", _over_and_over(faults), KINDS["spark"], engine="spark", seconds=180, settings=SPARK
    )
    return wish.apply(plan)


def mixed(wish: Wish = Wish()) -> Plan:
    """Return faults of Spark with workers beside it, and the way from one to the other."""
    faults = mixed_up((strikes.ENGINES, *strikes.P_ROWS[15:18]), strikes.SPARK)
    plan = Plan(
        "mixed", _over_and_over(faults), KINDS["mixed"], engine="mixed", seconds=180, settings=SPARK
    )
    return wish.apply(plan)


def cluster(wish: Wish = Wish()) -> Plan:
    """Return faults of a Spark cluster around one driver, again and again or one of each row."""
    plan = Plan(
        "cluster",
        _once(strikes.CLUSTER) if wish.each_row else _over_and_over(strikes.CLUSTER),
        ("spark",),
        engine="spark",
        seconds=300,
        settings=CLUSTER,
        spark_workers=2,
        # An executor is up after 5 s, and after a minute where ten others want the same cores.
        start_s=300,
        settle_s=180,
        recovery_s=180,
    )
    return wish.apply(plan)


def chaos(wish: Wish = Wish()) -> Plan:
    """Return random faults and pairs of them, for as long as is wished (X1)."""
    faults = WORKERS if wish.engine == "worker" else (*strikes.SPARK, *strikes.B_KILLS)
    if wish.engine == "mixed":
        faults = (*strikes.SPARK, *MEMBERS, *strikes.B_KILLS)
    rows = ("X1",) if wish.engine == "worker" else ("X1", "SP25")
    low_s, high_s = 5 * wish.factor, 15 * wish.factor
    plan = Plan(
        f"chaos-{wish.engine}",
        lambda rng: _pairs(rng, [_also(each, *rows) for each in faults]),
        KINDS[wish.engine],
        engine=wish.engine,
        settings=SHORT if wish.engine == "worker" else SPARK,
        rate=5000,
        seconds=300,
        brokers=QUICK_BROKERS,
        quiet_s=(low_s / 4, high_s / 4),
    )
    return wish.apply(plan)


QUICK_BROKERS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "200",
}
"""How soon the controllers give up a killed broker: by default after 9 s, and until then nothing
is written to any partition that it was in step with. A broker that was the active controller takes
longer: its successor is elected first, and then waits a whole session."""


def mixed_up(rare: Sequence[Fault], often: Sequence[Fault]) -> list[Fault]:
    """Spread the rare ones evenly: a broker comes back while others are struck."""
    each = -(-len(often) // max(1, len(rare)))
    groups = [often[at : at + each] for at in range(0, len(often), each)]
    return [
        fault
        for first, group in zip_longest(rare, groups)
        for fault in (*([first] if first else []), *(group or ()))
    ]


def _name(step: Step) -> str:
    return " with ".join(fault.name for fault in step)


def _of_each_row(steps: Sequence[Step], n: int, turn: int) -> list[Step]:
    """Return a step for each row of this turn's share, another one at each turn of the row."""
    by_row: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        for row in (row for fault in step for row in fault.rows):
            by_row.setdefault(row, []).append(at)
    lap = turn // n
    chosen = {of_row[lap % len(of_row)] for of_row in share([*by_row.values()], n, turn)}
    return [steps[at] for at in sorted(chosen)]


def _once(faults: Sequence[Fault]) -> Steps:
    return lambda _rng: ((fault,) for fault in faults)


def _over_and_over(faults: Sequence[Fault]) -> Steps:
    def steps(_rng: random.Random) -> Iterator[Step]:
        while True:
            yield from ((fault,) for fault in faults)

    return steps


def _pairs(rng: random.Random, faults: Sequence[Fault]) -> Iterator[Step]:
    """Yield one fault, or some of different kinds."""
    while True:
        (wanted,) = rng.choices(range(1, len(TOGETHER) + 1), TOGETHER)
        step: list[Fault] = []
        while len(step) < wanted:
            others = [each for each in faults if not any(each.needs & one.needs for one in step)]
            if not others:
                break
            step.append(rng.choice(others))
        yield tuple(step)


def _also(fault: Fault, *rows: str) -> Fault:
    return replace(fault, rows=(*fault.rows, *rows))


PLANS: dict[str, Callable[[Wish], Plan]] = {
    "smoke": smoke,
    "upgrade": upgrade,
    "ci": ci,
    "brokers": brokers,
    "spark": spark,
    "mixed": mixed,
    "cluster": cluster,
    "chaos": chaos,
}

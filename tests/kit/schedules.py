"""Random schedules: everything that may go wrong goes wrong somewhere, told by one seed."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from service.adapters.memory_kafka import Fault
from service.core.errors import ProducerDeadError, StopError
from tests.kit.pipeline import Pipeline, upper

if TYPE_CHECKING:
    from service.core.records import Record

ERRORS = ("aborted", "aborted", "dead", "fenced")
DOUBTFUL = {"send_offsets", "commit", "abort"}
LIVES_MAX = 60
TRIES_MAX = 30


class CrashError(BaseException):
    """The process ends here; nothing of it goes on."""


class Chance:
    """Faults, crashes, rebalances and outages at random, until their number is used up."""

    def __init__(self, random: Random) -> None:
        self.struck: Counter[str] = Counter()
        self._random = random
        self._left = random.randrange(12)
        self._rate = random.choice((0.02, 0.1, 0.3))
        self._outage = 0
        self.pipeline: Pipeline | None = None

    def __call__(self, step: str) -> Fault | None:
        self._end_outage(step)
        if not self._left or self._random.random() > self._rate or self.pipeline is None:
            if not self._left and self.pipeline is not None:
                self.pipeline.broker.expel("x")
            return None
        self._left -= 1
        kind = self._random.choice(("crash", "group", "claims", "doubt", "fault", "fault", "fault"))
        self.struck[f"{kind} at {step}"] += 1
        return self._strike(kind, step, self.pipeline)

    def interrupts(self) -> bool:
        """Whether business code takes too long at this record."""
        return self._random.random() < 0.05

    def _strike(self, kind: str, step: str, pipeline: Pipeline) -> Fault | None:
        random = self._random
        if kind == "crash":
            raise CrashError(step)
        if kind == "group":
            random.choice((pipeline.broker.join, pipeline.broker.expel))("x")
            if random.random() < 0.3:
                pipeline.broker.expel("w")
            return None
        if kind == "claims" and pipeline.claims is not None:
            pipeline.claims.lost_answers = random.randrange(2)
            pipeline.claims.outage = random.choice((None, "away"))
            self._outage = random.randrange(1, 5)
            return None
        if kind == "doubt":
            return Fault(after=True, doubt=True) if step in DOUBTFUL else None
        error: Any = random.choice(ERRORS)
        return Fault(error, after=random.random() < 0.5, doubt=random.random() < 0.3)

    def _end_outage(self, step: str) -> None:
        if self._outage and step == "attend" and self.pipeline is not None:
            self._outage -= 1
            if not self._outage and self.pipeline.claims is not None:
                self.pipeline.claims.outage = None


def play(seed: int) -> Counter[str]:
    """Run one schedule to its end and judge it; return what struck. AssertionError: a defect."""
    random = Random(seed)
    chance = Chance(random)

    def transform(record: Record) -> Any:
        pipeline.interrupt.due |= chance.interrupts()
        return upper(record)

    partitions = random.randrange(1, 4)
    pipeline = Pipeline(
        partitions, faults=chance, transform=transform, batch_max=random.randrange(1, 6)
    )
    chance.pipeline = pipeline
    _fill(pipeline, partitions, random)
    for _life in range(LIVES_MAX):
        with suppress(CrashError, StopError):
            _open(pipeline)
            pipeline.run(open_first=False)
        if pipeline.drained():
            break
        pipeline.broker.expel("w")
        if pipeline.claims is not None:
            pipeline.claims.outage = None
        pipeline.start("w")
    pipeline.judge()
    return chance.struck


def _open(pipeline: Pipeline) -> None:
    """Try as the start of the process does, until brokers answer."""
    for _ in range(TRIES_MAX):
        with suppress(ProducerDeadError):
            return pipeline.transaction.open()
    return None


def _fill(pipeline: Pipeline, partitions: int, random: Random) -> None:
    for _ in range(random.randrange(1, 25)):
        where = random.randrange(partitions)
        if random.random() < 0.1:
            pipeline.broker.hide(("in", where), random.randrange(1, 4))
            continue
        kind = random.choice(("", "", "", "two", "boom", "filter"))
        twin = random.randrange(3)
        pipeline.write(f"{kind}{random.randrange(12)}/{twin}".encode(), partition=where)


def caught(seeds: range) -> int | None:
    """Return the first seed whose schedule ends in a defect, None when there is none."""
    for seed in seeds:
        try:
            play(seed)
        except AssertionError:
            return seed
    return None

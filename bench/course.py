"""One benchmark: its parts, one after another, each on a sandbox of its own."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench import calls, claims, facts, latency, partitions, spark, state, throughput
from bench.contenders import NATIVE, ON_SPARK, PYTHON, WEAKER, Contender
from bench.peers import contenders as peers
from bench.peers.environments import MissingError
from bench.results import Made, Results, today, write
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

_OTHERS = ("calls", "claims", "spark", "cluster", "state", "recovery")
PARTS = ("throughput", "partitions", "latency", *_OTHERS)
SPARK_WORKERS = 2
THROUGHPUT: tuple[Contender, ...] = (*peers.ALL, *NATIVE, *PYTHON, *WEAKER)
PARTITIONS: tuple[Contender, ...] = (peers.PLAIN, NATIVE[3], PYTHON[3])
LATENCY: tuple[Contender, ...] = (
    peers.PLAIN,
    NATIVE[2],
    PYTHON[2],
    ON_SPARK,
    peers.STREAMS,
    peers.STREAMS_QUICK,
    peers.QUIX,
    peers.AIOKAFKA,
)
WHO = {"throughput": THROUGHPUT, "partitions": PARTITIONS, "latency": LATENCY, "state": state.WHO}
SPARK_RECORDS_MIN = 1_200_000
"""Fewer are done before a Spark is warm."""


class Plan(NamedTuple):
    """How much is measured.

    only  parts, and words of which one must be in a contender's name; empty: all
    """

    records: int
    rounds: int
    seconds: float
    only: tuple[str, ...]

    def parts(self) -> tuple[str, ...]:
        return tuple(part for part in PARTS if part in self.only) or PARTS

    def chosen(self, who: Sequence[Contender]) -> list[Contender]:
        words = [word.lower() for word in self.only if word not in PARTS]
        if not words:
            return list(who)
        # Ratios are against the loop, so it takes part whatever else does.
        return [
            each
            for each in who
            if each == peers.PLAIN or any(word in each.name.lower() for word in words)
        ]

    def command(self, part: str) -> str:
        """Return what to type for the same measurement of a part."""
        words = [part, *(word for word in self.only if word not in PARTS)]
        sizes = f"--records {self.records} --rounds {self.rounds} --seconds {self.seconds:g}"
        return " ".join(["python -m bench", sizes, *(f"--only '{word}'" for word in words)])


def run(plan: Plan, to: Path | None) -> Results:
    """Measure; progress goes to standard error, and after each round all so far to ``to``."""
    found, machine = Results(), facts.of_machine()
    for part in plan.parts():
        say(f"== {part}")
        began_s = time.monotonic()
        made = Made(date=today(), command=plan.command(part), machine=machine, load=[_load()])
        for so_far in _rounds_of(part, plan, made):
            found.parts[part], found.made[part] = so_far, made
            made.load[1:] = [_load()]
            made.seconds = round(time.monotonic() - began_s)
            if to is not None:
                write(found, to)
    return found


def _load() -> float:
    return round(os.getloadavg()[0], 1)


@contextmanager
def sandbox_and_folder(spark_workers: int = 0) -> Iterator[tuple[Sandbox, Path]]:
    """Give both for as long as the block lasts."""
    servers = Sandbox(nodes=1, spark_workers=spark_workers)
    with tempfile.TemporaryDirectory() as folder, servers as sandbox:
        yield sandbox, Path(folder)


def _rounds_of(part: str, plan: Plan, made: Made) -> Iterator[dict[str, Any]]:
    """Yield what a part has found so far, after each of its rounds."""
    if part == "claims":
        yield claims.run(min(plan.records, claims.IDS))
        return
    who = present(plan.chosen(WHO.get(part, ())), made)
    size = (plan.records, plan.rounds)
    with sandbox_and_folder(SPARK_WORKERS if part == "cluster" else 0) as on:
        if part == "throughput":
            yield from throughput.measure(throughput.Course(*on), who, *size, made)
        elif part == "partitions":
            yield from partitions.measure(throughput.Course(*on), who, *size, made)
        elif part == "latency":
            yield from latency.measure(latency.Pace(*on), who, plan.rounds, plan.seconds, made)
        elif part == "state":
            yield from state.measure(on, who, size, plan.seconds, made)
        elif part == "recovery":
            yield from state.recover(on, size, made)
        elif part == "calls":
            yield from calls.measure(*on, plan.rounds, plan.seconds, made)
        else:
            records = max(SPARK_RECORDS_MIN, plan.records)
            yield from spark.measure(on[0], records, plan.rounds, on[1], made)


def present(who: Sequence[Contender], made: Made) -> list[Contender]:
    """Make what contenders need; return those for which that was possible."""
    found = []
    for each in who:
        try:
            each.prepare()
        except MissingError as error:
            made.miss(each.name, str(error))
        else:
            found.append(each)
    return found

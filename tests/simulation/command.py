"""The command line of the simulation: many seeds on some cores, or one seed step by step."""

import argparse
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context

from tests.simulation.mutants import MUTANTS, broken
from tests.simulation.options import FAULTS, KEPT_FAULTS, Options
from tests.simulation.play import Schedule, found_by, play, shrink

# -- What a run is told as: a table of counts, and a defect as the steps that lead to it ---

LINES_MAX = 120

WORDS = {
    "steps": "steps",
    "starts": "processes started",
    "commits": "transactions committed",
    "aborted records hidden": "aborted records hidden",
    "batch_aborted": "batches aborted",
    "expired transactions": "transactions timed out",
    "rebalances": "rebalances",
    "producer_died": "producers lost",
    "member_fenced": "members fenced",
    "in_doubt_fenced": "fences on doubt",
    "dead_letter_written": "dead letters",
    "idle_offsets_committed": "ends committed without records",
    "partitions_unowned": "partitions adopted",
    "claims_unavailable": "holds for claims",
    "claims ahead": "claims answered before they were waited for",
    "claims given up": "claims given up with their batch",
    "state_restored": "partitions whose state was read",
    "tails read": "of these from where a store was",
    "moved back": "groups moved back over their state",
}


def table(schedules: int, seconds: float, counts: Counter[str]) -> str:
    rows = [("schedules", schedules), *((text, counts[name]) for name, text in WORDS.items())]
    rows += [(f"fault: {kind}", counts[kind]) for kind in (*FAULTS, *KEPT_FAULTS)]
    rows += [(name, count) for name, count in sorted(counts.items()) if name.startswith("late ")]
    rows += [(name, count) for name, count in sorted(counts.items()) if name.startswith("left: ")]
    lines = [f"{text:<40} {count:>12,}" for text, count in rows]
    return "\n".join([*lines, f"{'seconds':<40} {seconds:>12.1f}", ""])


def describe(schedule: Schedule, kinds: Sequence[str]) -> str:
    """Return a defect: its seed, the shortest schedule found, and its steps."""
    trace: list[str] = []
    outcome = play(schedule.seed, schedule.options, played=schedule.strikes, trace=trace)
    shown = trace if len(trace) <= LINES_MAX else [*trace[:LINES_MAX], "..."]
    lines = [
        "",
        f"seed {schedule.seed}: {', '.join(sorted(set(kinds)))}",
        f"  play it again: python -m tests.simulation --seed {schedule.seed}",
        "  the shortest schedule found:",
        *(f"    {text}" for text in _setting(schedule.options)),
        *(f"    fault at {key}: {strike}" for key, strike in schedule.strikes.items()),
        "  its steps (simulated seconds):",
        *(f"    {line}" for line in shown),
        *(f"  => {kind}: {text}" for kind, text in outcome.found),
        "",
    ]
    return "\n".join(lines)


def _setting(options: Options) -> list[str]:
    members = "static" if options.static else "dynamic"
    claims = "on" if options.claims else "off"
    state = f", state of {options.inputs} inputs" if options.stateful else ""
    return [
        f"{options.workers} workers ({members}), {options.partitions} partitions",
        f"{options.group} group, batches of {options.batch_max}, claims {claims}{state}",
        *(
            f"input at {item.at_s:.3f} s, partition {item.partition}: {item.end}"
            f" {b' '.join(item.values).decode()}"
            for item in options.items
        ),
    ]


# -- The command ---------------------------------------------------------------------------

CHUNK = 250
DEFECTS_MAX = 3
PROGRESS_S = 2.0


@dataclass
class Part:
    """What a range of seeds came to. ``defects``: seeds, with the classes of what was found."""

    schedules: int
    counts: Counter[str]
    defects: dict[int, list[str]]


def main(arguments: Sequence[str]) -> int:
    """Play; return 1 when there was a defect."""
    told = _parse(arguments)
    began_s = time.monotonic()
    total = Part(0, Counter(), {})
    shown_s = began_s
    for part in _parts(told):
        total.schedules += part.schedules
        total.counts += part.counts
        total.defects |= part.defects
        if time.monotonic() - shown_s > PROGRESS_S:
            shown_s = time.monotonic()
            _progress(total, shown_s - began_s)
        if len(total.defects) >= DEFECTS_MAX:
            break
    seconds = time.monotonic() - began_s
    shortest = [_shortest(seed, told.mutant) for seed in sorted(total.defects)[:DEFECTS_MAX]]
    sys.stdout.write(table(total.schedules, seconds, total.counts))
    for schedule in shortest:
        with _mutant(told.mutant):
            sys.stdout.write(describe(schedule, total.defects[schedule.seed]))
    return 1 if total.defects else 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (1)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the worker like this")
    return parser.parse_args(arguments)


def _parts(told: argparse.Namespace) -> Iterator[Part]:
    """Play the seeds, in parts; the first defects end it early."""
    end = told.seed + told.count
    starts = range(told.seed, end, CHUNK)
    work = ((first, min(first + CHUNK, end), told.mutant) for first in starts)
    if told.jobs == 1:
        yield from map(_play, work)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(told.jobs, mp_context=context) as pool:
        running = deque(pool.submit(_play, each) for each in islice(work, told.jobs * 2))
        while running:
            yield running.popleft().result()
            running.extend(pool.submit(_play, each) for each in islice(work, 1))


def _play(work: tuple[int, int, str | None]) -> Part:
    first, last, mutant = work
    part = Part(0, Counter(), {})
    with _mutant(mutant):
        for seed in range(first, last):
            outcome = play(seed)
            part.schedules += 1
            part.counts += outcome.counts
            if outcome.found:
                part.defects[seed] = [kind for kind, _ in outcome.found]
                if len(part.defects) >= DEFECTS_MAX:
                    break
    return part


def _mutant(name: str | None) -> AbstractContextManager[None]:
    return nullcontext() if name is None else broken(name)


def _shortest(seed: int, mutant: str | None) -> Schedule:
    with _mutant(mutant):
        return shrink(found_by(seed))


def _progress(total: Part, seconds: float) -> None:
    sys.stderr.write(
        f"{total.schedules} schedules, {total.schedules / seconds:.0f} a second,"
        f" {len(total.defects)} defects\n"
    )

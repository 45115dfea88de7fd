"""What a run is told as: a table of counts, and a defect as the steps that lead to it."""

from collections import Counter
from collections.abc import Sequence

from tests.simulation.options import FAULTS, Options
from tests.simulation.play import Schedule, play

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
}


def table(schedules: int, seconds: float, counts: Counter[str]) -> str:
    """Return what happened, by kind."""
    rows = [("schedules", schedules), *((text, counts[name]) for name, text in WORDS.items())]
    rows += [(f"fault: {kind}", counts[kind]) for kind in FAULTS]
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
    return [
        f"{options.workers} workers ({members}), {options.partitions} partitions",
        f"{options.group} group, batches of {options.batch_max}, claims {claims}",
        *(
            f"input at {item.at_s:.3f} s, partition {item.partition}: {item.end}"
            f" {b' '.join(item.values).decode()}"
            for item in options.items
        ),
    ]

"""Whether a record costs more when the backlog lies in many partitions."""

from collections.abc import Iterator, Sequence
from typing import Any

from bench import throughput
from bench.contenders import Contender
from bench.measure import VoidRunError, noise
from bench.results import Made, Runs
from bench.throughput import Course
from hapax.sandbox.machine import say

COUNTS = (1, 6, 32, 128)


def measure(
    course: Course, who: Sequence[Contender], records: int, rounds: int, made: Made
) -> Iterator[dict[str, Any]]:
    """Run each contender over the same backlog in 1, 6, 32 and 128 partitions, in turn."""
    say(f"Writing {len(COUNTS)} backlogs of {records:,} records")
    backlogs = {count: course.backlog(records, count) for count in COUNTS}
    few = course.backlog(throughput.FEW)
    warm = (backlogs[COUNTS[0]], records)
    starts = {each.name: course.start_cpu_s(each, few, warm) for each in who}
    runs: dict[str, Runs] = {each.name: {str(count): [] for count in COUNTS} for each in who}
    for turn in range(rounds):
        for count, backlog in backlogs.items():
            for each in who:
                where = f"{count} partitions, round {turn + 1}, {each.name}"
                try:
                    found = course.run(each, backlog, records, count)
                except VoidRunError as error:
                    made.void(where, error)
                    runs[each.name][str(count)].append(None)
                    continue
                run = throughput.per_million(found, starts[each.name], records)
                runs[each.name][str(count)].append(run)
                say(f"{where}: {throughput.words(run)} ({noise()})")
        yield {"records": records, "runs": runs}

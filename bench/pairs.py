"""One difference within the service, in pairs: what overlap brings, and what exactly once costs.

    python -m bench.pairs overlap       # the claim of the next batch travels meanwhile, or waits
    python -m bench.pairs exactly-once  # transactions of 100 ms against at least once, no claims

Each pair runs one after the other on the same backlog, and which one begins changes with each
round; ratios are taken within a round. Every output is checked as those of ``bench`` are.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import throughput
from bench.contenders import Contender, Service
from bench.measure import Summary, noise
from hapax.engines.batch_runner import BatchRunner
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

ALONE = "--one-batch-at-a-time"


class Alone(Service, frozen=True, kw_only=True):
    """The service as it was: a batch asks for its claims when the one before it is done."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.pairs", ALONE]


PAIRS: dict[str, tuple[Contender, Contender]] = {
    "overlap": (
        Service(name="claims travel meanwhile", claims=True),
        Alone(name="one batch at a time", claims=True),
    ),
    "exactly-once": (
        Service(name="exactly once"),
        Service(name="at least once", guarantee="at_least_once"),
    ),
}


def phases(log: Path) -> Counter[str]:
    """Return the milliseconds of a run's batches by step, and their number and records."""
    total: Counter[str] = Counter()
    for line in log.read_text("utf-8", "replace").splitlines():
        if '"transaction_committed"' not in line:
            continue
        told = json.loads(line)
        total.update(told["phases_ms"])
        total.update(batches=told["transactions"], records=told["records"])
    return total


def main(pair: str, records: int, rounds: int) -> None:
    """Run a pair, and print what each costs and how the first compares with the second."""
    who = PAIRS[pair]
    runs: dict[str, list[dict[str, float]]] = {each.name: [] for each in who}
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        course = throughput.Course(sandbox, Path(folder))
        few, backlog = course.backlog(throughput.FEW), course.backlog(records)
        starts = {each.name: course.start_cpu_s(each, few) for each in who}
        for turn in range(rounds):
            for each in who if turn % 2 == 0 else reversed(who):
                found = course.run(each, backlog, records)
                spent = phases(max(Path(folder).glob("run-*.log"), key=_number))
                run = throughput.per_million(found, starts[each.name], records)
                run |= {"wait_us": 1e3 * spent["claim"] / spent["records"]}
                run |= {"batch": spent["records"] / spent["batches"]}
                runs[each.name].append(run)
                say(
                    f"round {turn + 1}, {each.name}: {throughput.words(run)},"
                    f" {run['wait_us']:.2f} us for claims, {run['batch']:.0f} a batch ({noise()})"
                )
    print("\n".join(table(runs)))


def table(runs: dict[str, list[dict[str, float]]]) -> list[str]:
    """Return a table of both, and the ratios of the first to the second within rounds."""
    lines = [
        "| |CPU us a record|records/s|in the step claim, us a record|broker CPU us|Redis CPU us|",
        "|---|---|---|---|---|---|",
    ]
    keys = {
        "cpu_s_per_million": 2,
        "records_per_s": 0,
        "wait_us": 2,
        "broker_cpu_s_per_million": 2,
        "redis_cpu_s_per_million": 2,
    }
    for name, found in runs.items():
        cells = [Summary.of([run[key] for run in found]).text(at) for key, at in keys.items()]
        lines.append(f"|{name}|{'|'.join(cells)}|")
    one, other = runs.values()
    cells = []
    for key in keys:
        pairs = [(a[key], b[key]) for a, b in zip(one, other, strict=True)]
        ratios = [a / b for a, b in pairs if b]
        cells.append(Summary.of(ratios).text(2) if ratios else "")
    return [*lines, f"|first against second|{'|'.join(cells)}|"]


def _number(log: Path) -> int:
    return int(log.stem.rpartition("-")[2])


def _run_alone() -> None:
    """Be the service without look_ahead."""
    from hapax.__main__ import main as run  # noqa: PLC0415 - it reads the command line

    BatchRunner.look_ahead = lambda _self: False  # type: ignore[assignment, method-assign] # what is compared
    run()


if __name__ == "__main__":
    if ALONE in sys.argv:
        sys.argv.remove(ALONE)
        _run_alone()
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("pair", choices=PAIRS)
        parser.add_argument("--records", type=int, default=1_000_000)
        parser.add_argument("--rounds", type=int, default=5)
        given = parser.parse_args()
        main(given.pair, given.records, given.rounds)

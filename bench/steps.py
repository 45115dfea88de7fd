"""Where the time of a transaction goes at a fixed pace, and what client settings change.

    python -m bench.steps                     # the settings as they come
    python -m bench.steps --set linger.ms=0   # and with another value, in turn

Visibility is measured as ``bench --only latency`` does it. The steps are those of the service's
own log lines: ``send`` hands records over, ``send_offsets`` waits for AddOffsetsToTxn and
TxnOffsetCommit, ``commit`` for what is left of AddPartitionsToTxn and Produce, then for EndTxn.
A stall is a batch that took more than 100 ms; the step that took most of it is named.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import Service
from bench.latency import Pace
from bench.measure import Summary, noise, percentile
from bench.results import Run
from hapax.sandbox import Sandbox
from hapax.sandbox.machine import say

STALL_MS = 100.0
STEPS = ("identify", "claim", "transform", "plan", "send", "send_offsets", "commit")
COLUMNS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "records": "records a transaction",
    "claim": "claim ms",
    "send_offsets": "send_offsets ms",
    "commit": "commit ms",
    "all": "all steps ms",
    "all p99": "p99 of all steps ms",
}


def of_batches(log: Path) -> tuple[dict[str, float], Counter[str]]:
    """Return medians of a run's batches, and its stalls by step."""
    found = []
    for line in log.read_text("utf-8", "replace").splitlines():
        if '"transaction_committed"' in line:
            told = json.loads(line)
            several = told["transactions"]  # those of a second share a line: the mean of each
            sums = {"records": told["records"], **told["phases_ms"]}
            found.append({name: each / several for name, each in sums.items()})
    for batch in found:
        batch["all"] = sum(batch[step] for step in STEPS)
    ordered = {key: sorted(batch[key] for batch in found) for key in found[0]}
    run = {key: percentile(values, 0.5) for key, values in ordered.items()}
    stalls = Counter(
        max(STEPS, key=lambda step: batch[step]) for batch in found if batch["all"] > STALL_MS
    )
    return run | {"all p99": percentile(ordered["all"], 0.99)}, stalls


def measure(who: Sequence[Service], rate: int, seconds: float, rounds: int) -> list[str]:
    """Run all in turn; return a table of medians over the rounds, and the stalls."""
    runs: dict[str, list[Run]] = {each.name: [] for each in who}
    stalls: dict[str, Counter[str]] = {each.name: Counter() for each in who}
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        pace = Pace(sandbox, Path(folder))
        pace.run(who[0], rate, 1.0)  # the brokers make their own topics for the first transaction
        for turn in range(rounds):
            for each in who:
                run = pace.run(each, rate, seconds)
                logs = Path(folder).glob("pace-*.log")
                steps, stalled = of_batches(max(logs, key=lambda log: log.stat().st_mtime_ns))
                run |= steps
                runs[each.name].append(run)
                stalls[each.name] += stalled
                words = ", ".join(f"{text} {run[key]:.1f}" for key, text in COLUMNS.items())
                say(f"round {turn + 1}, {each.name}: {words}, stalls {dict(stalled)} ({noise()})")
    lines = [f"| |{'|'.join(COLUMNS.values())}|stalls|", "|---" * (len(COLUMNS) + 2) + "|"]
    for name, found in runs.items():
        cells = [Summary.of([run[key] for run in found]).text(1) for key in COLUMNS]
        named = ", ".join(f"{step} {count}" for step, count in stalls[name].items()) or "none"
        lines.append(f"|{name}|{'|'.join(cells)}|{named}|")
    return lines


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="Records a second.")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="PROPERTY=VALUE")
    given = parser.parse_args()
    who = [Service(name="as it comes", claims=True)]
    for change in given.set:
        name, _, value = change.partition("=")
        more = (("HAPAX_KAFKA__PROPERTIES", json.dumps({name: value})),)
        who.append(Service(name=change, claims=True, more=more))
    print("\n".join(measure(who, given.rate, given.seconds, given.rounds)))


if __name__ == "__main__":
    main()

"""The tables of the page: each cell a median with its range."""

from typing import Any

from bench import results
from bench.measure import Summary
from bench.peers.contenders import PLAIN
from bench.report.goals import CPU, RATE, goals
from bench.results import Results, Runs
from bench.spark import ARROW, UDF
from bench.state import STATELESS


def goals_table(found: Results) -> list[str]:
    lines = ["| figure | goal | found | |", "|---|---|---|---|"]
    for goal in goals(found):
        bound = f"{'≤' if goal.at_most else '≥'} {goal.bound:g}"
        cell = (
            ""
            if goal.found is None
            else f"{goal.found:.2f}"
            if goal.found < 10
            else f"{goal.found:.0f}"
        )
        verdict = {None: "not measured", True: "reached", False: "**missed**"}[goal.reached]
        lines.append(f"| {goal.title} | {bound} | {cell} | {verdict} |")
    return lines


def throughput(
    found: dict[str, Any], other: str = PLAIN.name, words: str = "the plain loop"
) -> list[str]:
    runs: Runs = found["runs"]
    lines = [
        (
            f"| | CPU, µs a record | of {words} | records/s | memory MB | broker CPU, µs |"
            " Redis CPU, µs |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in runs:
        if not results.values(runs, name, CPU):
            continue
        cells = {
            key: Summary.of(results.values(runs, name, key))
            for key in (CPU, RATE, "rss_mb", "broker_" + CPU, "redis_" + CPU)
        }
        lines.append(
            f"| {name} | {cells[CPU].text(2)} | {_ratio(runs, name, CPU, other)}"
            f" | {cells[RATE].text(0)} | {cells['rss_mb'].most:.0f}"
            f" | {cells['broker_' + CPU].median:.2f} | {cells['redis_' + CPU].median:.2f} |"
        )
    return lines


def short(found: dict[str, Any], native: str, python: str) -> str:
    """Return the sentence of the README."""
    first, second = (
        results.median_ratio(found["runs"], name, PLAIN.name, CPU) for name in (native, python)
    )
    if first is None or second is None:
        return "not measured"
    return (
        f"exactly once, with claims and a function, a record costs {first:.2f} of the CPU of a"
        f" plain loop, {second:.2f} without the native path"
    )


def partitions(found: dict[str, Any]) -> list[str]:
    by_name: dict[str, Runs] = found["runs"]
    counts = list(next(iter(by_name.values()), {}))
    lines = [
        "| CPU, µs a record | " + " | ".join(f"{count} partitions" for count in counts) + " |",
        "|---|" + "--:|" * len(counts),
    ]
    for name, runs in by_name.items():
        cells = [
            Summary.of(each).text(2) if (each := results.values(runs, count, CPU)) else "void"
            for count in counts
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def latency(found: dict[str, Any]) -> list[str]:
    lines = [
        (
            "| records/s | | p50 ms | p99 ms | p99.9 ms | p50, p99 of the plain loop"
            " | CPU s of a run | memory MB |"
        ),
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for each in found["rates"]:
        runs: Runs = each["runs"]
        for name in runs:
            if not results.values(runs, name, "p50_ms"):
                continue
            cells = [
                Summary.of(results.values(runs, name, key)).text(1)
                for key in ("p50_ms", "p99_ms", "p999_ms")
            ]
            ratio = ", ".join(filter(None, (_ratio(runs, name, k) for k in ("p50_ms", "p99_ms"))))
            cpu = Summary.of(results.values(runs, name, "cpu_s")).median
            memory = Summary.of(results.values(runs, name, "rss_mb")).most
            lines.append(
                f"| {each['rate']:,} | {name} | {' | '.join(cells)} | {ratio} | {cpu:.1f}"
                f" | {memory:.0f} |"
            )
    return lines


def calls(found: dict[str, Any]) -> list[str]:
    lines = ["| | records/s | of concurrency ÷ latency | memory MB |", "|---|--:|--:|--:|"]
    runs: Runs = found["runs"]
    for name in runs:
        if results.values(runs, name, RATE):
            cells = [
                Summary.of(results.values(runs, name, key)).text(digits)
                for key, digits in ((RATE, 0), ("of_bound", 2))
            ]
            memory = Summary.of(results.values(runs, name, "rss_mb")).most
            lines.append(f"| {name} | {' | '.join(cells)} | {memory:.0f} |")
    lines += ["", "| | records/s of the other partitions |", "|---|--:|"]
    runs = found["straggler"]
    for name in runs:
        if rates := results.values(runs, name, "others_per_s"):
            lines.append(f"| {name} | {Summary.of(rates).text(0)} |")
    lines += ["", "| records/s | | p50 ms | p99 ms | p99.9 ms |", "|---|---|--:|--:|--:|"]
    runs = found["visibility"]
    for name in runs:
        if results.values(runs, name, "p50_ms"):
            cells = [
                Summary.of(results.values(runs, name, key)).text(1)
                for key in ("p50_ms", "p99_ms", "p999_ms")
            ]
            lines.append(f"| {found['rate']:,} | {name} | {' | '.join(cells)} |")
    return lines


def claims(found: dict[str, Any]) -> list[str]:
    lines = [
        (
            "| | ids/s | client CPU, µs an id | CPU of Redis, µs an id | the least"
            " | of bare HSETNX | bytes an id | resident |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    return lines + [
        f"| {each['pass']} | {each['ids_per_s']:,} | {each['client_us_per_id']:.2f}"
        f" | {each['server_us_per_id']:.2f} | {each['least_server_us_per_id']:.2f}"
        f" | {_times(each['of_bare'])} | {each['bytes_per_id'] or '':.4}"
        f" | {each.get('resident_per_id') or '':.4} |"
        for each in found["passes"]
    ]


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def spark(found: dict[str, Any]) -> list[str]:
    runs: Runs = found["runs"]
    lines = [
        (
            f"| | records/s, warm | CPU, µs a record, with the start | rate of {UDF}"
            f" | rate of {ARROW} | CPU of {UDF} |"
        ),
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in runs:
        if not results.values(runs, name, CPU):
            continue
        cells = [_ratio(runs, name, RATE, UDF), _ratio(runs, name, RATE, ARROW)]
        lines.append(
            f"| {name} | {Summary.of(results.values(runs, name, RATE)).text(0)}"
            f" | {Summary.of(results.values(runs, name, CPU)).text(1)}"
            f" | {' | '.join(cells)} | {_ratio(runs, name, CPU, UDF)} |"
        )
    return lines


def state(found: dict[str, Any]) -> list[str]:
    paced = latency(found) if "rates" in found else []
    return [*throughput(found, STATELESS.name, "the first"), "", *paced]


def recovery(found: dict[str, Any]) -> list[str]:
    heads = "first output, ms | of all partitions, ms | keys/s read | own memory, MB | files, MB"
    keys = ("first_ms", "all_ms", "keys_per_s", "own_mb", "files_mb")
    lines = [f"| keys | | {heads} |", "|--:|---|" + "--:|" * len(keys)]
    for size in found["sizes"]:
        for name, runs in size["runs"].items():
            given = [[run[key] for run in runs if run and key in run] for key in keys]
            cells = [Summary.of(each).text(0) if each else "" for each in given]
            lines.append(f"| {size['keys']:,} | {name} | {' | '.join(cells)} |")
    return lines


TABLES = {
    "throughput": throughput,
    "partitions": partitions,
    "latency": latency,
    "calls": calls,
    "claims": claims,
    "spark": spark,
    "cluster": spark,
    "state": state,
    "recovery": recovery,
}


def _ratio(runs: Runs, name: str, key: str, other: str = PLAIN.name) -> str:
    found = results.ratios(runs, name, other, key)
    return Summary.of(found).text(2) if found else ""

"""CPU per record and records a second, under a backlog.

Primary: CPU seconds of the process for a million records, without what its start costs. On a
shared machine that says more than records a second, which depend on everybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import contenders, traffic
from bench.contenders import Contender, Plain
from bench.measure import Summary, noise, server_cpu_s
from hapax.sandbox.progress import say

if TYPE_CHECKING:
    from pathlib import Path

    from hapax.sandbox import Sandbox

RATIO_MAX = 2.0
RUN_TIMEOUT_S = 300.0


def _topic(sandbox: Sandbox, name: str) -> str:
    # The broker's own clock tells when an output arrived, the same for every contender.
    config = {"message.timestamp.type": "LogAppendTime"}
    sandbox.create_topic(name, traffic.PARTITIONS, config)
    return name


def _run(
    sandbox: Sandbox, who: Contender, source: str, records: int, folder: Path, turn: int
) -> dict[str, float]:
    label = f"{who.name.replace(', ', '-').replace(' ', '-').lower()}-{source}-{turn}"
    target = _topic(sandbox, f"out-{label}")
    broker, redis = sandbox.kafka.brokers[0].pid, sandbox.redis.pid
    before = server_cpu_s(broker), server_cpu_s(redis)
    child = who.start(sandbox, label, (source, target), folder / f"{label}.log", at_end=True)
    spent = child.wait(RUN_TIMEOUT_S)
    after = server_cpu_s(broker), server_cpu_s(redis)
    writing_s = 0.0
    if records:
        writing_s = traffic.apart(traffic.check, sandbox.bootstrap_servers, target, records)
    sandbox.redis.flush()
    return {
        "cpu_s": spent.cpu_s,
        "rss_mb": spent.rss_mb,
        "broker_cpu_s": after[0] - before[0],
        "redis_cpu_s": after[1] - before[1],
        "writing_s": writing_s,
    }


def measure(sandbox: Sandbox, records: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Run all contenders in turn, ``rounds`` times, each on fresh topics and groups."""
    empty, backlog = _topic(sandbox, "empty"), _topic(sandbox, "backlog")
    say(f"Writing a backlog of {records:,} records")
    traffic.apart(traffic.fill, sandbox.bootstrap_servers, backlog, records)
    starts = {}
    for who in contenders.ALL:  # twice: the brokers make their own topics during the first
        _run(sandbox, who, empty, 0, folder, 0)
        starts[who.name] = _run(sandbox, who, empty, 0, folder, 1)["cpu_s"]
        say(f"{who.name}: a start costs {starts[who.name]:.2f} CPU s")
    runs: dict[str, list[dict[str, float]]] = {who.name: [] for who in contenders.ALL}
    for turn in range(rounds):
        for who in contenders.ALL:
            found = _run(sandbox, who, backlog, records, folder, turn)
            millions = records / 1e6
            run = {
                "cpu_s_per_million": (found["cpu_s"] - starts[who.name]) / millions,
                "records_per_s": records / found["writing_s"],
                "rss_mb": found["rss_mb"],
                "broker_cpu_s_per_million": found["broker_cpu_s"] / millions,
                "redis_cpu_s_per_million": found["redis_cpu_s"] / millions,
            }
            runs[who.name].append(run)
            say(
                f"round {turn + 1}, {who.name}: {run['cpu_s_per_million']:.2f} CPU s a million,"
                f" {run['records_per_s']:,.0f} records/s, {run['rss_mb']:.0f} MB ({noise()})"
            )
    return {"records": records, "starts_cpu_s": starts, "runs": runs, "ratios": _ratios(runs)}


def _ratios(runs: dict[str, list[dict[str, float]]]) -> dict[str, list[float]]:
    """Return by contender the CPU against the plain loop of the same round."""
    (control,) = [who.name for who in contenders.ALL if isinstance(who, Plain)]
    return {
        name: [
            one["cpu_s_per_million"] / other["cpu_s_per_million"]
            for one, other in zip(found, runs[control], strict=True)
        ]
        for name, found in runs.items()
    }


def table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| |CPU s per million|against the plain loop|records/s|RSS MB|broker CPU s|Redis CPU s|",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in found["runs"].items():
        columns = {key: Summary.of([run[key] for run in runs]) for key in runs[0]}
        lines.append(
            f"|{name}|{columns['cpu_s_per_million'].text(2)}"
            f"|{Summary.of(found['ratios'][name]).text(2)}"
            f"|{columns['records_per_s'].text(0)}|{columns['rss_mb'].median:.0f}"
            f"|{columns['broker_cpu_s_per_million'].median:.2f}"
            f"|{columns['redis_cpu_s_per_million'].median:.2f}|"
        )
    return lines

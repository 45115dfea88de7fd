"""``python -m bench``: what Hapax costs. ``make bench`` runs all of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench import claims as claims_bench
from bench import latency as latency_bench
from bench import spark as spark_bench
from bench import throughput as throughput_bench
from hapax.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(help=__doc__, pretty_exceptions_enable=False)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, not tables.")]
Records = Annotated[int, typer.Option(help="Records of the backlog.", min=1000)]
Rounds = Annotated[int, typer.Option(help="Runs of each contender, in turn.", min=1)]
Seconds = Annotated[float, typer.Option(help="Measured seconds of each latency run.", min=1)]
Rate = Annotated[list[int] | None, typer.Option(help="Records a second, again for more.")]
Ids = Annotated[int, typer.Option(help="Ids of each pass.", min=1000)]


@app.command()
def throughput(records: Records = 1_000_000, rounds: Rounds = 3, *, as_json: Json = False) -> None:
    """CPU per record and records a second under a backlog, against a plain loop."""
    found = _with_sandbox(lambda *on: throughput_bench.measure(on[0], records, rounds, on[1]))
    _tell({"throughput": found}, as_json=as_json)


@app.command()
def latency(
    rate: Rate = None, rounds: Rounds = 3, seconds: Seconds = 12.0, *, as_json: Json = False
) -> None:
    """End to end latency at a fixed pace, against a plain loop."""
    rates = tuple(rate or latency_bench.RATES)
    found = _with_sandbox(lambda *on: latency_bench.measure(on[0], rates, rounds, seconds, on[1]))
    _tell({"latency": found}, as_json=as_json)


@app.command()
def claims(ids: Ids = 1_000_000, *, as_json: Json = False) -> None:
    """What claims cost: ids a second, CPU on both sides, bytes in Redis."""
    _tell({"claims": claims_bench.run(ids, claims_bench.BATCH)}, as_json=as_json)


@app.command()
def spark(records: Records = 2_400_000, rounds: Rounds = 3, *, as_json: Json = False) -> None:
    """The Spark engine under a backlog, against Spark's own Kafka source and sink."""
    found = _with_sandbox(lambda *on: spark_bench.measure(on[0], records, rounds, on[1]))
    _tell({"spark": found}, as_json=as_json)


@app.command()
def rounds(seconds: Seconds = 20.0, *, as_json: Json = False) -> None:
    """How long a round of the Spark engine takes at 1,000 records/s."""
    found = _with_sandbox(lambda *on: spark_bench.rounds(on[0], seconds, on[1]))
    _tell({"rounds": found}, as_json=as_json)


@app.command(name="all")
def everything(
    records: Records = 1_000_000,
    rounds: Rounds = 3,
    seconds: Seconds = 12.0,
    *,
    as_json: Json = False,
) -> None:
    """All of it, about ten minutes."""
    rates = latency_bench.RATES
    _tell(
        {
            "throughput": _with_sandbox(
                lambda *on: throughput_bench.measure(on[0], records, rounds, on[1])
            ),
            "latency": _with_sandbox(
                lambda *on: latency_bench.measure(on[0], rates, rounds, seconds, on[1])
            ),
            "claims": claims_bench.run(records, claims_bench.BATCH),
        },
        as_json=as_json,
    )


@app.callback(invoke_without_command=True)
def default(context: typer.Context) -> None:
    """``make bench`` names no command: it means all."""
    if context.invoked_subcommand is None:
        everything()


def _with_sandbox(measured: Callable[[Sandbox, Path], dict[str, Any]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, Sandbox(nodes=1) as sandbox:
        return measured(sandbox, Path(folder))


def _tell(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    tables = {
        "throughput": throughput_bench.table,
        "latency": latency_bench.table,
        "claims": claims_bench.table,
        "spark": spark_bench.table,
        "rounds": spark_bench.rounds_table,
    }
    for name, part in found.items():
        print(f"\n{name}\n")
        print("\n".join(tables[name](part)))


if __name__ == "__main__":
    app()

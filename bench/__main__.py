"""What Hapax costs, alongside a loop written by hand and other libraries.

python -m bench                                   # everything, as make bench
python -m bench --quick                           # everything in a few minutes, roughly
python -m bench --only throughput --only streams  # one part, and contenders by words
python -m bench --json build/bench/found.json     # keep every run
python -m bench report --keep build/bench/found.json   # docs/performance.md from it
python -m bench guard                             # the record path did not become slower
python -m bench guard --against ../old/.venv/bin/python   # than that of another checkout
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench import course, guard, report as reporting, results as kept, spark as spark_bench
from bench.course import PARTS, Plan
from bench.measure import percentile

# typer would join the lines of the examples where this mark is missing.
app = typer.Typer(
    help=__doc__.replace("\n\n", "\n\n\b\n", 1),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write every run to this file.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help=f"A part ({', '.join(PARTS)}), or words of a contender's name. Again for more."
    ),
]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    *,
    only: Only = None,
    records: Annotated[int, typer.Option(help="Records of a backlog.", min=1000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Runs of each contender, in turn.", min=1)] = 3,
    seconds: Annotated[float, typer.Option(help="Of each run at a fixed pace.", min=1)] = 12.0,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of it, once.")] = False,
    to: JsonFile = None,
) -> None:
    """What Hapax costs, alongside a loop written by hand and other libraries."""
    if context.invoked_subcommand is not None:
        return
    plan = Plan(records, rounds, seconds, tuple(only or ()))
    if quick:
        plan = Plan(100_000, 1, 4.0, tuple(only or ()))
    found = course.run(plan, to)
    print(reporting.tables_of(found))
    if found.voids:
        raise typer.Exit(1)


@app.command()
def report(
    keep: Annotated[
        list[Path] | None,
        typer.Option(help="Join what --json wrote to docs/performance first. Again for more."),
    ] = None,
) -> None:
    """Write docs/performance.md, its pictures and the sentence of the README."""
    reporting.keep([kept.read(path) for path in keep or ()])


@app.command(name="guard")
def guarded(
    against: Annotated[
        str | None,
        typer.Option(help="Compare with the service of this interpreter instead, in the same run."),
    ] = None,
) -> None:
    """Fail when the record path costs more of the plain loop than bench/guard.json allows."""
    if against is None:
        raise typer.Exit(guard.main())
    for name, ratio in guard.compare(against).items():
        print(f"{name}: {ratio:.3f} of the other")


@app.command()
def rounds(seconds: Annotated[float, typer.Option(min=1)] = 20.0) -> None:
    """How long the Spark engine takes from task to task at 1,000 records/s."""
    with course.sandbox_and_folder() as (sandbox, folder):
        found = spark_bench.rounds(sandbox, seconds, folder)
    titles = {"gap_ms": "from task to task", "oldest_ms": "oldest record at its commit"}
    for name, title in titles.items():
        cells = [percentile(found[name], share) for share in (0.5, 0.95, 1)]
        print(f"{title}: median, p95, most: {', '.join(f'{cell:,.0f}' for cell in cells)} ms")
    print(f"{found['ranges']} ranges at {spark_bench.RATE:,} records/s, {found['load']}")


if __name__ == "__main__":
    app()

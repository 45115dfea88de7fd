"""``hapax demo``: what exactly once means, on this machine, in about a minute, on either engine."""

from __future__ import annotations

import json
import shlex
import signal
import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hapax.commands.screen import interruptible, require_tools

if TYPE_CHECKING:
    from hapax.demo.stage import Stage
    from hapax.demo.story import DemoSummary

_INTERRUPTED = 130
_FAILED = 1


class DemoEngine(StrEnum):
    """What runs the pipeline."""

    WORKER = "worker"
    SPARK = "spark"


def demo(
    seconds: Annotated[
        float,
        typer.Option(
            min=1.0, help="How long to publish; continues until all faults were injected."
        ),
    ] = 30.0,
    rate: Annotated[int, typer.Option(min=500, max=20_000, help="Records a second.")] = 3000,
    seed: Annotated[int, typer.Option(help="The same seed publishes the same orders.")] = 1,
    engine: Annotated[
        DemoEngine, typer.Option(help="Two workers, or Spark and a worker that take over in turn.")
    ] = DemoEngine.WORKER,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Run Spark on a cluster: a master and two workers.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep Kafka and Redis running afterwards.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures only.")] = False,
) -> None:
    """Kill and freeze real workers on a real Kafka, and count what came out.

    Orders are published: some twice, some poison, some in transactions
    that are aborted. Two workers are killed and frozen while they work. An
    ordinary at-least-once loop reads the same input alongside them and is killed, too. Then input
    and output are read back and compared record by record.
    Exit code 1: something of Hapax was lost, doubled or out of order.

    With --engine spark the pipeline runs on Spark. A Python worker of it is
    killed, then Spark as a whole; then it hands over to a worker under load,
    and the worker hands back. It needs PySpark, which comes with the extra spark.

    With --cluster as well it runs on a standalone Spark cluster on this machine: an executor is
    killed, a worker of the cluster, and its master.

    Examples:
      hapax demo
      hapax demo --engine spark
      hapax demo --engine spark --cluster
      hapax demo --seconds 60 --rate 5000
      hapax demo --seed 7 --json > figures.json
      hapax demo --keep
    """
    if cluster and engine is not DemoEngine.SPARK:
        raise typer.BadParameter("--cluster is of Spark: add --engine spark")
    require_tools("demo")
    from hapax.demo.child import DemoError
    from hapax.demo.engines import set_stage, strike
    from hapax.demo.screen import DemoScreen
    from hapax.demo.story import tell
    from hapax.sandbox import SandboxError

    began_s = time.monotonic()
    try:
        with interruptible(), DemoScreen() as screen:
            unbuilt = set_stage(engine, screen, seed=seed, rate=rate, cluster=cluster)
            screen.phase("Starting Kafka and Redis")
            with unbuilt as stage:
                outcome = tell(stage, seconds, strike(stage))
                screen.close()
                _show(outcome, time.monotonic() - began_s, as_json=as_json)
                if keep:
                    _stay(stage, as_json=as_json)
    except (DemoError, SandboxError) as error:
        typer.echo(f"hapax demo: {error}", err=True)
        raise typer.Exit(_FAILED) from error
    except KeyboardInterrupt:
        typer.echo("Interrupted; everything that was started has ended.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(0 if outcome.exact else _FAILED)


def _show(outcome: DemoSummary, duration_s: float, *, as_json: bool) -> None:
    from hapax.demo.table import figures, sentences, table

    if as_json:
        found = {**figures(outcome), "duration_s": round(duration_s, 1)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(table(outcome))
    for sentence in sentences(outcome):
        console.print(sentence, markup=False, soft_wrap=True)
    console.print(f"{duration_s:.0f} s in all.", markup=False)


def _stay(stage: Stage, *, as_json: bool) -> None:
    """Print the environment, and leave the servers running until Ctrl-C."""
    for name, value in stage.exports().items():
        typer.echo(f"export {name}={shlex.quote(value)}", err=as_json)
    typer.echo("Kafka and Redis run. Ctrl-C ends them.", err=True)
    with suppress(KeyboardInterrupt):
        signal.pause()

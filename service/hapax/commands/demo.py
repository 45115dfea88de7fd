"""``hapax demo``: what exactly once means, on this machine, in about a minute, on either engine."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from hapax.commands.screen import ProgressLine, interruptible, judged, require_tools, say
from hapax.core.errors import HapaxError

if TYPE_CHECKING:
    from rich.table import Table

    from hapax.demo.stage import DemoFault
    from hapax.demo.story import DemoSummary

_COUNTS = {
    "records in": "records_in",
    "  distinct events": "events",
    "records out": "outputs",
    "dead letters": "dead_letters",
    "duplicates removed": "duplicates_removed",
}
_ANOMALIES = {
    "lost": "lost",
    "doubled": "doubled",
    "  sent twice": "doubled_by_repeats",
    "  after a kill": "doubled_by_crashes",
    "out of order": "out_of_order",
    "wrong or torn": "wrong",
    "from aborted records": "from_aborted",
}


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
        Literal["worker", "spark"],
        typer.Option(help="Two workers, or Spark and a worker that take over in turn."),
    ] = "worker",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures only.")] = False,
) -> None:
    """Kill and freeze real workers on a real Kafka, and count what came out.

    Orders are published: some twice, some poison, some in transactions
    that are aborted. Two workers are killed and frozen while they work. An
    ordinary at-least-once loop reads the same input alongside them and is killed, too. Then
    hapax audit reads input and output back and compares them record by record.
    Exit code 1: something of Hapax was lost, doubled or out of order.

    With --engine spark the pipeline runs on Spark. A Python worker of it is
    killed, then Spark as a whole; then it hands over to a worker under load,
    and the worker hands back. It needs PySpark, which comes with the extra spark.

    Examples:
      hapax demo
      hapax demo --engine spark
      hapax demo --seconds 60 --rate 5000
      hapax demo --seed 7 --json > figures.json
    """
    require_tools("demo")
    from hapax.demo.story import set_stage, tell

    began_s = time.monotonic()
    try:
        with (
            interruptible(),
            closing(DemoScreen()) as screen,
            set_stage(engine, screen, seed=seed, rate=rate) as stage,
        ):
            outcome = tell(stage, seconds)
            screen.close()
            _show(outcome, time.monotonic() - began_s, as_json=as_json)
    except HapaxError as error:
        typer.echo(f"hapax demo: {error}", err=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        typer.echo("Interrupted; everything that was started has ended.", err=True)
        raise typer.Exit(130) from None
    raise typer.Exit(0 if outcome.exact else 1)


class DemoScreen(ProgressLine):
    """Shows one phase at a time, with figures that move, and what has happened above it."""

    INTERVAL_S = 5.0

    def __init__(self) -> None:
        from hapax.sandbox import machine

        super().__init__()
        machine.progress = lambda: nullcontext(self.show)
        self._began_s, self._phase = time.monotonic(), ""

    def phase(self, text: str) -> None:
        self._phase = text
        self.note(text)

    def note(self, text: str) -> None:
        say(f"{time.monotonic() - self._began_s:5.1f} s  {text}", err=True)

    def figures(self, text: str) -> None:
        self.show(self._phase, note=text)


def _show(outcome: DemoSummary, duration_s: float, *, as_json: bool) -> None:
    if as_json:
        found = {**figures(outcome), "duration_s": round(duration_s, 1)}
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(table(outcome))
    for sentence in (*sentences(outcome), f"{duration_s:.0f} s in all."):
        console.print(sentence, markup=False, soft_wrap=True)


def table(outcome: DemoSummary) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD)
    grid.add_column("", no_wrap=True)
    grid.add_column("hapax", justify="right", no_wrap=True)
    grid.add_column("ordinary at-least-once loop", justify="right", no_wrap=True)
    both = (outcome.hapax, outcome.ordinary)
    for title, name in _COUNTS.items():
        grid.add_row(title, *(f"{getattr(verdict, name):,}" for verdict in both))
    grid.add_row("aborted records hidden", *[f"{outcome.aborted:,}"] * 2)
    grid.add_row("faults", _counted(outcome.faults), _counted(outcome.ordinary_faults))
    if outcome.hand_overs:
        grid.add_row("hand-overs", str(len(outcome.hand_overs)), "")
    grid.add_section()
    for title, name in _ANOMALIES.items():
        grid.add_row(title, *(judged(getattr(verdict, name)) for verdict in both))
    return grid


def sentences(outcome: DemoSummary) -> list[str]:
    """Return the result in words, offenders included."""
    words = []
    if outcome.exact:
        words.append("Exactly once: every event had its whole effect once, in order.")
    else:
        words.append("The promise was broken.")
        words += [
            f"  {kind}: {example}"
            for kind, examples in outcome.hapax.examples.items()
            for example in examples
        ]
        codes = [*outcome.exit_codes, *(one.exit_code for one in outcome.hand_overs)]
        if any(codes):
            words.append(f"  exit codes of those that were asked to leave: {codes}, not 0")
    words += [f"{one.sentence[0].upper()}{one.sentence[1:]}." for one in outcome.hand_overs]
    if outcome.ordinary.exact:
        words.append("The ordinary loop was exact, too, this time: the faults missed its gap.")
    return words


def figures(outcome: DemoSummary) -> dict[str, object]:
    found: dict[str, Any] = msgspec.to_builtins(outcome)
    for name, verdict in (("hapax", outcome.hapax), ("ordinary", outcome.ordinary)):
        found[name] |= {"doubled": verdict.doubled, "exact": verdict.exact}
    return {"exact": outcome.exact, **found}


def _counted(faults: list[DemoFault]) -> str:
    kinds = Counter(fault.kind for fault in faults)
    words = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items()]
    return ",\n".join(words) or "none"

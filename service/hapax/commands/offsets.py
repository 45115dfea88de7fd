"""``hapax offsets``: where every input partition stands, and how far behind the group is."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hapax.commands.offsets_adopt import adopt
from hapax.commands.offsets_moves import rewind, set_, skip
from hapax.commands.offsets_screen import figures, show
from hapax.commands.offsets_translate import translate
from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    print_json,
    refusals,
)
from hapax.commands.times import span_ms
from hapax.core.errors import ConfigurationError, PreflightError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from hapax.operations.offsets import Look

PAUSE_MIN_S = 0.2


app = typer.Typer(name="offsets", invoke_without_command=True)
app.command(name="set")(set_)
app.command()(rewind)
app.command()(skip)
app.command()(translate)
app.command()(adopt)


@app.callback()
def offsets(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[str, typer.Option(help="Interval of --watch.")] = "2s",
    as_json: JsonFlag = False,
) -> None:
    """Show, per input partition, its offsets, the committed offset, and the lag.

    low: first offset still there. committed: the group's offset. position: where a process
    continues. stable: last stable offset, the end for readers. high:
    end of the log. lag: offsets unread, markers of transactions included. lag
    time: age of the oldest unread record. undecided: offsets after the first open
    transaction. Joins no group. With --watch --json: one object a line.

    Examples:
      hapax offsets
      hapax offsets --watch --interval 5s
      hapax offsets --json
    """
    if context.invoked_subcommand is not None:
        return
    with refusals(as_json=as_json):
        interval_s = min(86_400.0, span_ms("--interval", interval) / 1000)
        if interval_s < PAUSE_MIN_S:
            raise ConfigurationError([f"--interval {interval}: at least {PAUSE_MIN_S * 1000:g}ms"])
        settings = environment_settings()
        from hapax.operations.offsets import looks

        with looks(settings) as asked:
            if not watch:
                found = asked.look()
                print_json(figures(found)) if as_json else show(found)
                return
            asked.look()  # what is wrong from the start is an error, not a line of the watch
            _watch(asked.look, interval_s, as_json=as_json)


def _watch(look: Callable[[], list[Look]], interval_s: float, *, as_json: bool) -> None:
    """Show a look again and again; brokers that are away for a while end nothing."""
    from rich.console import Console

    console = Console()
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        # An exception that lands in a callback or a destructor of the client is swallowed there.
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        while not interrupted:
            began_s = time.monotonic()
            try:
                found = look()
            except PreflightError as error:
                for problem in error.problems:
                    typer.echo(problem, err=True)
            else:
                if as_json:
                    typer.echo(json.dumps(figures(found)))
                else:
                    if console.is_terminal:
                        console.clear()
                    show(found)
            # Brokers that answer slowly are not asked without a pause.
            time.sleep(max(PAUSE_MIN_S, interval_s - (time.monotonic() - began_s)))
    except KeyboardInterrupt:
        return

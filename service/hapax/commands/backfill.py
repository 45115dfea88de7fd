"""``hapax backfill``: a bounded span of existing topics under an app of its own."""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError, ExitCode, HapaxError
from hapax.core.working_folder import import_from_here

if TYPE_CHECKING:
    from hapax.operations.offsets import Advance, Backfill
    from hapax.settings import Settings

INTERVAL_S = 2.0
SPAN = ("HAPAX_INPUT__START", "HAPAX_INPUT__END")
_LOG_LEVEL = "HAPAX_TELEMETRY__LOG_LEVEL"

Engine = Literal["worker", "spark"]


def backfill(
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, 7d (ago), 2030-01-31T12:00Z, or TOPIC/PARTITION/OFFSET of every"
            " partition, separated by commas. Default: HAPAX_INPUT__START.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Before the first record of that time or later; written alike. latest: all that"
            " exists at the first start. Default: HAPAX_INPUT__END, else latest.",
        ),
    ] = None,
    engine: Annotated[
        Engine | None, typer.Option(help="What runs it. Default: HAPAX_ENGINE.")
    ] = None,
    master: screen.SparkMaster = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would be read; --json: by partition.")
    ] = False,
    as_json: screen.JsonFlag = False,
) -> None:
    """Run the pipeline over a span of its topics, and stop at the end of it.

    Settings are those of hapax run, with a HAPAX_APP that has no offsets yet:
    claims, transactional ids and progress are the app's own. The first start
    looks up both ends of each partition and keeps them with the group's offsets.
    Stopped or killed, the same command continues to the same ends; done, it leaves
    at once. Then workers of the same app take over at exactly these offsets.

    Figures are offsets: records, and the markers and aborted records between them.
    Advance and logs go to standard error; with --json one object a line to
    standard output. Exit code 1: it was stopped before the end.

    Examples:
      hapax backfill --from 2026-11-01 --until 2026-11-20T12:00Z --dry-run
      hapax backfill --from 30d --engine spark --master spark://spark:7077
      hapax backfill --from orders/0/100,orders/1/250 --until latest --json
    """
    with screen.refusals(as_json=as_json) as line:
        settings = screen.one_cluster_settings(_changes(start, until, engine, master))
        import_from_here()
        from hapax.operations.offsets import Backfill

        with Backfill(settings) as look:
            parts = look.look()
            begun = look.progress(parts)
            if as_json:
                paths = {"start": "span.start", "end": "span.stop", "offsets": "total"}
                same = ("topic", "partition", "done")
                partitions = [screen.fields(one, *same, **paths) for one in parts]
                _line("planned", begun, partitions=partitions)
            else:
                typer.echo(
                    f"{begun.total:,} offsets in {len(parts):,} partitions, {begun.done:,} of them"
                    " done"
                )
            if dry_run:
                return
            from hapax.operations.reading import repeated
            from hapax.wiring import serve

            advance = partial(_advance, look, line, as_json=as_json)
            with repeated(advance, INTERVAL_S), redirect_stdout(sys.stderr):
                code = int(serve(settings))
            if code:
                raise typer.Exit(code)
            done = look.progress(parts := look.look())
            left = settings.stop_after.open == "leave" and look.held_back(parts)
    _end(settings, done, left=left, as_json=as_json)
    raise typer.Exit(0 if done.complete or left else int(ExitCode.UNEXPECTED))


def _changes(
    start: str | None, until: str | None, engine: str | None, master: str | None
) -> dict[str, str]:
    if master is not None and (engine or os.environ.get("HAPAX_ENGINE")) != "spark":
        raise ConfigurationError("--master is an option of --engine spark: name both")
    given = {
        "HAPAX_INPUT__START": start,
        "HAPAX_INPUT__END": until or os.environ.get("HAPAX_INPUT__END") or "latest",
        "HAPAX_ENGINE": engine,
        "HAPAX_SPARK__MASTER": master,
        _LOG_LEVEL: os.environ.get(_LOG_LEVEL) or "warning",
    }
    return {name: text for name, text in given.items() if text is not None}


def _advance(look: Backfill, line: screen.ProgressLine, *, as_json: bool) -> None:
    with suppress(HapaxError):  # brokers that are away: the service says so itself
        progress = look.progress(look.look())
        if as_json:
            _line("running", progress)
        else:
            line.show("offsets done", progress.done, progress.total)


def _end(settings: Settings, progress: Advance, *, left: bool, as_json: bool) -> None:
    if as_json:
        state = "done" if progress.complete else "left" if left else "stopped"
        hand_over = {"app": settings.app, "unset": list(SPAN), "command": "hapax run"}
        _line(state, progress, **({"hand_over": hand_over} if progress.complete else {}))
    elif progress.complete:
        typer.echo(
            f"done: {progress.total:,} offsets. HAPAX_APP={settings.app} HAPAX_ENGINE=worker hapax"
            f" run continues there, without {' and '.join(SPAN)}"
        )
    else:
        why = "left to open transactions" if left else "stopped"
        typer.echo(
            f"{why}: {progress.done:,} of {progress.total:,} offsets done. The same command"
            " continues from there"
        )


def _line(state: str, progress: Advance, **more: Any) -> None:
    figures = {
        "state": state,
        "done": progress.done,
        "total": progress.total,
        "offsets_per_s": round(progress.rate, 1),
        "left_s": None if progress.left_s is None else round(progress.left_s, 1),
        **more,
    }
    # Past a redirection: logs of the service go to standard error meanwhile.
    stream = sys.__stdout__ or sys.stdout
    stream.write(json.dumps(figures) + "\n")
    stream.flush()

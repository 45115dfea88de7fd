"""``hapax dev``: Kafka, Redis and the pipeline of this folder together, while it is written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hapax.commands import screen
from hapax.commands.admin.records import show_record
from hapax.commands.publish import parse_header
from hapax.commands.sandbox import DataFolder, parse_topic

_FILE = Path("settings.env")


def dev(
    env_file: Annotated[
        list[Path] | None,
        typer.Option("--env-file", metavar="FILE", help="Settings; default: settings.env."),
    ] = None,
    assignments: screen.Assignments = None,
    header: screen.Headers = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            help="A further topic, as one that the transform chooses; repeatable.",
            metavar="NAME[:PARTITIONS]",
        ),
    ] = None,
    partitions: Annotated[
        int, typer.Option(min=1, max=1000, help="Of each topic of the settings.")
    ] = 4,
    key_pointer: Annotated[
        str, typer.Option(metavar="/POINTER", help="JSON pointer to the key in each line.")
    ] = "",
    once: Annotated[
        bool, typer.Option("--once", help="Process standard input, show what came out, and end.")
    ] = False,
    data: DataFolder = None,
) -> None:
    """Start Kafka, Redis and the pipeline of this folder, and start it again when a file changes.

    Both servers listen where the settings say, which must be ports of this machine.
    Each line of standard input becomes a record of the first input topic; outputs and
    dead letters are printed as they come. Ctrl-C ends all of it.

    Examples:
      hapax dev
      hapax dev --once < events.jsonl
      hapax dev --once --key-pointer /customer < payments.jsonl
      hapax dev --topic large-orders --set HAPAX_TRANSFORM=other:transform
    """
    screen.require_tools("dev")
    files = env_file if env_file is not None else [_FILE] * _FILE.is_file()
    given = dict(os.environ)
    if not files and not any(name.startswith("HAPAX_") for name in given):
        _say(f"there is no {_FILE} here: name a file by --env-file, or begin with hapax init NAME")
    with screen.refusals(prefix="hapax: "):
        from hapax.dev.session import DevOptions, DevSession
        from hapax.sandbox import machine
        from hapax.settings.env_file import merged

        machine.progress = screen.progress
        options = DevOptions(
            lambda: merged(given, files, assignments=assignments, flags={}, given_by={}),
            tuple(parse_header(text) for text in header or ()),
            dict(parse_topic(one) for one in topic or []),
            partitions,
            data,
            show_record,
            _say,
            key_pointer,
        )
        with screen.interruptible(), DevSession(Path.cwd(), options) as session:
            if once:
                raise typer.Exit(session.once(() if sys.stdin.isatty() else sys.stdin.buffer))
            settings = session.settings
            kafka, topic_in = settings.kafka.bootstrap_servers, settings.input.topics[0]
            _say(f"Kafka at {kafka}, input topic {topic_in}")
            if settings.telemetry.port:
                _say(f"status page at http://127.0.0.1:{settings.telemetry.port}/")
            _say("a line that is typed here becomes a record; Ctrl-C ends everything")
            try:
                session.stay(sys.stdin.buffer)
            except KeyboardInterrupt:
                _say("stopping")


def _say(text: str) -> None:
    screen.say(f"hapax dev: {text}", err=True)

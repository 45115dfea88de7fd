"""All commands in one tree; each is a file of this folder.

What typer's parser does not do by itself: what was typed wrong is one sentence, and help flows.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hapax import __version__
from hapax.commands import config, sandbox, screen
from hapax.commands.admin import claims, dead_letters, offsets, state, transactions
from hapax.commands.admin.pause import pause, resume
from hapax.commands.admin.records import consume, lag, trace
from hapax.commands.audit import audit
from hapax.commands.backfill import backfill
from hapax.commands.demo import demo
from hapax.commands.dev import dev
from hapax.commands.doctor import doctor
from hapax.commands.publish import publish
from hapax.commands.run import run as run_service

EnvFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--env-file",
        metavar="FILE",
        help="Variables for what the environment does not set, as Docker Compose reads them;"
        " repeatable.",
    ),
]
_BEFORE = {"--env-file": "--env-file FILE", "--set": "--set NAME=VALUE"}
"""Options of every command, before its name."""


class Commands(TyperGroup):
    """The root of the tree."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            _flow(command)

    def main(self, args: Any = None, *arguments: Any, **extra: Any) -> Any:
        """Run a command; what was typed wrong is one sentence, as every other error."""
        try:
            code = super().main(args, *arguments, **{**extra, "standalone_mode": False})
        except typer.Abort:
            typer.echo("Aborted.", err=True)
            code = 1
        except ModuleNotFoundError as error:
            if error.name not in {"fcntl", "resource"}:
                raise
            sys.exit("hapax: this command needs Linux or macOS")
        except Exception as error:
            # By their method: typer has had the classes from click, and has its own now.
            if not hasattr(error, "format_message"):
                raise
            code = getattr(error, "exit_code", 2)
            if type(error).__name__ != "NoArgsIsHelpError":  # the help was printed
                # Of the words themselves: what was typed wrong was not parsed.
                words = sys.argv[1:] if args is None else args
                screen.refuse([_sentence(error)], as_json="--json" in words)
        sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hapax"
    option = getattr(error, "option_name", None)
    root, _, command = path.partition(" ")
    if type(error).__name__ == "NoSuchOption" and option in _BEFORE and command != "run":
        return f"{path}: {option} belongs before the command: {root} {_BEFORE[option]} {command}"
    said = " ".join(error.format_message().split()).rstrip(".")
    said += "" if said.endswith("?") else "."
    return f"{path}: {said} {path} --help says what it takes."


def _flow(command: Any) -> None:
    """Let paragraphs of help break where the terminal ends, and examples where they did."""
    command.help = "\n\n".join(
        paragraph if "\n  " in paragraph else " ".join(paragraph.split("\n"))
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n")
    )
    for each in getattr(command, "commands", {}).values():
        _flow(each)


app = typer.Typer(
    name="hapax",
    cls=Commands,
    help="Exactly-once consume-transform-produce for Kafka. Settings are variables that begin with"
    " HAPAX_: hapax config reference lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (claims, config, dead_letters, offsets, sandbox, state, transactions):
    app.add_typer(group.app)
for command in (audit, backfill, consume, demo, dev, doctor, lag, pause, publish, resume, trace):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hapax {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_version,
            is_eager=True,
            help="Print the name and the version.",
        ),
    ] = False,
    env_file: EnvFile = None,
    assignments: screen.Assignments = None,
) -> None:
    """Exactly-once consume-transform-produce for Kafka."""
    del version  # its callback has printed it
    context.obj = {}
    with screen.refusals(prefix="hapax: "):
        screen.set_variables(context.obj, env_file, assignments, {})


@app.command()
@screen.with_flags
def run(
    given_by: dict[str, str], env_file: EnvFile = None, assignments: screen.Assignments = None
) -> None:
    """Run the service. Settings come from the environment, from files, flags and --set.

    TARGET is pipeline:transform for the function transform of pipeline.py, in the
    working folder or installed; without it, records pass unchanged.

    Examples:
      hapax run pipeline:transform --input orders --output orders-priced
        --dead-letter orders-dead --app orders --brokers kafka:9092
      hapax run --env-file settings.env --set HAPAX_INSTANCE=orders-1

    Required: app, brokers (or KAFKA_BOOTSTRAP_SERVERS), input and output. A flag counts
    more than the environment. All variables: hapax config reference
    """
    del env_file, assignments  # with_flags has read them
    raise typer.Exit(run_service(given_by=given_by))


@app.command("help")
def help_(command: Annotated[list[str] | None, typer.Argument(help="Its name.")] = None) -> None:
    """Print what a command does and takes, as --help after its name does.

    Example: hapax help offsets rewind
    """
    app([*(command or ()), "--help"], prog_name="hapax")


@app.command()
def init(
    name: Annotated[
        str, typer.Argument(help="The project's name: lower-case letters, digits, dashes.")
    ],
) -> None:
    """Make a project: a folder NAME with a function, tests, settings, image and compose file.

    The function is in pipeline.py. The input topic is called NAME, the others NAME-out
    and NAME-dead. Nothing is written into a folder that holds files.

    Example: hapax init orders
    """
    screen.require_tools("dev")
    with screen.refusals(prefix="hapax: "):
        from hapax.dev import create_project

        written = create_project(name, Path())
    for file in written:
        typer.echo(file)
    typer.echo(f"Next: cd {name}, then hapax dev --once < events.jsonl", err=True)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)

"""All commands in one tree; each is a file of this folder."""

from __future__ import annotations

from typing import Annotated

import typer

from hapax import __version__
from hapax.commands import claims, config, dead_letters, offsets, sandbox, transactions
from hapax.commands.audit import audit
from hapax.commands.backfill import backfill
from hapax.commands.consume import consume
from hapax.commands.demo import demo
from hapax.commands.dev import dev
from hapax.commands.doctor import doctor
from hapax.commands.init import init
from hapax.commands.lag import lag
from hapax.commands.parser import Commands
from hapax.commands.pause import pause, resume
from hapax.commands.publish import publish
from hapax.commands.run import run as run_service
from hapax.commands.trace import trace
from hapax.commands.variables import Assignments, EnvFile, set_variables

app = typer.Typer(
    name="hapax",
    cls=Commands,
    help="Exactly-once consume-transform-produce for Kafka. Settings are variables that begin with"
    " HAPAX_: hapax config reference lists them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(claims.app, name="claims")
app.add_typer(config.app, name="config")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(offsets.app, name="offsets")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(transactions.app, name="transactions")
app.command()(audit)
app.command()(backfill)
app.command()(consume)
app.command()(demo)
app.command()(dev)
app.command()(doctor)
app.command()(init)
app.command()(lag)
app.command()(pause)
app.command()(publish)
app.command()(resume)
app.command()(trace)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hapax {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the name and the version.",
        ),
    ] = False,
    env_file: EnvFile = None,
    assignments: Assignments = None,
) -> None:
    """Exactly-once consume-transform-produce for Kafka."""
    del version  # its callback has printed it
    set_variables(env_file, assignments)


@app.command()
def run() -> None:
    """Run the service. Settings come from the environment, from files and from --set.

    Modules of the working folder can be imported: HAPAX_TRANSFORM=pipeline:transform
    is the function transform of pipeline.py there.

    Example: HAPAX_APP=orders HAPAX_KAFKA__BOOTSTRAP_SERVERS=kafka:9092
    HAPAX_INPUT__TOPICS=orders HAPAX_OUTPUT__TOPIC=orders-clean hapax run

    Example: hapax run --env-file settings.env --set HAPAX_INSTANCE=orders-1

    Required: HAPAX_APP, HAPAX_KAFKA__BOOTSTRAP_SERVERS, HAPAX_INPUT__TOPICS,
    HAPAX_OUTPUT__TOPIC. All variables: hapax config reference
    """
    raise typer.Exit(run_service())


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)

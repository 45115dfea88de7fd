"""All commands in one tree; each is a file of this folder."""

from __future__ import annotations

from typing import Annotated

import typer

from hapax import __version__
from hapax.commands import claims, config, dead_letters, offsets, sandbox, transactions
from hapax.commands.audit import audit
from hapax.commands.demo import demo
from hapax.commands.doctor import doctor
from hapax.commands.pause import pause, resume
from hapax.commands.publish import publish
from hapax.commands.run import run as run_service
from hapax.commands.trace import trace

app = typer.Typer(
    name="hapax",
    help="Exactly-once consume-transform-produce for Kafka.",
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
app.command()(demo)
app.command()(doctor)
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
) -> None:
    """Exactly-once consume-transform-produce for Kafka."""


@app.command()
def run() -> None:
    """Run the service. Settings come from the environment.

    Example: HAPAX_APP=orders HAPAX_KAFKA__BOOTSTRAP_SERVERS=kafka:9092
    HAPAX_INPUT__TOPICS=orders HAPAX_OUTPUT__TOPIC=orders-clean hapax run
    """
    raise typer.Exit(run_service())


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)

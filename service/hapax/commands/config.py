"""``hapax config``: what is in force, whether it can work, and what there is to set."""

from __future__ import annotations

import os
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError
from hapax.core.working_folder import import_from_here

if TYPE_CHECKING:
    from hapax.settings import Settings

app = typer.Typer(name="config", help="Show, check and explain the settings.", no_args_is_help=True)


@app.command()
@screen.with_flags
def show(given_by: dict[str, str], as_json: screen.JsonFlag = False) -> None:
    """Print every setting in force, and where its value is from. Secrets are hidden.

    TARGET and flags are those of hapax run.
    """
    with screen.refusals(as_json=as_json):
        from hapax.settings import load_with_origins

        settings, origins = load_with_origins(os.environ, given_by)
    effective = settings.effective()
    if as_json:
        found = {name: {"value": text, "from": origins[name]} for name, text in effective.items()}
        screen.print_json(found)
        return
    screen.show(
        effective, {"variable": str, "value": effective.__getitem__, "from": origins.__getitem__}
    )


@app.command()
@screen.with_flags
def check(given_by: dict[str, str], as_json: screen.JsonFlag = False) -> None:
    """Name everything that is wrong with the settings; exit code 2 when something is.

    Also imports HAPAX_TRANSFORM, and lets the Kafka client read its properties. Connects to
    nothing. TARGET and flags are those of hapax run.
    """
    import_from_here()
    with screen.refusals(as_json=as_json):
        from hapax.settings import load_with_origins

        settings, _origins = load_with_origins(os.environ, given_by)
        from hapax.kafka.properties import check_client_properties

        problems: list[str] = []
        for examine in (_load, check_client_properties):
            try:
                examine(settings)
            except ConfigurationError as error:
                problems += error.problems
        if problems:
            raise ConfigurationError(problems)
    if as_json:
        screen.print_json({"ok": True, "problems": []})
    else:
        typer.echo("settings are fine")


def _load(settings: Settings) -> None:
    if settings.spark.dataframe is None:
        from hapax.engines.overlapping_calls import load_calls

        load_calls(settings)
    else:
        from hapax.engines.spark.dataframe.query import load_pipeline
        from hapax.engines.spark.session import require_pyspark

        require_pyspark()
        load_pipeline(settings.spark.dataframe)


@app.command()
def reference(
    form: Annotated[
        Literal["table", "markdown", "json"], typer.Option("--format", help="How to print it.")
    ] = "table",
    as_json: screen.JsonFlag = False,
) -> None:
    """Print all variables with meaning, default and what is allowed."""
    from hapax.settings.reference import markdown, rows

    if as_json or form == "json":
        screen.print_json(rows())
    elif form == "markdown":
        typer.echo(markdown(), nl=False)
    else:
        names = ("variable", "meaning", "default", "allowed")
        plain = [{name: row[name].replace("`", "") for name in names} for row in rows()]
        screen.show(plain, {name: itemgetter(name) for name in names})

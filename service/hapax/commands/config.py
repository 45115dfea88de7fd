"""``hapax config``: what is in force, whether it can work, and what there is to set."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

from hapax.commands.screen import (
    JsonFlag,
    environment_settings,
    print_json,
    print_table,
    refusals,
)
from hapax.core.working_folder import import_from_here

app = typer.Typer(name="config", help="Show, check and explain the settings.", no_args_is_help=True)


class Format(StrEnum):
    """How the reference is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@app.command()
def show(as_json: JsonFlag = False) -> None:
    """Print every setting in force, and where its value is from. Secrets are hidden."""
    with refusals(as_json=as_json):
        from hapax.settings import load_with_origins

        settings, origins = load_with_origins(os.environ)
    effective = settings.effective()
    if as_json:
        print_json(
            {name: {"value": value, "from": origins[name]} for name, value in effective.items()}
        )
        return
    print_table(
        ("variable", "value", "from"),
        [(name, value, origins[name]) for name, value in effective.items()],
    )


@app.command()
def check(as_json: JsonFlag = False) -> None:
    """Name everything that is wrong with the settings; exit code 2 when something is.

    Also imports HAPAX_TRANSFORM, and lets the Kafka client read its properties. Connects to
    nothing.
    """
    import_from_here()
    with refusals(as_json=as_json):
        settings = environment_settings()
        from hapax.operations.configuration import check as check_further

        check_further(settings)
    if as_json:
        print_json({"ok": True, "problems": []})
    else:
        typer.echo("settings are fine")


@app.command()
def reference(
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
    as_json: JsonFlag = False,
) -> None:
    """Print all variables with meaning, default and what is allowed."""
    from hapax.settings.reference import markdown, rows

    if as_json or form is Format.JSON:
        print_json(rows())
    elif form is Format.MARKDOWN:
        typer.echo(markdown(), nl=False)
    else:
        columns = ("variable", "meaning", "default", "allowed")
        print_table(
            columns, [tuple(row[column].replace("`", "") for column in columns) for row in rows()]
        )

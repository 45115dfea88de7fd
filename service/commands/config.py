"""``hapax config``: what is in force, whether it can work, and what there is to set."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from service.core.errors import ConfigurationError, ExitCode
from service.settings import load_settings, load_with_origins
from service.settings.reference import markdown, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(name="config", help="Show, check and explain the settings.", no_args_is_help=True)

# A table that is piped into a file or a pager is not folded to 80 columns.
_COLUMNS_WITHOUT_TERMINAL = 240

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Format(StrEnum):
    """How the reference is printed."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


@app.command()
def show(as_json: JsonFlag = False) -> None:
    """Print every setting in force, and where its value is from. Secrets are hidden."""
    try:
        settings, origins = load_with_origins(os.environ)
    except ConfigurationError as error:
        _refuse(error, as_json)
    effective = settings.effective()
    if as_json:
        _print_json(
            {name: {"value": value, "from": origins[name]} for name, value in effective.items()}
        )
        return
    _print_table(
        ("variable", "value", "from"),
        [(name, value, origins[name]) for name, value in effective.items()],
    )


@app.command()
def check(as_json: JsonFlag = False) -> None:
    """Name everything that is wrong with the settings; exit code 2 when something is."""
    try:
        load_settings(os.environ)
    except ConfigurationError as error:
        _refuse(error, as_json)
    if as_json:
        _print_json({"ok": True, "problems": []})
    else:
        typer.echo("settings are fine")


@app.command()
def reference(
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
    as_json: JsonFlag = False,
) -> None:
    """Print all variables with meaning, default and what is allowed."""
    if as_json or form is Format.JSON:
        _print_json(rows())
    elif form is Format.MARKDOWN:
        typer.echo(markdown(), nl=False)
    else:
        columns = ("variable", "meaning", "default", "allowed")
        _print_table(
            columns, [tuple(row[column].replace("`", "") for column in columns) for row in rows()]
        )


def _refuse(error: ConfigurationError, as_json: bool) -> NoReturn:
    if as_json:
        _print_json({"ok": False, "problems": error.problems})
    else:
        for problem in error.problems:
            typer.echo(problem, err=True)
    raise typer.Exit(ExitCode.CONFIGURATION)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE  # noqa: PLC0415 - only people who ask for a table wait for rich
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    console = Console()
    if not console.is_terminal:
        console.width = _COLUMNS_WITHOUT_TERMINAL
    table = Table(*columns, box=SIMPLE)
    for line in lines:
        # Text, or brackets in a value would be read as markup.
        table.add_row(*(Text(cell) for cell in line))
    console.print(table)

"""``hapax state``: what a transform keeps by key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hapax.commands import screen

if TYPE_CHECKING:
    from hapax.operations.state import KeptValue

app = typer.Typer(
    name="state", help="Show and export what a transform keeps.", no_args_is_help=True
)


@app.command()
def show(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help=r"The records' key; \x00 stands for a NUL byte.")
    ],
    as_json: screen.JsonFlag = False,
) -> None:
    r"""Show what is kept for a key, by name, as committed transactions left it.

    It reads the changelog of the app, so that no worker need run.
    Exit code 1: nothing is kept for the key.

    Examples:
      hapax state show customer-17
      hapax state show customer-17 --json
    """
    with screen.refusals(as_json=as_json) as line:
        settings = screen.environment_settings()
        from hapax.operations.state import kept

        found = list(kept(settings, screen.id_bytes(key), line.show))
    if as_json:
        screen.print_json([_figures(one) for one in found])
    elif found:
        columns: screen.Columns[KeptValue] = {
            "partition": lambda one: one.partition,
            "name": lambda one: one.name,
            "value": _text,
            "expires": _expiry,
        }
        screen.show(found, columns)
    if not found:
        if not as_json:
            screen.say(f"Nothing is kept for {key}.", err=True)
        raise typer.Exit(1)


@app.command()
def export() -> None:
    """Print all that is kept: one JSON object a line, by partition and key.

    Values are as JSON has them; bytes are {"base64": ...}.

    Example: hapax state export > state.jsonl
    """
    with screen.refusals() as line:
        settings = screen.environment_settings()
        from hapax.operations.state import kept

        for one in kept(settings, tell=line.show):
            typer.echo(json.dumps(_figures(one)))


def _figures(one: KeptValue) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "key": screen.json_bytes(one.key),
        "name": one.name,
        "value": one.value,
        "expires_ms": one.expires_ms,
    }


def _text(one: KeptValue) -> str:
    return screen.printable(json.dumps(one.value, ensure_ascii=False))


def _expiry(one: KeptValue) -> str:
    return "" if one.expires_ms is None else screen.moment_text(one.expires_ms)

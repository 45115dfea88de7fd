"""``hapax config``: what is in force, whether it can work, and what there is to set."""

from __future__ import annotations

import os
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from hapax.commands import screen
from hapax.core.errors import ConfigurationError
from hapax.core.working_folder import import_from_here

if TYPE_CHECKING:
    from hapax.settings import Settings
    from hapax.settings.base import Variable

_INTRODUCTION: Final = """\
# Settings

<!-- Written by `hapax config reference --format markdown`; a test compares. -->

Settings are environment variables; [flags and files](commands.md#settings-by-flags) set them, too.
`hapax config check` names every mistake, `hapax config show` what is in force, and from where.

- Durations carry their unit: `250ms`, `1.5s`, `5m`, `24h`, `7d`.
- Sizes are `16MiB` (2^20), `1MB` (10^6) or a plain number of bytes.
- An empty variable is an unset one.
- Whatever may hold a secret can also be read from a file, which the variable with `_FILE` names; \
line breaks at the end are dropped. Only one of the two may be set.
- A `HAPAX_` variable that nothing reads is an error, except those that Kubernetes sets for a \
service of that name.
- Each must be shorter than the next: `HAPAX_TRANSACTION__INTERVAL`, `HAPAX_TRANSACTION__TIMEOUT`, \
`HAPAX_GROUP__SESSION_TIMEOUT` and `HAPAX_WATCHDOG__TIMEOUT`, `HAPAX_GROUP__MAX_POLL_INTERVAL`, \
`HAPAX_DEDUP__TTL`.
"""
_OUTPUT_SECURITY: Final = """
## Output kafka security

`HAPAX_OUTPUT__KAFKA__SECURITY__…`: the variables of [Kafka security](#kafka-security), with the \
same defaults, for the cluster of the outputs.
"""

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
    if as_json or form == "json":
        screen.print_json(rows())
    elif form == "markdown":
        typer.echo(markdown(), nl=False)
    else:
        names = ("variable", "meaning", "default", "allowed")
        plain = [{name: row[name].replace("`", "") for name in names} for row in rows()]
        screen.show(plain, {name: itemgetter(name) for name in names})


def rows() -> list[dict[str, str]]:
    """Return one row per variable: variable, meaning, default, allowed, and file for secrets."""
    from hapax.settings.model import VARIABLES

    return [_row(variable) for variable in VARIABLES]


def markdown() -> str:
    from hapax.settings.model import VARIABLES

    parts = [_INTRODUCTION]
    for group, members in groupby(VARIABLES, key=lambda variable: variable.path[:-1]):
        title = " ".join(group).replace("_", " ").capitalize() or "Pipeline"
        if group == ("output", "kafka", "security"):
            parts.append(_OUTPUT_SECURITY)
            continue
        parts.append(
            f"\n## {title}\n\n| variable | meaning | default | allowed |\n|---|---|---|---|\n"
        )
        parts.extend(_line(_row(variable)) for variable in members)
    return "".join(parts)


def _row(variable: Variable) -> dict[str, str]:
    row = {
        "variable": variable.name,
        "meaning": variable.meaning,
        "default": "required" if variable.default is None else variable.default,
        "allowed": variable.form.allowed,
    }
    if variable.file_name is not None:
        row["file"] = variable.file_name
    return row


def _line(row: dict[str, str]) -> str:
    default = row["default"]
    if default not in {"required", "unset"} and "`" not in default:
        default = f"`{default}`"
    allowed = row["allowed"].replace(" · ", ", ")
    variable = f"`{row['variable']}`" + (f", `{row['file']}`" if "file" in row else "")
    return f"| {variable} | {row['meaning']} | {default} | {allowed} |\n"

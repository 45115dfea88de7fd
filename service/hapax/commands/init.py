"""``hapax init``: a folder with a function, its tests, its settings and its image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hapax.commands.screen import refusals, require_tools


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
    require_tools("dev")
    with refusals(prefix="hapax: "):
        from hapax.dev.project import create_project

        written = create_project(name, Path())
    for file in written:
        typer.echo(file)
    typer.echo(f"Next: cd {name}, then hapax dev --once < events.jsonl", err=True)

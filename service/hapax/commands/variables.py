"""Where commands find settings in addition to the environment: in a file, and in ``--set``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hapax.commands.screen import refusals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EnvFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--env-file",
        metavar="FILE",
        help="Variables, one NAME=VALUE a line, for what the environment does not set; repeatable.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A variable, in place of the environment's; repeatable.",
    ),
]


def set_variables(files: Sequence[Path] | None, assignments: Sequence[str] | None) -> None:
    """Put variables into the environment of this process and of those that it starts.

    ``--set`` counts more than the environment, that more than a file, a file more than those
    before it. Ends with exit code 2 and a sentence for what cannot be read.
    """
    with refusals(prefix="hapax: "):
        os.environ.update(merged(os.environ, files, assignments))


def merged(
    environ: Mapping[str, str], files: Sequence[Path] | None, assignments: Sequence[str] | None
) -> dict[str, str]:
    """Return all variables; raise ConfigurationError for what cannot be read."""
    from hapax.settings.env_file import assignment, read_env_file

    given: dict[str, str] = {}
    for file in files or ():
        given |= read_env_file(file)
    return {**given, **environ, **dict(assignment(text) for text in assignments or ())}

"""What the parser does beyond typer's: settings after any command, errors and help as sentences."""

from __future__ import annotations

import copy
import inspect
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from hapax.commands.screen import struck
from hapax.commands.variables import set_variables

WITHOUT_SETTINGS = {"demo", "init", "sandbox", "version"}
"""Commands that read no settings."""
GIVEN = {"env_file", "assignments"}


class Commands(TyperGroup):
    """The root of the tree; what it takes before a command it also takes after one."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        given = [_spread(each) for each in self.params if each.name in GIVEN]
        for name, command in self.commands.items():
            _extend(command, [] if name in WITHOUT_SETTINGS else given)

    def main(self, *arguments: Any, **extra: Any) -> Any:
        """Run a command; what was typed wrong is one sentence, as every other error."""
        extra, standalone = {**extra, "standalone_mode": False}, extra.get("standalone_mode", True)
        try:
            code = super().main(*arguments, **extra)
            if not standalone:
                return code
        except typer.Abort:
            if not standalone:
                raise
            typer.echo("Aborted.", err=True)
            code = 1
        except Exception as error:
            # By their method: typer has had the classes from click, and has its own now.
            if not standalone or not hasattr(error, "format_message"):
                raise
            code = getattr(error, "exit_code", 2)
            if type(error).__name__ != "NoArgsIsHelpError":  # the help was printed
                [sentence] = struck([_sentence(error)])
                typer.echo(sentence, err=True)
        sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "hapax"
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{path}: {said}. {path} --help says what it takes."


def _spread(option: Any) -> Any:
    """Return an option of the root as one of any command, which does not know of it."""
    option = copy.copy(option)
    option.expose_value = False
    if option.name == "env_file":
        option.callback = lambda _context, _option, files: set_variables(
            [Path(file) for file in files or ()], None
        )
    else:
        option.callback = lambda _context, _option, texts: set_variables(None, texts)
    return option


def _extend(command: Any, given: list[Any]) -> None:
    """Give a command and those below it these options, and flowing text for its help."""
    command.help = flowing(command.help or "")
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        taken = {text for each in command.params for text in each.opts}
        command.params += [each for each in given if not taken & set(each.opts)]
    for each in below.values():
        _extend(each, given)


def flowing(text: str) -> str:
    """Return help whose paragraphs break where the terminal ends, and examples where they did."""
    return "\n\n".join(
        paragraph if "\n  " in paragraph else " ".join(paragraph.split("\n"))
        for paragraph in inspect.cleandoc(text).split("\n\n")
    )

"""What a page may name, and whether it exists. Each check yields what does not."""

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from hapax.commands.tree import app
from hapax.settings import VARIABLES
from hapax.telemetry.events import Events
from hapax.telemetry.metrics import Metrics, SpoolMetrics

Check = Callable[[str, Path], Iterator[str]]

ROOT = Path(__file__).parents[2]
SETTINGS = {
    name
    for variable in VARIABLES
    for name in (variable.name, variable.file_name)
    if name is not None
}
COMMANDS: Any = typer.main.get_command(app)  # a click command, of typer's own click
NEVER_RUN = {"pip", "docker", "make", "set", "export", "curl", "python", "python3", ".", "cd"}
NEVER_RUN |= {"kafka-consumer-groups.sh"}


@cache
def slugs(page: Path) -> list[str]:
    titles = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def current(text: str) -> str:
    """Return the text without the old names: the first cells of tables headed ``before | now``."""
    return re.sub(
        r"(?m)^\| [a-z ]+ before \|[^\n]*\n(?:\|[^\n]*\n)+",
        lambda table: re.sub(r"(?m)^\|[^|]*\|", "|", table[0]),
        text,
    )


def links(text: str, page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"(?ms)^```.*?^```$", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in slugs(file)):
            yield target


def files(text: str, _page: Path) -> Iterator[str]:
    for name in re.findall(r"`((?:service|tests|bench|docs|examples)/[\w./*-]*)", text):
        if not list(ROOT.glob(name.rstrip("/"))):
            yield name


def settings(text: str, _page: Path) -> Iterator[str]:
    for name, more in re.findall(r"\b(HAPAX_[A-Z0-9_]+)(…|\*)?", text):
        begun = more and any(known.startswith(name) for known in SETTINGS)
        if not begun and name not in SETTINGS:
            yield name


def metrics(text: str, _page: Path) -> Iterator[str]:
    yield from sorted(set(re.findall(r"\bhapax_[a-z_]+", text)) - known_metrics())


@cache
def known_metrics() -> set[str]:
    return {
        family.name + suffix
        for table in (Metrics(), SpoolMetrics())
        for family in table.registry.collect()
        for suffix in ("", "_total", "_bucket", "_sum", "_count")
    } | {"hapax_pipeline", "hapax_env_file"}  # of the plugin of pytest


def targets(text: str, _page: Path) -> Iterator[str]:
    known = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    for name in re.findall(r"(?m)(?:`|^\$ )make ([a-z-]+)", text):
        if name not in known:
            yield f"make {name}"


def commands(text: str, _page: Path) -> Iterator[str]:
    lines = re.findall(r"`((?:hapax|python -m hapax) [^`]+)`", text)
    lines += re.findall(r"(?m)^\$ .*?((?:\bhapax|python -m hapax) .+)$", text)
    for line in lines:
        if not known_command(shlex.split(line.replace("python -m hapax", "hapax"))[1:]):
            yield line


def known_command(words: list[str]) -> bool:
    command, given = COMMANDS, iter(words)
    for word in given:
        options = {option: each for each in command.params for option in each.opts}
        if word.startswith("-"):
            if word.partition("=")[0] not in {*options, "--help"}:
                return False
            if command is COMMANDS and "=" not in word and not options[word].is_flag:
                next(given, "")  # its value is no command
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return False
            command = command.commands[word]
    return True


def proofs(text: str, _page: Path) -> Iterator[str]:
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", text))
    yield from sorted(named - spelled("tests", r"def (test_\w+)\("))


@cache
def spelled(folder: str, pattern: str) -> set[str]:
    """Return what the Python of a folder has of a pattern."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return {name for file in files for name in re.findall(pattern, file.read_text())}


def events(text: str, _page: Path) -> Iterator[str]:
    for listed in re.findall(r"\blines? ((?:`[a-z_]+`(?:, | and )?)+)", text):
        for name in re.findall(r"`([a-z_]+)`", listed):
            if not hasattr(Events, name):
                yield name


def console(text: str, _page: Path) -> Iterator[str]:
    for line in re.findall(r"(?m)^\$ (.+)$", text):
        words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        if words[0].rpartition("/")[2] not in {*NEVER_RUN, "hapax"}:
            yield line


def images(text: str, _page: Path) -> Iterator[str]:
    """Targets and arguments of ``docker build`` are those of the Dockerfile."""
    known = re.findall(r"(?m)^(?:FROM .+ AS|ARG) (\w+)", (ROOT / "Dockerfile").read_text())
    for line in re.findall(r"\bdocker build\b([^`\n]*)", text):
        for name in re.findall(r"--(?:target|build-arg) ([\w-]+)", line):
            if name not in known:
                yield name


def names(text: str, _page: Path) -> Iterator[str]:
    """Classes with a member, as ``Class.member``, are in the source."""
    for owner, member in re.findall(r"`([A-Z][a-z][A-Za-z]*)\.(\w+)`", text):
        known = owner in spelled("service", r"(?m)^class (\w+)")
        if owner not in {"Output", "Record"} and not (
            known and member in spelled("service", r"\w+")
        ):
            yield f"{owner}.{member}"

"""A client's packages and program, ready to run: in the user's cache, by what they are made of."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hapax.sandbox import machine
from tests.world.programs import FOLDER, Client

if TYPE_CHECKING:
    from collections.abc import Callable

Command = list[str]
MINUTES_MAX = 15


class MissingError(Exception):
    """A client cannot be had on this machine: the reason, for people."""


def ready(client: Client) -> Command:
    """Return the command of its program; install and build it where that was not done before.

    Raises MissingError, with the last line of the tool that failed.
    """
    program = next((FOLDER / "clients").glob(f"{client.words.get('program', client.name)}.*"))
    texts = [path.read_bytes() for path in (program, *_shared(program))]
    made_of = repr((client.packages, client.words.get("copied"), texts)).encode()
    digest = hashlib.sha256(made_of).hexdigest()[:12]
    folder = machine.cache_folder() / "world" / f"{client.name}-{digest}"
    if not (folder / "ready").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _INSTALL[client.ecosystem](folder, client, program)
        (folder / "ready").touch()
    return [*_COMMAND[client.ecosystem](folder, program), *client.words.get("settings", "").split()]


def _shared(program: Path) -> list[Path]:
    """Return what all programs of its language have in common; one in Go may stand for itself."""
    if program.suffix == ".go" and b"func main()" in program.read_bytes():
        return []
    return sorted((FOLDER / "shared").glob(f"*{program.suffix}"))


def _run(folder: Path, *words: str | Path, **variables: str) -> None:
    """Run a tool; with the caller's environment, but for what would lead it elsewhere."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    if shutil.which(str(words[0])) is None:
        raise MissingError(f"{words[0]} is not installed")
    try:
        done = subprocess.run(
            list(map(str, words)),
            cwd=folder,
            env=kept | variables,
            capture_output=True,
            text=True,
            timeout=60 * MINUTES_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{words[0]} took more than {MINUTES_MAX} minutes") from error
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        raise MissingError(f"{words[0]}: {said[-1]}")


def _python(folder: Path, client: Client, _program: Path) -> None:
    uv = Path(sys.prefix) / "bin" / "uv"
    _run(folder, uv, "--no-config", "venv", "--quiet", "--python", sys.executable, "venv")
    python = folder / "venv" / "bin" / "python"
    _run(
        folder, uv, "--no-config", "pip", "install", "--quiet", "--python", python, *client.packages
    )


def _node(folder: Path, client: Client, program: Path) -> None:
    shutil.copy(program, folder / program.name)
    (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    own = {"CKJS_LINKING": "dynamic"}  # librdkafka is compiled with the libraries of the machine
    node = shutil.which("node")
    if node and (headers := Path(node).resolve().parents[1]).joinpath("include/node").is_dir():
        own["npm_config_nodedir"] = str(headers)  # else they are downloaded
    _run(folder, "npm", "install", "--no-audit", "--no-fund", *client.packages, **own)


def _debian(_folder: Path, client: Client, _program: Path) -> None:
    """Packages are programs that Debian's package of this name brings; nothing is installed."""
    for program in client.packages:
        if shutil.which(program) is None:
            raise MissingError(f"{program} is not installed: apt-get install {program}")


def _go(folder: Path, client: Client, program: Path) -> None:
    """``copied``: files of a module that are compiled as they are, but for the package's name."""
    for path in (program, *_shared(program)):
        shutil.copy(path, folder / path.name)
    _run(folder, "go", "mod", "init", "world")
    _run(folder, "go", "get", *client.packages)
    for copied in client.words.get("copied", "").split():
        module, _, file = copied.partition("//")
        words = ("go", "list", "-m", "-f", "{{.Dir}}", module)
        found = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        text = (Path(found.stdout.strip()) / file).read_text(encoding="utf-8")
        renamed = re.sub(r"(?m)^package \w+$", "package main", text, count=1)
        (folder / Path(file).name).write_text(renamed, encoding="utf-8")
    _run(folder, "go", "build", "-mod=mod", "-o", "run", ".")


def _rust(folder: Path, client: Client, program: Path) -> None:
    (folder / "src").mkdir()
    shutil.copy(program, folder / "src" / "main.rs")
    for path in _shared(program):
        shutil.copy(path, folder / "src" / path.name)
    lines = ['[package]\nname = "run"\nversion = "0.0.0"\nedition = "2021"\n\n[dependencies]']
    (folder / "Cargo.toml").write_text("\n".join([*lines, *client.packages, ""]), encoding="utf-8")
    _run(folder, "cargo", "build", "--quiet", CARGO_TARGET_DIR=str(folder / "target"))
    shutil.move(folder / "target" / "debug" / "run", folder / "run")
    shutil.rmtree(folder / "target")


_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>world</groupId><artifactId>world</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""


def _java(folder: Path, client: Client, program: Path) -> None:
    """Packages are ``group:artifact:version``."""
    parts = (package.split(":") for package in client.packages)
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in parts
    )
    (folder / "pom.xml").write_text(_POM.format(wanted), encoding="utf-8")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    _run(folder, "mvn", "-q", "-B", goal, "-DoutputDirectory=jars", "-DincludeScope=runtime")
    shutil.copy(program, folder / "Main.java")
    shared = _shared(program)
    for path in shared:
        shutil.copy(path, folder)
    names = [path.name for path in shared]
    _run(folder, "javac", "-cp", "jars/*", "-d", "classes", "Main.java", *names)


def _of_python(folder: Path, program: Path) -> Command:
    return [str(folder / "venv" / "bin" / "python"), "-P", str(program)]  # -P: named as its package


def _of_node(folder: Path, program: Path) -> Command:
    own = folder / "node_modules" / ".bin" / "node"  # of npm's package node, where a client asks
    return [str(own) if own.exists() else "node", str(folder / program.name)]


def _of_debian(_folder: Path, program: Path) -> Command:
    return [sys.executable, "-P", str(program)]


def _of_build(folder: Path, _program: Path) -> Command:
    return [str(folder / "run")]


def _of_java(folder: Path, _program: Path) -> Command:
    light = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return ["java", *light, *_OPENED, "-cp", f"{folder}/classes:{folder}/jars/*", "Main"]


_OPENED = [
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "nio")
]
"""What Flink and Spark reflect on."""

_INSTALL: dict[str, Callable[[Path, Client, Path], None]] = {
    "python": _python,
    "node": _node,
    "debian": _debian,
    "go": _go,
    "rust": _rust,
    "java": _java,
}
_COMMAND: dict[str, Callable[[Path, Path], Command]] = {
    "python": _of_python,
    "node": _of_node,
    "debian": _of_debian,
    "go": _of_build,
    "rust": _of_build,
    "java": _of_java,
}

"""The Dockerfile read, and its steps carried out in a folder that stands for the root of an image.

Nothing of what a step says is changed but the paths that the image would own.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.kit.commands import output_of

ROOT: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 900.0
# Beginnings of paths that the steps write to.
_OWNED: Final = re.compile(r"(?<![\w./])/(?=(?:opt|build|app|etc|var|usr/local/lib)/)")


class Step(NamedTuple):
    """One instruction: its word, and the rest on one line."""

    word: str
    text: str


class Stage(NamedTuple):
    """``FROM base AS name`` and what follows."""

    name: str
    base: str
    steps: list[Step]

    def texts(self, word: str) -> list[str]:
        """Return what stands behind this word, in order."""
        return [step.text for step in self.steps if step.word == word]


def stages() -> dict[str, Stage]:
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found: dict[str, Stage] = {}
    current: Stage | None = None
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, text = line.partition(" ")
        if word == "FROM":
            base, _, name = text.partition(" AS ")
            current = found[name] = Stage(name, base, [])
        elif word and current is not None:
            current.steps.append(Step(word, text))
    return found


def lineage(name: str) -> list[Stage]:
    """Return the stage and those it stands on, the first one first."""
    found = stages()[name]
    return [*(lineage(found.base) if found.base in stages() else []), found]


def environment(name: str) -> dict[str, str]:
    """Return the variables that a stage sets, with those before it."""
    found: dict[str, str] = {}
    for stage in lineage(name):
        for text in stage.texts("ENV"):
            found |= dict(part.split("=", 1) for part in shlex.split(text))
    return found


class Build:
    """Carries out the steps of stages below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tools = root / "usr/local/bin"
        self._tools.mkdir(parents=True)
        (self._tools / "python").symlink_to(Path(sys._base_executable))  # type: ignore[attr-defined] # typeshed does not know it
        self._environ = {
            # What says where packages are from is the user's.
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "HOME": os.environ.get("HOME", "/"),
            "PATH": f"{self._tools}:/usr/local/bin:/usr/bin:/bin",
        }
        self._folder = root

    def inside(self, text: str) -> str:
        """Return the text with the image's paths moved below ``root``."""
        return _OWNED.sub(f"{self.root}/", f" {text}/")[1:-1]

    def carry_out(self, stage: Stage) -> None:
        """Carry out every step that changes files."""
        for step in stage.steps:
            match step.word:
                case "ENV":
                    given = dict(part.split("=", 1) for part in shlex.split(step.text))
                    # Here the user's own cache may serve.
                    given.pop("PIP_NO_CACHE_DIR", None)
                    self._environ |= given
                case "WORKDIR":
                    self._folder = self.root / step.text.lstrip("/")
                    self._folder.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(step.text)
                case "RUN":
                    self._run(step.text)

    def _copy(self, text: str) -> None:
        *sources, target = shlex.split(text)
        goal = Path(self.inside(target)) if target.startswith("/") else self._folder / target
        for source in sources:
            origin = ROOT / source
            if origin.is_dir():
                shutil.copytree(origin, goal, ignore=_ignored, dirs_exist_ok=True)
            else:
                place = goal / origin.name if target.endswith("/") else goal
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(origin, place)

    def _run(self, text: str) -> None:
        # Secrets of the build; without an engine pip reads the user's own configuration.
        text = re.sub(r"^(--mount=\S+\s+)+", "", text)
        parts = [part for part in re.split(r" *&& ", text) if not _outside(part)]
        command = ["/bin/sh", "-c", self.inside(" && ".join(parts))]
        output_of(command, cwd=self._folder, env=self._environ, timeout=_TIMEOUT_S)


def _outside(part: str) -> bool:
    """Whether it is about Debian's packages, or the user of a container."""
    outside = ("apt-get ", "rm -rf /var/lib/apt/", "mkdir -p /usr/share/man/")
    return part.startswith(outside) or "/etc/passwd" in part


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Leave out what .dockerignore leaves out of folders."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    return {name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)}


def exec_form(text: str) -> list[str]:
    """Return the words of an entry point; a shell form is none."""
    words = json.loads(text)
    assert isinstance(words, list)
    return words

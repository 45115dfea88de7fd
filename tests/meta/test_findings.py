"""Scripts about the world outside are each whole, pinned, and in the index once."""

import os
import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))
REQUIRED = re.compile(r"(?m)pip\"? install (?:--?\S+ )*(.+)$")
PINNED = re.compile(r"==\d|@v?\d|[\w.-]+:[\w.-]+:\d|<version>\d")
"""By pip, by npm or Go, by Maven."""


def faults(text: str) -> list[str]:
    """Return what a script lacks: a head with what was expected and seen, or pinned packages."""
    lines = text.splitlines()
    head = [line for line in lines if line.startswith("#")]
    wanted = [one for line in REQUIRED.findall(text) for one in line.split()]
    found = []
    if lines[:1] != ["#!/usr/bin/env bash"] or not lines[1].startswith("# "):
        found.append("begins with no head")
    if not all(any(line.startswith(f"# {word}") for line in head) for word in ("Expected", "Seen")):
        found.append("says not what was expected and what was seen")
    if not PINNED.search(text) or not all("==" in one for one in wanted):
        found.append("installs no package, or one without a version")
    if re.search(r"\bhapax\b", text, re.IGNORECASE):
        found.append("needs Hapax")
    return found


def test_each_script_of_a_finding_has_a_head_and_pinned_packages():
    assert len(SCRIPTS) >= 2
    assert {one.name: what for one in SCRIPTS if (what := faults(one.read_text()))} == {}
    assert [one.name for one in SCRIPTS if not os.access(one, os.X_OK)] == []


def test_each_finding_is_in_the_index_once_in_alphabetical_order():
    rows = re.findall(
        r"(?m)^\| \[([\w-]+)\]\(([\w.-]+)\) \| .+ \|$", (FOLDER / "README.md").read_text()
    )
    assert rows == [(one.stem, one.name) for one in SCRIPTS]


def test_a_script_that_lacks_something_is_found():
    assert faults(
        '#!/usr/bin/env bash\necho\n"venv/bin/pip" install --quiet orjson\nhapax run\n'
    ) == [
        "begins with no head",
        "says not what was expected and what was seen",
        "installs no package, or one without a version",
        "needs Hapax",
    ]

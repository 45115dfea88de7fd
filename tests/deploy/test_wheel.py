"""The wheel: what is in it, and that it runs where nothing else of this checkout is."""

from __future__ import annotations

import email.parser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from typing import TYPE_CHECKING

import pytest

import hapax
from tests.deploy.steps import ROOT
from tests.kit.topics import produce, read_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hapax.sandbox import Sandbox

TRANSFORM = """
from hapax import Output, Poison, Record


def transform(record: Record) -> Output:
    if record.value == b"bad":
        raise Poison("bad")
    return Output(record.value.upper())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--quiet", "--wheel-dir", folder, ROOT], check=True, timeout=120)
    [found] = folder.iterdir()
    return found


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"hapax_kafka-{hapax.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        str(path.relative_to(ROOT / "service"))
        for path in (ROOT / "service/hapax").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert found == sources
    assert "hapax/py.typed" in found


def test_the_metadata_says_what_it_is_and_under_which_licence(wheel: Path) -> None:
    about = f"hapax_kafka-{hapax.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.parser.Parser().parsestr(archive.read(f"{about}/METADATA").decode())
        licence = archive.read(f"{about}/licenses/LICENSE").decode()
        scripts = archive.read(f"{about}/entry_points.txt").decode()
    assert metadata["Name"] == "hapax-kafka"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert licence.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "hapax = hapax.__main__:main" in scripts
    assert set(metadata.get_all("Provides-Extra") or ()) == {"sandbox", "spark", "tracing"}
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())
    assert str(metadata.get_payload()).startswith("# Hapax")
    for field in ("Summary", "Author", "Keywords", "Requires-Python", "Description-Content-Type"):
        assert metadata[field], field


def test_what_installs_an_extra_names_this_distribution() -> None:
    """The index knows another project as ``hapax``, and pip would fetch it without a word."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = "|".join(project["optional-dependencies"])
    told = re.compile(rf"[\w-]*\[(?:{extras})\]")
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "service").rglob("*.py")]
    found = {match for path in files for match in told.findall(path.read_text())}
    assert {match.partition("[")[0] for match in found} == {"hapax-kafka", ""}


def installed(checkout: Path, environment: dict[str, str]) -> str:
    """Type the commands of the README's section; return the program that the last one runs."""
    page = (ROOT / "README.md").read_text().partition("\n## Install\n")[2].partition("\n## ")[0]
    told = program = ""
    for command in re.findall(r"(?m)^\$ (.+)$", page):
        program, *words = shlex.split(command)
        # The interpreter of the tests stands for the user's python3.
        own = sys._base_executable if program == "python3" else program  # type: ignore[attr-defined] # typeshed does not know it
        done = subprocess.run(
            [own, *words],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        told = done.stdout
    assert told == f"hapax {hapax.__version__}\n"
    return program


@pytest.mark.long
@pytest.mark.timeout(900)  # libraries are installed, and perhaps fetched
def test_installed_as_the_page_says_it_runs_outside_the_checkout(
    sandbox: Sandbox, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    home.mkdir()
    checkout.mkdir()
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    for name in ("requirements", "service"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    # What says where packages are from is the user's.
    bare = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    bare |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    program = checkout / installed(checkout, bare)
    shutil.rmtree(checkout / "service")

    (home / "rule.py").write_text(TRANSFORM)
    source, target, dead = unique("in"), unique("out"), unique("dead")
    for topic in (source, target, dead):
        sandbox.create_topic(topic, 1)
    produce(sandbox.bootstrap_servers, source, b"one", b"bad", b"two")
    settings = {
        "HAPAX_APP": unique("wheel"),
        "HAPAX_KAFKA__BOOTSTRAP_SERVERS": sandbox.bootstrap_servers,
        "HAPAX_INPUT__TOPICS": source,
        "HAPAX_OUTPUT__TOPIC": target,
        "HAPAX_DEAD_LETTER__TOPIC": dead,
        "HAPAX_TRANSFORM": "rule:transform",
        "HAPAX_TELEMETRY__PORT": "0",
        "HAPAX_STOP_AFTER__RECORDS": "3",
        "PYTHONPATH": str(home),
    }
    done = subprocess.run(
        [program, "run"],
        cwd=home,
        env=bare | settings,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [each.value for each in read_back(sandbox.bootstrap_servers, target)] == [b"ONE", b"TWO"]
    assert [each.value for each in read_back(sandbox.bootstrap_servers, dead)] == [b"bad"]

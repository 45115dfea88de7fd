"""hapax_fast built once more, beside the one that is installed, with sanitizers.

``python -m tests.kit.native_build FOLDER FLAG...`` builds it; PYTHONPATH=FOLDER takes it.
"""

import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from hatch_build import compile_native
from tests.kit.requests_hooks import compiler

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "fast/src"
PACKAGE = ROOT / "fast/hapax_fast"


def build(folder: Path, *flags: str) -> None:
    target, sources = folder / "hapax_fast", folder / "src"
    for each in (target, sources):
        shutil.rmtree(each, ignore_errors=True)
    shutil.copytree(PACKAGE, target)
    shutil.copytree(SOURCES, sources)
    compile_native(sources, target, *flags)


def buildable() -> bool:
    return compiler() is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


needs_fast = pytest.mark.skipif(
    find_spec("hapax_fast") is None and not buildable(),
    reason="hapax_fast is not installed, and no C compiler could have built it",
)
"""With a compiler and without hapax_fast the test fails: make setup builds it."""

if __name__ == "__main__":
    build(Path(sys.argv[1]), *sys.argv[2:])

"""Plays a mutation in a copy of the tree: modules meet it at import, and processes as well."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutations.candidates import ROOT, Mutation

LAYERS = {"quick": "not real", "real": "real"}
WALL_S = 900.0
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
_FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+)")


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    git = shutil.which("git")
    assert git is not None, "mutations are played in a checkout"
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        for name in names.decode().split("\0"):
            if name and (ROOT / name).is_file():
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, file)
        yield Path(folder)


def play(tree: Path, mutation: Mutation, tests: list[str], layer: str) -> tuple[str, str]:
    """Return what became of a mutation, and the test that failed; ``tree`` is as before then."""
    file, source = tree / mutation.file, (ROOT / mutation.file).read_bytes()
    try:
        file.write_bytes(mutation.apply(source))
        return _tested(tree, tests, layer)
    finally:
        file.write_bytes(source)


def _tested(tree: Path, tests: list[str], layer: str) -> tuple[str, str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "service"), str(tree)]),
        # A change of one character within a second looks like none to the interpreter.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        [sys.executable, *_PYTEST, "-m", LAYERS[layer], *tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=WALL_S)
    except subprocess.TimeoutExpired:
        return "timeout", ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode == 0:
        return "survived", ""
    failed = _FAILED.search(text)
    if "Timeout" in text and not failed:
        return "timeout", ""
    return "killed", failed[1] if failed else "as the tests were collected"

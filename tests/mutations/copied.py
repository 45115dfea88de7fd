"""Plays a mutation in a copy of the tree: modules meet it at import, and processes as well."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutations.candidates import ROOT, Mutation
from tests.mutations.forked import WALL_S, WALL_TIMES
from tests.mutations.outcomes import Outcome
from tests.mutations.tested import Chosen

PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
LAYERS = {"quick": "not real", "real": "real"}
FAILED = re.compile(r"(?m)^(?:FAILED|ERROR) (\S+)")


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


def play(tree: Path, mutation: Mutation, chosen: Chosen, layer: str) -> Outcome:
    """Play the chosen tests on a mutation in ``tree``, which is as before afterwards."""
    file, source = tree / mutation.file, (ROOT / mutation.file).read_bytes()
    begun = time.monotonic()
    try:
        file.write_bytes(mutation.apply(source))
        _forget_bytecode(file)
        said = _tested(tree, chosen, layer)
    finally:
        file.write_bytes(source)
        _forget_bytecode(file)
    word, _, test = said.partition(" ")
    seconds = round(time.monotonic() - begun, 1)
    return Outcome(mutation.id, layer, word, test, len(chosen.tests), seconds)


def _forget_bytecode(file: Path) -> None:
    """A change of one character within a second looks like none to the interpreter."""
    for kept in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        kept.unlink()


def _tested(tree: Path, chosen: Chosen, layer: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "service"), str(tree)])}
    process = subprocess.Popen(
        [sys.executable, *PYTEST, "-m", LAYERS[layer], *chosen.tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=WALL_S + WALL_TIMES * chosen.cost_s)
    except subprocess.TimeoutExpired:
        return "timeout"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode == 0:
        return "survived"
    failed = FAILED.search(text)
    if "Timeout" in text and not failed:
        return "timeout"
    return f"killed {failed[1] if failed else 'as the tests were collected'}"

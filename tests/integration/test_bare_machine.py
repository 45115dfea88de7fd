"""The two commands of README on a machine that has Python, git and make: the rest is hidden."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.commands import run_captured

ROOT = Path(__file__).parents[2]
HIDDEN = re.compile(
    r"java|jar|keytool|jcmd|mvn|redis|valkey|gcc|[cg]\+\+|cc$|c89|c99|clang|tcc|.*-gcc|uvx?$|cjdk|helm"
)
WITHIN_S = 600
PROMISES = (
    "tests/integration/test_worker_records.py",
    "tests/integration/test_spark_records.py::test_a_run_of_so_many_records_takes_exactly_those",
)
"""Of `make test`: some on Kafka and Valkey, and one on Spark."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Return a clone and the environment of a user without caches, on whose PATH they are not."""
    folder = tmp_path_factory.mktemp("bare")
    programs = folder / "bin"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if not HIDDEN.match(program.name) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    (programs / "python3").unlink(missing_ok=True)
    (programs / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined] # typeshed does not know it
    clone = folder / "hapax"
    subprocess.run(["/usr/bin/env", "git", "clone", "--quiet", ROOT, clone], check=True)
    where = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "SSL_"))}
    return clone, {**where, "PATH": str(programs), "HOME": str(folder), "LANG": "C.UTF-8"}


def typed(bare, *words: str) -> subprocess.CompletedProcess[str]:
    clone, environment = bare
    return run_captured(words, cwd=clone, env=environment, timeout=WITHIN_S)


@pytest.mark.parametrize("program", ["java", "mvn", "redis-server", "valkey-server", "gcc", "uv"])
def test_control_no_such_program_is_found(bare, program):
    assert shutil.which(program, path=bare[1]["PATH"]) is None


@pytest.mark.long
@pytest.mark.timeout(WITHIN_S)
def test_the_demo_runs_and_is_exact(bare):
    done = typed(bare, "make", "demo")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Exactly once: every event had its whole effect once" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(WITHIN_S)
def test_promises_of_make_test_hold_on_what_wheels_bring(bare):
    done = typed(bare, "make", "setup")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = typed(bare, ".venv/bin/python", "-m", "pytest", "-q", *PROMISES)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout

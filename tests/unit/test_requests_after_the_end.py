"""librdkafka calls on_destroy, and then its brokers' threads report the ends of connections."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kit import ended_clients
from tests.kit.commands import run_captured
from tests.kit.requests_hooks import SOURCES, compiler

PYTHON_H = Path(sysconfig.get_path("include"), "Python.h")
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.deep  # needs a compiler
@pytest.mark.skipif(
    compiler() is None or not PYTHON_H.exists(), reason="no C compiler, or no headers of Python"
)
def test_a_client_that_ends_with_requests_in_flight_leaves_no_call_to_freed_memory(tmp_path):
    package = tmp_path / "hapax_fast"
    shutil.copytree(SOURCES.parent / "hapax_fast", package)
    made = package / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    base = [str(compiler()), "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden"]
    sources = sorted(str(each) for each in SOURCES.glob("*.c"))
    include = f"-I{PYTHON_H.parent}"
    ran(*base, *SANITIZED, include, *sources, "-o", str(made), "-ldl", "-lpthread")
    libraries = [
        ran(str(compiler()), f"-print-file-name={name}").strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
    }
    script = str(Path(ended_clients.__file__))
    assert ran(sys.executable, script, str(tmp_path), environment=environment) == "clean\n"


def ran(*command: str, environment: dict[str, str] | None = None) -> str:
    done = run_captured(command, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout

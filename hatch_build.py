"""Builds the native record path (fast/) into the wheel where a C compiler and Python's headers are.

Without them the wheel is pure Python. Why is shown by the build, and kept in the wheel's metadata:
pip hides the former, hapax.kafka.native reads the latter.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FAST: Final = Path(__file__).parent / "fast"
_EXTENSION: Final = f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
_FLAGS: Final = ("-shared", "-fPIC", "-O3", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden")


class NotBuiltError(Exception):
    """Why, in words for the user."""


def compile_native(sources: Path, folder: Path, *flags: str) -> Path:
    """Compile a folder of C; return the extension, which is the same bytes in any folder.

    Nothing is linked: librdkafka is found in the process (fast/src/librdkafka.h).
    """
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        raise NotBuiltError("it is for CPython on Linux")
    compiler, *words = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    words += [*_FLAGS, *flags, *shlex.split(os.environ.get("CFLAGS", ""))]
    words += [f"-I{sysconfig.get_path('include')}", *sorted(c.name for c in sources.glob("*.c"))]
    words += ["-o", str(folder / _EXTENSION), *shlex.split(os.environ.get("LDFLAGS", ""))]
    words += ["-ldl", "-lpthread"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    try:
        done = run([compiler, *words], cwd=sources, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise NotBuiltError(f"the C compiler {compiler}: {error.strerror}") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise NotBuiltError((errors or [f"the C compiler {compiler} failed"])[0])
    sys.stderr.write(done.stderr)
    return folder / _EXTENSION


class NativePath(BuildHookInterface[Any]):
    """The hook: of wheels, also of those that only name the folder of the sources (editable)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Add package and extension to the wheel, or else the reason to its metadata."""
        self._made = tempfile.TemporaryDirectory()
        folder = Path(self._made.name)
        try:
            extension = compile_native(_FAST / "src", folder)
        except NotBuiltError as error:
            self.app.display_warning(f"without the native record path (docs/fast.md): {error}")
            (folder / "not_built").write_text(str(error), encoding="utf-8")
            build_data["extra_metadata"][str(folder / "not_built")] = "hapax_fast.not_built"
            return
        build_data |= {"pure_python": False, "infer_tag": True}
        build_data["force_include"][str(_FAST / "hapax_fast")] = "hapax_fast"
        build_data["force_include"][str(extension)] = f"hapax_fast/{_EXTENSION}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove what was compiled: the wheel has it."""
        self._made.cleanup()

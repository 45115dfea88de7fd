"""``hapax run`` before the service itself has begun."""

from __future__ import annotations

import subprocess
import sys

LOADING = """
import os, signal, sys, types
loading = types.ModuleType("service.commands.run")
loading.run = lambda: os.kill(os.getpid(), signal.SIGTERM) or 9
sys.modules["service.commands.run"] = loading
sys.argv = ["hapax", "run"]
import service.__main__
service.__main__.main()
"""


def test_sigterm_while_the_service_is_being_loaded_leaves_with_0() -> None:
    assert subprocess.run([sys.executable, "-c", LOADING], check=False, timeout=60).returncode == 0

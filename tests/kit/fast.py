"""Which record path a test takes: both where hapax_fast is, or where it could have been built."""

from __future__ import annotations

import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kit.requests_hooks import compiler


def buildable() -> bool:
    """Return whether ``make setup`` can build hapax_fast on this machine."""
    return compiler() is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


needs_fast = pytest.mark.skipif(
    find_spec("hapax_fast") is None and not buildable(),
    reason="hapax_fast is not installed, and no C compiler could have built it",
)
"""With a compiler and without hapax_fast the test fails: make setup builds it."""
PATHS = ["off", pytest.param("on", marks=needs_fast)]
"""Of HAPAX_FAST."""

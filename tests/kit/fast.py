"""Which record path a test takes: both where hapax_fast is, or where it could have been built."""

import os
import shutil
from importlib.util import find_spec

import pytest

needs_fast = pytest.mark.skipif(
    find_spec("hapax_fast") is None and shutil.which(os.environ.get("CC", "cc")) is None,
    reason="hapax_fast is not installed, and no C compiler could have built it",
)
"""With a compiler and without hapax_fast the test fails: make setup builds it."""
PATHS = ["off", pytest.param("on", marks=needs_fast)]
"""Of HAPAX_FAST."""

"""Commands as a person types them: what they print, and how they end."""

import subprocess
from collections.abc import Sequence
from typing import Any


def run_captured(
    command: Sequence[Any], *, timeout: float = 300.0, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, whatever its exit code; ``how``: as of subprocess.run."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **how
    )

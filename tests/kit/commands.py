"""Commands as a person types them: what they print, and how they end."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_captured(
    command: Sequence[Any], *, timeout: float = 300.0, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, whatever its exit code; ``how``: as of subprocess.run."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **how
    )

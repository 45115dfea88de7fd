"""How often a test repeats its fault: a few times in CI, all of them in make fault-long."""

from __future__ import annotations

import os


def rounds(few: int, full: int) -> int:
    """Return ``full`` where ROUNDS=full, else ``few``; a test that asks is marked ``rounds``."""
    return full if os.environ.get("ROUNDS") == "full" else few

"""Business code of the tasks' tests: what happens to a record is said in its value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hapax import Output

if TYPE_CHECKING:
    from hapax import Record

LARGE_BYTES = 400_000
"""More than the output topic takes, and less than the client refuses."""


def spell(record: Record) -> Any:
    """Write the value in capitals; ``boom``: raise, ``large``: write what brokers refuse."""
    value = record.value or b""
    if value.startswith(b"boom"):
        raise ValueError("boom")
    if value.startswith(b"large"):
        return Output(os.urandom(LARGE_BYTES))
    return Output(value.upper())

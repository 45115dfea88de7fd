"""Business code that takes its process with it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from hapax import Output

if TYPE_CHECKING:
    from hapax import Record


def die_as_told(record: Record) -> Output:
    """Copy the record, unless it says how to die."""
    if record.value == b"exit":
        os._exit(9)
    if record.value == b"segfault":
        signal.raise_signal(signal.SIGSEGV)
    return Output(record.value)

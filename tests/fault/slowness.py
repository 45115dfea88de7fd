"""Business code that takes as long as the record says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from service import Output

if TYPE_CHECKING:
    from service import Record


def sleep(record: Record) -> Output:
    """Copy the record, after the seconds in its header ``sleep-s``."""
    time.sleep(float(dict(record.headers).get("sleep-s") or b"0"))
    return Output(record.value)

"""How much freed memory the C library keeps for the next batch."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BYTES = 32 << 20
"""The most that glibc would come to by itself for the second."""


def keep_freed_memory() -> bool:
    """Let the heap keep what a batch frees; return whether the C library accepts that.

    The messages of a batch are freed together. glibc gave them back to the system, and the next
    batch took the same pages again, one page fault each: a tenth of a record's CPU.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Either of them ends that glibc adjusts both, so both are set.
    return mallopt is not None and all(
        mallopt(which, KEPT_BYTES) == 1 for which in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)
    )

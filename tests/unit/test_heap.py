"""The memory that a batch frees is there for the next one."""

import os
import sys

import pytest

from tests.kit.commands import output_of

_SECOND_TIME = """
import ctypes, resource
from hapax.wiring import keep_freed_memory
{told}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = ctypes.c_void_p(libc.malloc(16 << 20))
    ctypes.memset(place, 1, 16 << 20)
    libc.free(place)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    ("told", "tunables", "kept"),
    [
        ("keep_freed_memory()", "", True),
        ("", "", False),
        ("keep_freed_memory()", "glibc.malloc.mmap_threshold=131072", False),
    ],
    ids=["told", "control: not told", "told otherwise by the environment"],
)
def test_memory_that_was_freed_is_taken_again_without_page_faults(told, tunables, *, kept):
    command = [sys.executable, "-c", _SECOND_TIME.format(told=told)]
    found = output_of(command, env={**os.environ, "GLIBC_TUNABLES": tunables})
    pages = (16 << 20) // os.sysconf("SC_PAGESIZE")
    assert (int(found) < pages // 10) is kept

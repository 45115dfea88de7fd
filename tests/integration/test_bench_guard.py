"""The guard of the record path sees a slower one, on a real broker."""

import time

import msgspec
import pytest

from bench import guard, throughput
from bench.contenders import PYTHON
from hapax import Output, Record
from hapax.sandbox import Sandbox

pytestmark = pytest.mark.long

SLOWER_US = 25


def slowed(record: Record) -> Output:
    """Burn what would be a much slower record path."""
    until_ns = time.thread_time_ns() + SLOWER_US * 1000
    while time.thread_time_ns() < until_ns:
        pass
    return Output(record.value)


def test_a_record_path_that_was_slowed_on_purpose_fails_the_guard(tmp_path):
    slow = msgspec.structs.replace(PYTHON[1], transform=f"{__name__}:slowed")
    allowed = guard.Bounds(1.1, [guard.Bound(slow.name, 1.6, "of the path that is not slowed")])
    with Sandbox(nodes=1) as sandbox:
        found = guard.ratios(
            throughput.Course(sandbox, tmp_path), [slow], {slow.name: 0}, 20_000, 1
        )
    assert len(guard.excesses(found, allowed)) == 1, found

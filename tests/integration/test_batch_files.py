"""What a record costs: files that a steady batch visits, and a guard that sees a slower path."""

import json
import sys
import time
from pathlib import Path
from types import FrameType

import msgspec
import pytest

import hapax
from bench import guard, throughput
from bench.contenders import PYTHON
from hapax import Output, Record
from hapax.sandbox import Sandbox
from tests.kit.routes import a_route

BATCH = 100
BEGINS, ENDS = 10 * BATCH, 11 * BATCH
FILES_MAX = {"off": 35, "on": 34}
"""By HAPAX_FAST. They only fall: what a batch needs less is no longer visited."""
VISITED = "visited: "
SERVICE = Path(hapax.__file__).parent

route = a_route()
_calls = 0
_files: set[str] = set()


def traced(record: Record) -> Output:
    """Report the files of all functions between two calls that are a batch apart."""
    global _calls  # noqa: PLW0603  # one worker is one process
    _calls += 1
    if _calls == BEGINS:
        sys.setprofile(_visit)
    elif _calls == ENDS:
        sys.setprofile(None)
        sys.stderr.write(f"{VISITED}{json.dumps(sorted(_files))}\n")
    return Output(record.value)


def _visit(frame: FrameType, event: str, _value: object) -> None:
    if event == "call":
        _files.add(frame.f_code.co_filename)


@pytest.mark.parametrize("fast", list(FILES_MAX))
def test_a_steady_batch_visits_few_files(route, redis_url, fast):
    route.write(*(b"%d" % number for number in range(20 * BATCH)))
    worker = route.run_to_end(
        TRANSFORM=f"{__name__}:traced",
        TRANSACTION__RECORDS_MAX=str(BATCH),
        DEDUP__REDIS_URL=redis_url,
        FAST=fast,
    )
    (line,) = (line for line in worker.text().splitlines() if line.startswith(VISITED))
    visited = map(Path, json.loads(line.removeprefix(VISITED)))
    files = [str(file.relative_to(SERVICE)) for file in visited if file.is_relative_to(SERVICE)]
    assert FILES_MAX[fast] - 3 <= len(files) <= FILES_MAX[fast], files


SLOWER_US = 25


def slowed(record: Record) -> Output:
    """Burn what would be a much slower record path."""
    until_ns = time.thread_time_ns() + SLOWER_US * 1000
    while time.thread_time_ns() < until_ns:
        pass
    return Output(record.value)


@pytest.mark.long
def test_a_record_path_that_was_slowed_on_purpose_fails_the_guard(tmp_path):
    slow = msgspec.structs.replace(PYTHON[1], transform=f"{__name__}:slowed")
    allowed = guard.Bounds(1.1, [guard.Bound(slow.name, 1.6, "of the path that is not slowed")])
    with Sandbox(nodes=1) as sandbox:
        found = guard.ratios(
            throughput.Course(sandbox, tmp_path), [slow], {slow.name: 0}, 20_000, 1
        )
    assert len(guard.excesses(found, allowed)) == 1, found

"""Workers that must leave by themselves, and what they must not have touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.spark_process import SparkProcess

if TYPE_CHECKING:
    from tests.kit.managed_process import WorkerProcess
    from tests.kit.pipeline_under_test import PipelineUnderTest

LEAVES_WITHIN_S = 15


def refused(route: PipelineUnderTest, code: int, *words: str, **settings: str | None) -> str:
    """Start a worker that must leave by itself; return all it said (see ``left``)."""
    return left(route.worker("w-0", **settings), code, *words)


def left(worker: WorkerProcess, code: int, *words: str) -> str:
    """Wait for its exit; its reasons, without the list of all settings, hold ``words``."""
    assert worker.process.wait(LEAVES_WITHIN_S) == code, worker.text()
    text = worker.text()
    reasons = [line for line in text.splitlines() if '"service_started"' not in line]
    for word in words:
        assert any(word in line for line in reasons), text
    assert not worker.lines("service_crashed"), text
    if not isinstance(worker, SparkProcess):  # PySpark itself prints some when it is ended
        assert "Traceback" not in text
    return text


def untouched(route: PipelineUnderTest) -> bool:
    """Whether nothing has had an effect; offset 0 may be committed, with a mark (suspicion.py)."""
    done = {offset for offset in route.committed().values() if offset}
    return (done, route.outputs(), route.dead()) == (set(), [], [])

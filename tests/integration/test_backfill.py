"""``hapax backfill``: killed on its way, started again, handed over while records come."""

import json
import signal
import sys
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from tests.kit.flow import Flow
from tests.kit.managed_process import WorkerProcess
from tests.kit.spark_process import SparkProcess
from tests.kit.topics import committed, read_back
from tests.kit.waiting import await_

OLD, WITHIN_S = 15_000, 120
COMMAND = (sys.executable, "-m", "hapax", "backfill", "--json", "--from", "earliest", "--until")
KINDS: list[type[WorkerProcess]] = [WorkerProcess, SparkProcess]


class Backfilling(NamedTuple):
    """A backfill of what was there at a moment, and where each partition must end."""

    flow: Flow
    process: WorkerProcess
    words: tuple[str, ...]
    stops: dict[int, int]

    def start(self) -> None:
        self.process.start(self.words)

    def done(self) -> int:
        found = committed(self.flow.bootstrap, self.flow.app, self.flow.source)
        return sum(offset or 0 for offset in found.values())

    def states(self, state: str) -> list[dict[str, object]]:
        lines = self.process.text().splitlines()
        return [found for found in map(_read, lines) if found.get("state") == state]


def _read(line: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(line)
    except ValueError:  # a torn line of the one that was killed, or a word of Spark's
        return {}
    return found


@pytest.fixture(params=KINDS, ids=["worker", "spark"])
def backfilling(request, sandbox, tmp_path):
    """Old records, a moment, and records that come after it all the time."""
    flow = Flow(
        sandbox,
        tmp_path,
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
        TRANSACTION__RECORDS_MAX="100",
    )
    flow.feed(OLD)
    moment = datetime.now(UTC)
    end_ms = int(moment.timestamp() * 1000)
    flow.feed_beside(300)
    await_(lambda: len(first_from(flow, end_ms)) == 4, 30)
    stops = first_from(flow, end_ms)
    process = request.param(flow.environment(), "b-0", tmp_path / "backfill.log")
    flow.workers.append(process)
    words = (*COMMAND, moment.isoformat(timespec="milliseconds"))
    yield Backfilling(flow, process, words, stops)
    flow.close()


def first_from(flow: Flow, time_ms: int) -> dict[int, int]:
    """Return by partition the offset of the first record of that time or later, aborted or not."""
    records = reversed(read_back(flow.bootstrap, flow.source, "read_uncommitted"))
    return {one.partition: one.offset for one in records if one.timestamp_ms >= time_ms}


def test_killed_and_handed_over_to_a_worker_every_record_has_its_effect_once(backfilling):
    flow, process, total = backfilling.flow, backfilling.process, sum(backfilling.stops.values())
    backfilling.start()
    struck = 0
    for share in (0.2, 0.5):
        await_(lambda share=share: backfilling.done() > total * share, WITHIN_S, process.text)  # type: ignore[misc]
        if isinstance(process, SparkProcess) and share > 0.3:
            assert process.strike(signal.SIGKILL, "driver") == 1
            process.exit_code()
            process.strike(signal.SIGKILL, "all")
        else:
            process.kill()
        struck += backfilling.done() < total
        process.start(backfilling.words)
    assert struck == 2
    process.ends_with(0)
    assert flow.committed() == backfilling.stops
    [told] = backfilling.states("done")
    assert (told["done"], told["total"]) == (total, total)
    assert told["hand_over"] == {
        "app": flow.app,
        "unset": ["HAPAX_INPUT__START", "HAPAX_INPUT__END"],
        "command": "hapax run",
    }
    # Once more: nothing is left of it.
    process.start(backfilling.words)
    process.ends_with(0)
    assert flow.committed() == backfilling.stops
    flow.worker("w-0")
    assert flow.finish().anomalies == {}
    assert sum(offset or 0 for offset in flow.committed().values()) > total


def test_a_backfill_that_is_stopped_leaves_with_1_and_goes_on_from_there(sandbox, unique, tmp_path):
    flow = Flow(sandbox, tmp_path, TRANSACTION__RECORDS_MAX="50")
    try:
        flow.feed(3_000)
        words = (*COMMAND, "latest")
        process = WorkerProcess(flow.environment(), "b-0", tmp_path / "backfill.log")
        flow.workers.append(process)
        process.start(words)
        running = Backfilling(flow, process, words, {})
        await_(lambda: running.done() > 200, 30, process.text)
        assert process.terminate() == 1
        [stopped] = running.states("stopped")
        assert 0 < int(str(stopped["done"])) < int(str(stopped["total"]))
        process.start(words)
        process.ends_with(0)
        again = running.states("planned")[1]
        assert int(str(again["done"])) >= int(str(stopped["done"]))
        assert again["total"] == stopped["total"]
        assert flow.judge().anomalies == {}
    finally:
        flow.close()

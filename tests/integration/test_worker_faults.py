"""Workers are killed, frozen and stopped under load; each event still has its effect once."""

import time

import pytest

from tests.fault.rules import is_poison
from tests.kit.flow import Flow
from tests.kit.waiting import await_


@pytest.fixture
def flow(sandbox, unique, tmp_path):
    flow = Flow(
        sandbox,
        tmp_path,
        GROUP__SESSION_TIMEOUT="6s",
        TRANSACTION__TIMEOUT="4s",
    )
    yield flow
    flow.close()


def test_every_event_has_its_effect_once_without_any_fault(flow):
    flow.feed(5000)
    flow.worker("w-0")
    judgement = flow.finish()
    assert judgement.anomalies == {}
    counts = judgement.counts
    assert counts.outputs > 5000
    assert counts.dead_letters == sum(map(is_poison, range(counts.distinct))) > 0


@pytest.mark.row("P23", "H1")
def test_workers_killed_under_load_lose_and_double_nothing(flow):
    flow.feed_beside(1500)
    first, second = flow.worker("w-0"), flow.worker("w-1")
    kills = 0
    for _round in range(3):
        for worker in (first, second):
            settled = len(worker.lines("transaction_committed"))
            await_(
                lambda worker=worker, settled=settled: (  # type: ignore[misc]
                    len(worker.lines("transaction_committed")) > settled + 3
                ),
                40,
                worker.text,
            )
            worker.kill()
            kills += 1
            worker.start()
    judgement = flow.finish()
    assert judgement.anomalies == {}
    assert kills == 6


@pytest.mark.row("Z1")
@pytest.mark.long
def test_a_worker_frozen_past_its_timeouts_comes_back_and_doubles_nothing(flow):
    flow.feed_beside(1500)
    first, second = flow.worker("w-0"), flow.worker("w-1")
    for worker in (first, second):
        await_(
            lambda worker=worker: len(worker.lines("transaction_committed")) > 3,  # type: ignore[misc]
            40,
            worker.text,
        )
    second.freeze()
    began_s = time.monotonic()
    await_(lambda: len(_ours(first)) == 4, 40, first.text)
    taken_over_s = time.monotonic() - began_s
    second.thaw()
    await_(lambda: len(_ours(second)) == 2, 40, second.text)
    judgement = flow.finish()
    assert judgement.anomalies == {}
    assert taken_over_s > 4


def _ours(worker: object) -> list[object]:
    lines = [
        line
        for line in worker.lines()  # type: ignore[attr-defined]
        if str(line["event"]).startswith("partitions_")
    ]
    return [None] * int(lines[-1]["ours"]) if lines else []

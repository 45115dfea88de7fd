"""Positions that are lost: by retention, with the group's offsets, with the topic itself."""

import time

import pytest

from tests.kit.at_work import TEN, admin, at_work, await_exit, refused, values
from tests.kit.night import Desk


@pytest.mark.row("M4")
def test_retention_that_overtakes_a_frozen_worker_makes_it_leave_with_6_and_skip_nothing(
    sandbox, route, proof
):
    worker = route.worker()
    at_work(worker)
    worker.freeze()
    time.sleep(0.5)  # the fetch that is under way brings nothing: brokers hold it for 100 ms
    route.write(*TEN)
    sandbox.delete_records(route.source, 0, 15)
    worker.thaw()
    await_exit(worker, 6, f"{route.source}/0", "next record is 10", "15 to 20")
    assert route.committed() == {0: 10}
    assert values(route) == sorted(TEN)
    proof.note(struck=5, note="records deleted before they were read")


@pytest.mark.row("M5")
def test_a_group_whose_offsets_were_deleted_does_not_start_over_where_that_is_refused(route, proof):
    route.run_to_end(GROUP__MEMBERSHIP="dynamic")
    assert route.committed() == {0: 10}
    client = admin(route)
    client.delete_consumer_groups([route.app])[route.app].result(30)
    assert route.committed() == {0: None}
    refused(route, 6, f"{route.source}/0", "HAPAX_INPUT__START=refuse", INPUT__START="refuse")
    refused(route, 6, f"{route.source}/0/10", "hapax offsets set")
    assert values(route) == sorted(TEN)
    # The control: where starting over is asked for it does.
    Desk(route).ask("offsets", "set", route.source, "earliest", "--yes")
    route.run_to_end()
    assert values(route) == sorted(TEN * 2)
    proof.note(struck=1, note="begun from the start on purpose, the same deletion doubles")

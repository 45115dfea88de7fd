"""From the classic group protocol to KIP-848, with the workers of one pipeline, under load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from tests.kit.flow import Flow
from tests.kit.managed_process import HANG_S
from tests.kit.waiting import await_

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

    from tests.kit.managed_process import WorkerProcess

MEMBERSHIPS = ("static", "dynamic")
CONSUMER = {"GROUP__PROTOCOL": "consumer", "GROUP__MEMBERSHIP": "dynamic"}
NAMES = ("w-0", "w-1")


@pytest.fixture
def flow(sandbox, tmp_path):
    made = Flow(sandbox, tmp_path, GROUP__SESSION_TIMEOUT="6s", TRANSACTION__TIMEOUT="4s")
    yield made
    made.close()


def group(flow: Flow) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": flow.bootstrap})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([flow.app])[flow.app].result()
    return found


def at_work(flow: Flow, name: str, **settings: str | None) -> WorkerProcess:
    worker = flow.worker(name, **settings)
    await_(lambda: bool(worker.lines("transaction_committed")), HANG_S, worker.text)
    return worker


@pytest.mark.parametrize("membership", MEMBERSHIPS)
def test_stopped_as_a_whole_a_group_moves_to_the_consumer_protocol_and_loses_nothing(
    flow, membership
):
    flow.feed_beside(500)
    former = [at_work(flow, name, GROUP__MEMBERSHIP=membership) for name in NAMES]
    # Both have joined a second time, for each other: cooperative-sticky sends its own data then,
    # and brokers do not take such members along.
    early = flow.worker("w-2", **CONSUMER)
    early.ends_with(3)
    assert "no process of HAPAX_GROUP__PROTOCOL=consumer can join them" in early.text()
    assert group(flow).type.name == "CLASSIC"
    assert [worker.terminate() for worker in former] == [0, 0]
    await_(lambda: not group(flow).members, HANG_S)
    for name in NAMES:
        at_work(flow, name, **CONSUMER)
    found = group(flow)
    assert (found.type.name, len(found.members)) == ("CONSUMER", 2)
    assert flow.finish().anomalies == {}

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from hapax.core.transaction_states import OFFSETS
from hapax.sandbox import Sandbox
from tests.kit.hanging import hang_offset, unverified
from tests.kit.night import Desk, ran
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.topics import transaction

HELD_S = 3.0
"""Long enough for an answer that is not held back."""


@pytest.fixture
def route(tmp_path):
    """A pipeline on a broker of its own, which is restarted."""
    with Sandbox(redis=False) as sandbox:
        made = PipelineUnderTest(sandbox, tmp_path)
        made.create()
        yield made
        made.close()


def committed(route: PipelineUnderTest, timeout_s: float = 30.0) -> int:
    """Return the group's stable offset. Raises KafkaException while it is held back."""
    group = {"bootstrap.servers": route.bootstrap, "group.id": route.app, "log_level": 0}
    consumer = Consumer(group)
    try:
        (found,) = consumer.committed([TopicPartition(route.source, 0)], timeout=timeout_s)
    finally:
        consumer.close()
    return int(found.offset)


def test_offsets_that_a_lost_marker_holds_back_are_told_and_committed_by_hand(route):
    name = f"{route.app}:w-0"
    desk = Desk(route)
    route.write(b"1")
    ran(route)
    assert committed(route) == 1
    route.write(b"2")
    (one,) = desk.ask("transactions", "list")["transactions"]
    number = one["producer_id"]
    with unverified(route.bootstrap):
        place = f"{OFFSETS}/{hang_offset(route.bootstrap, (number, one['epoch']), offset=2)}"
    (broker,) = route.sandbox.kafka.brokers
    broker.terminate()
    broker.start()
    broker.await_ready()
    with transaction(route.bootstrap, name):  # a successor: "empty" is all that its state says
        pass
    with pytest.raises(KafkaException):
        committed(route, HELD_S)

    told = desk.ask("transactions", "list")
    assert told["transactions"][0]["state"] == "empty"
    assert told["not_examined"] == []
    (gap,) = told["undecided"]
    typed = f"transactions abort --partition {place} --producer-id {number} --outcome commit"
    assert (gap["holds_back"], gap["transactional_ids"]) == ("offsets", [name])
    (holder,) = gap["producers"]
    found = (holder["hanging"], holder["decided"], holder["end_with"])
    assert found == (True, "committed", f"hapax {typed}")
    shown = desk.type("transactions", "list").stdout
    assert f"{place}: offsets of {name} are held back" in shown
    assert f"hapax {typed}" in shown
    foreign = Desk(route, APP="billing")
    assert foreign.ask("transactions", "list")["undecided"] == []
    refused = foreign.type(*typed.split(), "--yes")
    assert (refused.exit_code, "no transaction of this pipeline hangs" in refused.stderr) == (
        1,
        True,
    )
    unsaid = desk.type(*typed.split()[:-2], "--yes")
    assert (unsaid.exit_code, "makes its offsets count" in unsaid.stderr) == (1, True)

    assert desk.ask(*typed.split(), "--yes") == {"aborted": False, "undecided": []}
    assert committed(route) == 2
    route.write(b"3")
    route.run_to_end()
    assert [record.value for record in route.outputs()] == [b"1", b"3"]
    assert desk.ask("transactions", "list")["undecided"] == []

import time

import pytest
from confluent_kafka import KafkaException

from hapax.kafka.produce.standalone import fence
from hapax.settings import load_settings
from tests.kit.hanging import hang, unverified
from tests.kit.night import Desk, settle
from tests.kit.routes import a_route
from tests.kit.topics import read_back, transaction
from tests.kit.waiting import await_

route = a_route()


def test_an_open_transaction_is_told_and_aborted_by_hand(route):
    name = f"{route.app}:gone"
    desk = Desk(route)
    with transaction(route.bootstrap, name) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        (one,) = told["transactions"]
        assert one | {"transactional_id": name, "state": "open"} == one
        assert one["partitions"] == [f"{route.target}/0"]
        assert 0 <= one["age_seconds"] < 300
        (gap,) = told["undecided"]
        assert (gap["topic"], gap["transactional_ids"]) == (route.target, [name])
        assert f"by {name}" in desk.type("transactions", "list").stdout
        done = desk.ask("transactions", "abort", name, "--yes")
        assert done == {"aborted": True, "undecided": []}
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)
    settle(route)
    assert read_back(route.bootstrap, route.target) == []
    again = desk.type("transactions", "abort", name, "--yes")
    assert (again.exit_code, "nothing to abort" in again.stdout) == (0, True)
    assert "No transaction is open" in desk.type("transactions", "list").stdout


def test_what_another_program_has_open_is_blamed_on_nobody_of_ours(route):
    desk = Desk(route)
    with transaction(route.bootstrap) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        assert told["transactions"] == []
        (gap,) = told["undecided"]
        assert gap["transactional_ids"][0].startswith("test-")
        producer.abort_transaction(60)
    unknown = desk.type("transactions", "abort", f"{route.app}:never", "--yes")
    assert unknown.exit_code == 1
    assert "know no transactional id" in unknown.stderr


def test_a_live_worker_is_told_and_survives_being_fenced(route):
    worker = route.worker()
    route.write(b"1")
    route.await_outputs(1)
    desk = Desk(route)
    name = f"{route.app}:w-0"
    (one,) = desk.ask("transactions", "list")["transactions"]
    assert (one["transactional_id"], one["alive"]) == (name, True)

    # Its transactions last milliseconds: it takes many looks to find one open, so none is asked
    # for; the producer is fenced as the command does it.
    fence(load_settings(desk.environment), name, time)
    route.write(b"2")
    await_(lambda: len(route.outputs()) == 2, 60, worker.text)
    assert [record.value for record in route.outputs()] == [b"1", b"2"]
    assert worker.terminate() == 0


def test_without_the_right_to_the_states_gaps_are_told_and_an_abort_still_works(route, monkeypatch):
    monkeypatch.setattr("hapax.operations.transactions.LOG", "hidden-from-us")
    name = f"{route.app}:gone"
    desk = Desk(route)
    with transaction(route.bootstrap, name) as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        assert (told["states_known"], told["transactions"]) == (False, [])
        assert "hidden-from-us" in told["reason"]
        assert [gap["transactional_ids"] for gap in told["undecided"]] == [[]]
        assert "States are not known" in desk.type("transactions", "list").stdout
        assert desk.ask("transactions", "abort", name, "--yes")["aborted"] is True
    settle(route)
    assert read_back(route.bootstrap, route.target) == []


def test_what_cannot_be_examined_is_named_and_the_rest_is_told(route, monkeypatch):
    monkeypatch.setattr("hapax.operations.transactions.OFFSETS", "hidden-from-us")
    desk = Desk(route, INPUT__TOPICS="elsewhere")  # as where the input is on another cluster
    with transaction(route.bootstrap, f"{route.app}:gone") as producer:
        producer.produce(route.target, b"hidden")
        assert producer.flush(60) == 0
        told = desk.ask("transactions", "list")
        assert [gap["topic"] for gap in told["undecided"]] == [route.target]
        missing = "it does not exist here or may not be read"
        unseen, offsets = told["not_examined"]
        assert unseen == f"elsewhere: {missing}"
        assert offsets.startswith("hidden-from-us, for offsets that are held back: ")
        shown = desk.type("transactions", "list").stdout
        assert "Not examined: elsewhere" in shown
        assert "Not examined: hidden-from-us" in shown
        producer.abort_transaction(60)


def test_a_hanging_transaction_is_seen_as_such_and_ended_by_its_partition_and_producer(route):
    desk = Desk(route)
    with transaction(route.bootstrap) as producer:  # the coordinators' log is there
        producer.abort_transaction(60)
    with unverified(route.bootstrap):
        hang(route.bootstrap, route.source, 0, 987_654)
    place = ("--partition", f"{route.source}/0", "--producer-id")
    (gap,) = desk.ask("transactions", "list")["undecided"]
    (holder,) = gap["producers"]
    assert (holder["producer_id"], holder["start_offset"], holder["hanging"]) == (987_654, 0, True)
    assert holder["transactional_id"] is None
    shown = desk.type("transactions", "list").stdout
    assert "producer 987654, epoch 0, from 0 on" in shown
    assert "HANGING, no coordinator knows of it" in shown
    other = desk.type("transactions", "abort", *place, "7", "--yes")
    assert (
        other.exit_code,
        "its open transactions are of producers 987654, not 7" in other.stderr,
    ) == (1, True)
    assert desk.type("transactions", "abort", *place, "987654").exit_code == 2  # nobody was asked
    assert desk.ask("transactions", "abort", *place, "987654", "--yes")["aborted"] is True
    route.write(b"after")
    route.run_to_end()
    assert [record.value for record in route.outputs()] == [b"after"]


def test_a_foreign_transaction_is_shown_with_its_producer_never_torn_and_ended_on_demand(route):
    desk = Desk(route)
    with transaction(route.bootstrap) as producer:
        producer.produce(route.source, b"hidden")
        assert producer.flush(60) == 0
        (gap,) = desk.ask("transactions", "list")["undecided"]
        (holder,) = gap["producers"]
        name = holder["transactional_id"]
        assert (holder["hanging"], gap["transactional_ids"]) == (False, [name])
        torn = desk.type(
            "transactions",
            "abort",
            "--partition",
            f"{route.source}/0",
            "--producer-id",
            str(holder["producer_id"]),
            "--yes",
        )
        assert (torn.exit_code, "is known to its coordinator" in torn.stderr) == (1, True)
        refused = desk.type("transactions", "abort", name, "--yes")
        assert (refused.exit_code, "--foreign" in refused.stderr) == (2, True)
        done = desk.ask("transactions", "abort", name, "--foreign", "--yes")
        assert done == {"aborted": True, "undecided": []}
        with pytest.raises(KafkaException):
            producer.commit_transaction(60)

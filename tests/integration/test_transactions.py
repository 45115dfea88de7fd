"""``hapax transactions`` and the client that it asks with, on open, hanging and foreign ones."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ResourceType

from hapax.cluster.cluster_state import Right
from hapax.cluster.transaction_states import OFFSETS
from hapax.kafka.admin.second_client import RequestError, producers, value_in_file
from hapax.kafka.produce.standalone import fence
from hapax.sandbox import Sandbox
from hapax.settings import load_settings
from tests.kit.guarded import withdraw
from tests.kit.hanging import hang, hang_offset, unverified
from tests.kit.night import Desk, ran, settle
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.secured import WAYS, login, needed, settings_of, way
from tests.kit.topics import configure, read_back, transaction
from tests.kit.waiting import await_

# -- Listed and aborted --------------------------------------------------------------------

route = a_route()


def hidden(route: PipelineUnderTest, producer: Producer, desk: Desk) -> Any:
    """Write a record that stays hidden, and list the transactions."""
    producer.produce(route.target, b"hidden")
    assert producer.flush(60) == 0
    return desk.ask("transactions", "list")


def test_an_open_transaction_is_told_and_aborted_by_hand(route):
    name = f"{route.app}:gone"
    desk = Desk(route)
    with transaction(route.bootstrap, name) as producer:
        told = hidden(route, producer, desk)
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
        told = hidden(route, producer, desk)
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
        told = hidden(route, producer, desk)
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
        told = hidden(route, producer, desk)
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
        hang(route.bootstrap, route.source, 987_654)
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


# -- Offsets that are held back ------------------------------------------------------------

HELD_S = 3.0
"""Long enough for an answer that is not held back."""


@pytest.fixture
def mortal(tmp_path):
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


def test_offsets_that_a_lost_marker_holds_back_are_told_and_committed_by_hand(mortal):
    name = f"{mortal.app}:w-0"
    desk = Desk(mortal)
    mortal.write(b"1")
    ran(mortal)
    assert committed(mortal) == 1
    mortal.write(b"2")
    (one,) = desk.ask("transactions", "list")["transactions"]
    number = one["producer_id"]
    with unverified(mortal.bootstrap):
        place = f"{OFFSETS}/{hang_offset(mortal.bootstrap, (number, one['epoch']), offset=2)}"
    (broker,) = mortal.sandbox.kafka.brokers
    broker.terminate()
    broker.start()
    broker.await_ready()
    with transaction(mortal.bootstrap, name):  # a successor: "empty" is all that its state says
        pass
    with pytest.raises(KafkaException):
        committed(mortal, HELD_S)

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
    foreign = Desk(mortal, APP="billing")
    assert foreign.ask("transactions", "list")["undecided"] == []
    refused = foreign.type(*typed.split(), "--yes")
    assert (refused.exit_code, "no transaction of this pipeline hangs" in refused.stderr) == (
        1,
        True,
    )
    unsaid = desk.type(*typed.split()[:-2], "--yes")
    assert (unsaid.exit_code, "makes its offsets count" in unsaid.stderr) == (1, True)

    assert desk.ask(*typed.split(), "--yes") == {"aborted": False, "undecided": []}
    assert committed(mortal) == 2
    mortal.write(b"3")
    mortal.run_to_end()
    assert [record.value for record in mortal.outputs()] == [b"1", b"3"]
    assert desk.ask("transactions", "list")["undecided"] == []


# -- Requests by kafka-python, on every way into a cluster that asks who it is -------------

PRODUCER_ID = 987_654
FREE_OF = {"tokens": "does not fetch tokens from a token service"}


@pytest.mark.parametrize("name", WAYS)
def test_producers_are_had_on_every_way_but_that_of_a_token_service(route_of, guarded, name):
    chosen = way(guarded, name)
    route = route_of(servers=guarded, **chosen.settings)
    where = (route.source, 0)
    if chosen.user is not None:
        guarded.rights.allow(chosen.user, Right("TOPIC", route.source, "READ", "is read"))
    if name in FREE_OF:
        with pytest.raises(RequestError, match=FREE_OF[name]):
            producers(settings_of(route), [where])
        return
    with transaction(route.bootstrap) as producer:
        producer.produce(route.source, b"open")
        assert producer.flush(60) == 0
        (found,) = producers(settings_of(route), [where])
        producer.abort_transaction(60)
    assert (found[0].topic, found[0].partition, found[0].start) == (*where, 0)
    await_(lambda: producers(settings_of(route), [where]) == [], 30)


def test_a_refused_login_and_a_missing_right_are_said_without_the_password(route_of, guarded):
    chosen = way(guarded, "SCRAM-SHA-256")
    route = route_of(servers=guarded, **chosen.settings)
    with pytest.raises(RequestError, match="Unknown topic or partition"):
        producers(settings_of(route), [(route.source, 0)])
    wrong = login(guarded, "SCRAM-SHA-256", USERNAME=str(chosen.user), PASSWORD="not-the-password")  # noqa: S106 - it is wrong
    with pytest.raises(RequestError, match="Authentication failed") as caught:
        producers(settings_of(route, **wrong), [(route.source, 0)])
    assert "not-the-password" not in str(caught.value)


@pytest.fixture
def by_scram(guarded, route_of) -> Iterator[PipelineUnderTest]:
    """A pipeline that logs in with SCRAM over TLS, and may do what its commands need."""
    chosen = way(guarded, "SCRAM-SHA-512")
    made = route_of(servers=guarded, **chosen.settings)
    with transaction(made.bootstrap) as producer:  # the coordinators' log is there
        producer.abort_transaction(60)
    user = str(chosen.user)
    guarded.rights.allow(user, *needed(made), *ON_CALL)
    with unverified(made.bootstrap):
        hang(made.bootstrap, made.source, PRODUCER_ID)
    yield made
    withdraw(guarded.rights, user, *needed(made), *ON_CALL)


ON_CALL = (
    Right("TOPIC", "__transaction_state", "READ", "states are read"),
    Right("BROKER", "kafka-cluster", "ALTER", "markers are written"),
)


@pytest.mark.parametrize(("outcome", "ended"), [("abort", 0), ("commit", 1)])
def test_a_hanging_transaction_is_found_and_ended_with_scram_over_tls(by_scram, outcome, ended):
    desk = Desk(by_scram)
    (gap,) = desk.ask("transactions", "list")["undecided"]
    (holder,) = gap["producers"]
    assert (holder["producer_id"], holder["hanging"]) == (PRODUCER_ID, True)
    place = ("--partition", f"{by_scram.source}/0", "--producer-id", str(PRODUCER_ID))
    done = desk.ask("transactions", "abort", *place, "--outcome", outcome, "--yes")
    assert done == {"aborted": outcome == "abort", "undecided": []}
    by_scram.run_to_end()
    assert len(by_scram.outputs()) == ended


def test_without_the_library_the_list_says_what_to_install_and_names_kafkas_own_tool(
    route, monkeypatch
):
    with transaction(route.bootstrap) as producer:  # the coordinators' log is there
        producer.abort_transaction(60)
    with unverified(route.bootstrap):
        hang(route.bootstrap, route.source, PRODUCER_ID)
    desk = Desk(route)
    place = ("--partition", f"{route.source}/0", "--producer-id", str(PRODUCER_ID))
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "kafka", None)
        shown = desk.type("transactions", "list").stdout
        refused = desk.type("transactions", "abort", *place, "--yes")
        assert desk.ask("transactions", "list")["undecided"][0]["producers"] is None
    install, tool = (
        "pip install 'hapax-kafka[transactions]'",
        f"kafka-transactions.sh --bootstrap-server {route.bootstrap}",
    )
    assert install in shown
    assert f"{tool} describe-producers --topic {route.source} --partition 0" in shown
    assert (refused.exit_code, install in refused.stderr) == (1, True)
    assert f"{tool} abort --topic {route.source} --partition 0 --start-offset 0" in " ".join(
        refused.stderr.split()
    )
    assert desk.ask("transactions", "abort", *place, "--yes")["aborted"] is True


def test_the_value_in_a_brokers_file_is_read_past_the_one_that_overrides_it(route):
    settings, name = settings_of(route), "log.cleaner.dedupe.buffer.size"
    admin = AdminClient({"bootstrap.servers": route.bootstrap})
    configure(admin, ResourceType.BROKER, ["1"], {name: "4194304"})
    assert value_in_file(settings, 1, name) == "2097152"
    assert value_in_file(settings, 1, "log.retention.hours") is None
    with pytest.raises(RequestError, match="broker 1: no\\.such cannot be read"):
        value_in_file(settings, 1, "no.such")

"""Requests by kafka-python, on every way into a cluster that asks who it is."""

import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ResourceType

from hapax.core.cluster_state import Right
from hapax.kafka.admin.second_client import RequestError, producers, value_in_file
from tests.kit.hanging import hang, unverified
from tests.kit.night import Desk
from tests.kit.pipeline_under_test import PipelineUnderTest
from tests.kit.routes import a_route
from tests.kit.secured import WAYS, login, needed, settings_of, way
from tests.kit.topics import configure, transaction
from tests.kit.waiting import await_

PRODUCER_ID = 987_654
FREE_OF = {"tokens": "does not fetch tokens from a token service"}

route = a_route()


@pytest.mark.parametrize("name", WAYS)
def test_producers_are_had_on_every_way_but_that_of_a_token_service(guarded, tmp_path, name):
    chosen = way(guarded, name)
    route = PipelineUnderTest(guarded, tmp_path, **chosen.settings)
    route.create()
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


def test_a_refused_login_and_a_missing_right_are_said_without_the_password(guarded, tmp_path):
    chosen = way(guarded, "SCRAM-SHA-256")
    route = PipelineUnderTest(guarded, tmp_path, **chosen.settings)
    route.create()
    with pytest.raises(RequestError, match="Unknown topic or partition"):
        producers(settings_of(route), [(route.source, 0)])
    user = str(chosen.user)
    wrong = login(guarded, "SCRAM-SHA-256", USERNAME=user, PASSWORD="not-the-password")  # noqa: S106 - it is wrong
    with pytest.raises(RequestError, match="Authentication failed") as caught:
        producers(settings_of(route, **wrong), [(route.source, 0)])
    assert "not-the-password" not in str(caught.value)


@pytest.fixture
def by_scram(guarded, tmp_path) -> Iterator[PipelineUnderTest]:
    """A pipeline that logs in with SCRAM over TLS, and may do what its commands need."""
    chosen = way(guarded, "SCRAM-SHA-512")
    made = PipelineUnderTest(guarded, tmp_path, **chosen.settings)
    made.create()
    with transaction(made.bootstrap) as producer:  # the coordinators' log is there
        producer.abort_transaction(60)
    user = str(chosen.user)
    guarded.rights.allow(user, *needed(made), *ON_CALL)
    with unverified(made.bootstrap):
        hang(made.bootstrap, made.source, 0, PRODUCER_ID)
    yield made
    guarded.rights.withdraw(user, *needed(made), *ON_CALL)
    made.close()


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
        hang(route.bootstrap, route.source, 0, PRODUCER_ID)
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

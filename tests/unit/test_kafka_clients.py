"""Client properties: what the promise rests on is set, whatever the settings add."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer

from hapax.kafka.produce.micro_batch import sink_lane_names, sink_names
from hapax.kafka.produce.standalone import replay_id
from hapax.kafka.produce.transaction import KafkaTransaction
from hapax.kafka.properties import (
    consumer_properties,
    lane_id,
    library_version,
    producer_properties,
    transactional_id,
)
from hapax.kafka.read.offsets_client import reader_properties
from hapax.settings import Settings, load_settings
from hapax.wiring import builders
from tests.kit.managed_process import required

REQUIRED = required(app="orders", servers="kafka-0:9092", INSTANCE="orders-0")


def settings(**more: str) -> Settings:
    return load_settings({**REQUIRED, **{f"HAPAX_{name}": text for name, text in more.items()}})


def test_the_consumer_reads_committed_records_and_commits_nothing_by_itself():
    properties = consumer_properties(settings())
    expected: dict[str, Any] = {
        "group.id": "orders",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "metadata.recovery.strategy": "none",
    }
    assert properties.items() >= expected.items()


def test_the_transactional_id_is_app_and_instance_so_that_a_successor_fences():
    assert transactional_id(settings()) == "orders:orders-0"
    properties = producer_properties(settings())
    assert properties["transactional.id"] == "orders:orders-0"
    assert properties["enable.idempotence"] is True
    assert properties["debug"] == "broker"


def test_the_worker_is_built_with_these_properties():
    known, kind = settings(), Mock()
    watchdog = SimpleNamespace(watch=None)
    events = SimpleNamespace(librdkafka_logged=None)
    shared: Any = SimpleNamespace(
        settings=known, events=events, clock=None, watchdog=watchdog, native=None
    )

    builders.source(shared, kind)
    producing = builders.transaction(shared, SimpleNamespace(meet_cluster=None))  # type: ignore[arg-type]
    assert [made.args[0] for made in kind.call_args_list] == [consumer_properties(known)]
    assert isinstance(producing, KafkaTransaction)
    assert producing._properties == producer_properties(known)


def test_no_two_pairs_of_app_and_instance_make_the_same_id():
    pairs = [("orders", "eu-0"), ("orders-eu", "0"), ("orders-eu-0", "0"), ("orders", "eu-0.0")]
    pairs += [("orders", "replay"), ("orders", "sink"), ("orders", "0"), ("orders", "0-1")]
    ids = [
        name
        for app, instance in pairs
        for name in (
            transactional_id(settings(APP=app, INSTANCE=instance)),
            lane_id(settings(APP=app, INSTANCE=instance), 0),
            lane_id(settings(APP=app, INSTANCE=instance), 1),
        )
    ]
    ids += [replay_id("orders"), sink_names("orders").transactional_id]
    ids += [sink_lane_names("orders", lane).transactional_id for lane in (0, 1)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_the_weaker_guarantees_have_no_transaction(guarantee):
    properties = producer_properties(settings(GUARANTEE=guarantee))
    assert "transactional.id" not in properties
    assert properties["enable.idempotence"] is True


def test_a_static_member_is_named_by_classic_protocol_only():
    static = consumer_properties(settings(GROUP__MEMBERSHIP="static"))
    assert static["group.instance.id"] == "orders-orders-0"
    assert static["partition.assignment.strategy"] == "cooperative-sticky"
    dynamic = consumer_properties(settings(GROUP__MEMBERSHIP="dynamic", GROUP__PROTOCOL="consumer"))
    assert not dynamic.keys() & {"group.instance.id", "session.timeout.ms"}
    assert "partition.assignment.strategy" not in dynamic


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [("murmur2", "murmur2_random"), ("round_robin", "random"), ("random", "random")],
)
def test_the_partitioner_is_named_as_the_client_names_it(partitioner, name):
    assert producer_properties(settings(OUTPUT__PARTITIONER=partitioner))["partitioner"] == name


def test_properties_for_fetching_reach_the_consumer_only():
    given = settings(KAFKA__PROPERTIES='{"fetch.min.bytes": 7}')
    assert consumer_properties(given)["fetch.min.bytes"] == "7"
    assert "fetch.min.bytes" not in producer_properties(given)
    assert library_version()[0].isdigit()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_reader_without_a_group_can_be_built_whatever_the_members_times_are(protocol):
    ours = settings(
        GROUP__MEMBERSHIP="dynamic",
        GROUP__PROTOCOL=protocol,
        GROUP__SESSION_TIMEOUT="6s",
        GROUP__MAX_POLL_INTERVAL="8s",
        TRANSACTION__TIMEOUT="5s",
        WATCHDOG__TIMEOUT="7s",
    )
    for properties in (reader_properties(ours), consumer_properties(ours)):
        offline = {name: value for name, value in properties.items() if name != "bootstrap.servers"}
        Consumer({**offline, "log_level": 0}).close()

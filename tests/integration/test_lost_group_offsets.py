"""A group without an offset: new, or one that has worked and whose offsets are lost."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from hapax.sandbox import SandboxTopic
from tests.kit.at_work import admin, await_exit, delete_topic, event, numbers, values
from tests.kit.night import Desk, ran
from tests.kit.orders import told
from tests.kit.routes import a_route
from tests.kit.topics import Given, produce
from tests.kit.waiting import await_

FIRST, MORE = range(40), range(40, 50)
route = a_route(partitions=2, GROUP__MEMBERSHIP="dynamic")


def events(which: range) -> list[Given]:
    return [event(number, partition=number % 2) for number in which]


def forget_offsets(route) -> None:
    """Do what brokers do when the group has been empty for long enough."""
    client = admin(route)
    client.delete_consumer_groups([route.app])[route.app].result(30)
    assert route.committed() == {0: None, 1: None}


@pytest.mark.parametrize("start", ["earliest", "latest", "30d"])
def test_a_group_whose_offsets_are_lost_stops_with_what_its_outputs_propose(route, start):
    route.write(*events(FIRST))
    ran(route)
    forget_offsets(route)
    route.write(*events(MORE))
    places = [f"{route.source}/0/20", f"{route.source}/1/20"]
    await_exit(route.worker(INPUT__START=start), 6, *places, "hapax offsets set", "expired")
    desk = Desk(route, INPUT__START=start)
    set_ = desk.ask("offsets", "set", route.source, "outputs", "--yes")
    assert [(one["partition"], one["offset"]) for one in set_["moves"]] == [(0, 20), (1, 20)]
    ran(route, INPUT__START=start)
    assert values(route) == sorted(one.value or b"" for one in events(range(50)))


def test_claims_of_what_outputs_name_are_kept_when_lost_offsets_are_set(redis_url, sandbox, route):
    route.write(*events(FIRST))
    ran(route, DEDUP__REDIS_URL=redis_url)
    forget_offsets(route)
    await_exit(route.worker(DEDUP__REDIS_URL=redis_url), 6, "hapax offsets set")
    desk = Desk(route, DEDUP__REDIS_URL=redis_url)
    assert desk.ask("offsets", "set", route.source, "outputs", "--yes")["claims_forgotten"] == 0
    route.write(*events(FIRST))  # sent once more
    ran(route, DEDUP__REDIS_URL=redis_url)
    assert len(values(route)) == len(FIRST)


def test_a_dead_letter_alone_tells_that_the_pipeline_has_worked(route):
    route.write(Given(b"no order", partition=1))
    ran(route, TRANSFORM="tests.kit.orders:poison")
    assert (len(route.outputs()), len(route.dead())) == (0, 1)
    forget_offsets(route)
    await_exit(route.worker(), 6, f"{route.source}/1/1")


def test_a_topic_that_was_made_again_begins_as_a_new_one(route):
    route.write(*events(FIRST))
    ran(route)
    delete_topic(route, route.source)
    route.sandbox.create_topics(SandboxTopic(route.source, 2))
    route.write(*events(range(60)))
    ran(route)
    assert len(values(route)) == 40 + 60


def test_an_added_input_and_an_added_partition_begin_as_new_ones(route):
    route.write(*events(FIRST))
    ran(route)
    other = f"{route.app}-more"
    route.sandbox.create_topics(SandboxTopic(other, 1))
    produce(route.bootstrap, other, *(Given(value) for value in numbers(range(5))))
    client = admin(route)
    client.create_partitions([NewPartitions(route.source, 3)])[route.source].result(30)
    await_(lambda: len(route.committed()) == 3, 30, lambda: "no third partition")
    producer = Producer({"bootstrap.servers": route.bootstrap})
    producer.produce(route.source, b"in the new one", partition=2)
    assert producer.flush(30) == 0
    route.run_to_end(INPUT__TOPICS=f"{route.source},{other}")
    assert len(values(route)) == 40 + 5 + 1


def test_a_group_that_never_came_to_an_output_is_a_new_one(route):
    route.write(*(Given(b"", headers=(told(),), partition=number % 2) for number in FIRST))
    ran(route)
    assert (values(route), route.committed()) == ([], {0: 20, 1: 20})
    forget_offsets(route)
    ran(route)
    assert route.committed() == {0: 20, 1: 20}

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError, MemberFencedError, PreflightError, StopError
from hapax.kafka import connection
from hapax.kafka.consume import partition_state
from hapax.kafka.consume.client import ASK_TIMEOUT_S, LOOK_S, PATIENCE_S, parse_metadata
from hapax.kafka.consume.partition_state import (
    RETRY_LARGE_S,
    HeldUpPartitions,
    PartitionStates,
)
from hapax.kafka.read.too_large import TooLarge
from tests.kit.claim_stores import Hand
from tests.kit.consumers import FakeConsumer, event, message, metadata, source

AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def asked(monkeypatch):
    """A source whose client is not answered, and the client that would be a new one."""
    kafka, consumer, clock = source(monkeypatch)
    new = FakeConsumer()

    def client(*_values: object, **_named: object) -> Any:
        return new

    monkeypatch.setattr(connection, "AdminClient", client)
    consumer.fail["list_topics"] = [AWAY] * 100
    return kafka, consumer, new, clock


def looks(kafka, clock) -> list[bool]:
    clock.wait(LOOK_S)
    found = []
    for _ in range(int(PATIENCE_S / ASK_TIMEOUT_S) + 2):
        found.append(kafka.cut_off())
        clock.wait(ASK_TIMEOUT_S)
    return found


def test_a_client_is_cut_off_when_new_ones_are_answered_for_a_while_and_it_is_not(asked):
    kafka, _, _, clock = asked
    found = looks(kafka, clock)
    assert (found[0], found[-1], kafka.answered) == (False, True, False)


def test_an_answer_that_names_no_broker_is_none(asked):
    kafka, consumer, new, clock = asked
    consumer.fail.clear()
    consumer.brokers = {}
    assert looks(kafka, clock)[-1]
    new.brokers = {}
    kafka._consumer.renew()
    assert not any(looks(kafka, clock))


def test_in_an_outage_no_client_is_cut_off(asked):
    kafka, _, new, clock = asked
    new.fail["list_topics"] = [AWAY] * 100
    assert not any(looks(kafka, clock))
    assert not kafka.answered


def test_who_reads_records_or_is_answered_is_not_asked_in_vain(asked):
    kafka, consumer, _, clock = asked
    clock.wait(LOOK_S)
    consumer.queue = [message(0)]
    kafka.take(10, 0.1)
    assert not kafka.cut_off()
    assert (kafka.answered, consumer.calls.count("list_topics")) == (True, 0)
    consumer.fail.clear()
    assert not any(looks(kafka, clock))


def test_a_new_client_begins_again(asked):
    kafka, _, _, clock = asked
    looks(kafka, clock)
    kafka._consumer.renew()
    assert (kafka.answered, kafka.cut_off()) == (True, False)


LONG_FETCHES = {"fetch.wait.max.ms": "3000"}


@pytest.mark.parametrize(("properties", "behind_s"), [(LONG_FETCHES, 3), ({}, 0.5)])
def test_an_answer_may_come_behind_the_longest_fetch(asked, properties, behind_s):
    kafka, consumer, _, clock = asked
    waited = []

    def list_topics(topic: str, *, timeout: float) -> object:
        waited.append(timeout)
        return FakeConsumer().list_topics(topic)

    consumer.list_topics = list_topics
    kafka._consumer.properties = properties
    clock.wait(LOOK_S)
    assert not kafka.cut_off()
    assert waited == [behind_s + ASK_TIMEOUT_S]


def test_positions_are_gathered_when_a_look_is_due_and_not_each_time_round(asked, monkeypatch):
    kafka, _, _, clock = asked
    gathered = []

    def next_offsets() -> dict[Any, int]:
        gathered.append(1)
        return {}

    monkeypatch.setattr(kafka._states, "next_offsets", next_offsets)
    for _ in range(5):
        assert not kafka.cut_off()
    assert gathered == []
    clock.wait(LOOK_S)
    kafka.cut_off()
    assert gathered == [1]


Patch = pytest.MonkeyPatch


def test_a_fenced_member_and_a_dead_consumer_are_told_apart(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError.FENCED_INSTANCE_ID, fatal=True)]
    with pytest.raises(MemberFencedError) as caught:
        kafka.take(10, 0.1)
    assert not caught.value.explained
    consumer.queue = [event(KafkaError._FATAL, fatal=True)]
    with pytest.raises(StopError, match="the consumer is dead"):
        kafka.take(10, 0.1)


def test_a_group_of_the_classic_protocol_is_refused_with_what_to_do(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError.GROUP_ID_NOT_FOUND, fatal=True)]
    with pytest.raises(PreflightError, match="Stop them all"):
        kafka.take(10, 0.1)


def test_missing_rights_stop_and_transport_trouble_is_only_told(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.queue = [event(KafkaError._TRANSPORT)]
    kafka.attend(0.0)
    assert len(kafka.changes().errors) == 1
    consumer.queue = [event(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(StopError, match="not allowed to read"):
        kafka.take(10, 0.1)


def test_only_a_live_member_sends_its_metadata(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    assert kafka.member() == metadata(3, "member-1")
    for dead in (metadata(-1, ""), metadata(5, ""), metadata(-1, "member-1")):
        consumer.metadata = dead
        with pytest.raises(BatchAbortedError, match="no live member"):
            kafka.member()


def test_the_metadata_is_that_of_now_and_not_of_the_subscription(monkeypatch):
    kafka, consumer, _ = source(monkeypatch)
    consumer.metadata = metadata(-1, "")
    kafka.subscribe()
    consumer.metadata = metadata(4, "member-1")
    assert kafka.member() == metadata(4, "member-1")


def test_group_metadata_of_another_layout_is_refused():
    assert parse_metadata(metadata(7, "m")) == (7, "m")
    with pytest.raises(BatchAbortedError, match="unknown layout"):
        parse_metadata(b"CGMDv3:" + metadata(7, "m")[7:])


@pytest.mark.parametrize("back", ["before the end of the pause", "after it"])
def test_a_partition_that_left_while_it_was_paused_is_delivered_once_it_is_back(monkeypatch, back):
    kafka, consumer, _ = source(monkeypatch)
    both, consumer.ours = consumer.ours, consumer.ours[:1]
    kafka.pause()
    consumer.ours = []
    if back == "after it":
        kafka.resume()
    consumer.ours = both
    kafka.attend(0.0)
    if back != "after it":
        assert consumer.paused == {("in", 0)}
        kafka.resume()
    kafka.take(10, 0.1)
    assert consumer.paused == set()


P0, P1, P2 = ("in", 0), ("in", 1), ("in", 2)
LINE = ("FAIL", "c-1", "b/1: Receive failed: Invalid response size 3000149 (0..2000000): increase")


class Reading:
    """Three partitions of which each has 10 records; those in ``large`` begin with a large one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, large: set[tuple[str, int]]) -> None:
        self.large, self.clock = large, Hand()
        self.asked: list[tuple[str, int]] = []
        self.held: dict[tuple[str, int], bool] = {}
        self.read_on: list[tuple[tuple[str, int], int]] = []
        self.cut = False
        self.log = SimpleNamespace(too_large=TooLarge())
        self.properties = {"group.instance.id": "shop-0"}
        self.states = PartitionStates(self.clock)
        for where in (P0, P1, P2):
            self.states[where].next = 5
        positions = SimpleNamespace(read_on=lambda where, at: self.read_on.append((where, at)))
        parts = cast("Any", (self, self.states, positions, self.clock))
        self.held_up = HeldUpPartitions(*parts)
        monkeypatch.setattr(partition_state, "too_large", self._too_large)

    def _too_large(self, properties: dict[str, Any], where: tuple[str, int], at: int) -> str:
        assert (properties, at) == ({}, 5)
        self.asked.append(where)
        self.clock.now_s += 0.8
        return "too large" if where in self.large else ""

    def offsets(self, partitions: dict[tuple[str, int], int], _at: int) -> dict[Any, int]:
        if self.cut:
            raise BatchAbortedError("the connection broke")
        return dict.fromkeys(partitions, 10)

    def hold(self, where: tuple[str, int], *, held: bool) -> None:
        self.held[where] = held

    def hear(self) -> None:
        """Let the client say it, and attend a while later."""
        self.log.too_large.log(40, "%s", *LINE)
        self.clock.now_s += partition_state.LOOK_S
        self.held_up.attend()


def test_while_no_such_line_is_heard_nothing_is_asked(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.log.too_large.log(40, "%s", "FAIL", "c-1", "b/1: Disconnected")
    reading.held_up.attend()
    assert reading.asked == []


def test_the_partition_that_stands_still_before_a_large_record_is_held_and_named(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.states[P0].next = 6
    reading.hear()
    assert reading.asked == [P1, P2], "what moves is not asked for"
    assert {where: one.offset for where, one in reading.states.stuck.known.items()} == {P1: 5}
    assert reading.held == {P1: True}


def test_at_first_what_nothing_was_handed_out_of_is_asked_for(monkeypatch):
    reading = Reading(monkeypatch, {P2})
    reading.states[P2].settled = 5
    reading.hear()
    assert reading.held == {P2: True}


def test_what_was_found_fine_lets_others_come_first(monkeypatch):
    reading = Reading(monkeypatch, set())
    monkeypatch.setattr(partition_state, "SEARCH_S", 0.5)
    for _ in range(4):
        reading.hear()
    assert reading.asked == [P0, P1, P2]


def test_ends_that_cannot_be_told_are_asked_for_with_the_next_line(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.cut = True
    reading.hear()
    assert reading.held == {}
    reading.cut = False
    reading.hear()
    assert reading.held == {P1: True}


def test_a_large_one_is_read_again_only_once_it_is_gone(monkeypatch):
    reading = Reading(monkeypatch, {P1})
    reading.hear()
    reading.hear()
    reading.asked.clear()
    reading.clock.now_s += RETRY_LARGE_S
    reading.held_up.attend()
    assert (reading.asked, reading.held, reading.read_on) == ([P1], {P1: True}, [])
    reading.large.clear()
    reading.clock.now_s += RETRY_LARGE_S
    reading.held_up.attend()
    assert (reading.held, reading.read_on) == ({P1: False}, [(P1, 5)])

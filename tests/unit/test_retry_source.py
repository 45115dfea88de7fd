"""The retry topic beside the inputs, on messages made by hand."""

import random
from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from hapax.core.headers import Retried
from hapax.core.records import Coordinates
from hapax.core.span import Span
from hapax.kafka.consume import client as kafka_consumer, delay_buffer
from hapax.kafka.consume.retry_source import KafkaRetrySource
from hapax.processing.retry_later import (
    FACTOR,
    LEVELS,
    LONGEST_MS,
    LOWEST_MS,
    SHORTEST_MS,
    WAITS_MS,
    create_command,
    place,
)
from tests.kit.consumers import FakeConsumer, message
from tests.kit.doubles import Ticking

EOF, BAD = KafkaError._PARTITION_EOF, KafkaError._BAD_MSG
LEVEL_0, LEVEL_2 = ("app-retry", 0), ("app-retry", 2)
Patch = pytest.MonkeyPatch


class World:
    """A real source on a fake consumer; the wall clock follows the other one."""

    def __init__(self, patch: Patch, start: str = "earliest") -> None:
        patch.setattr(kafka_consumer, "Consumer", FakeConsumer)
        self.clock = Ticking()
        self.kafka = KafkaRetrySource(
            {"group.id": "app", "queued.min.messages": 7},
            ["in"],
            retry="app-retry",
            now_ms=self.now_ms,
            start=start,
            logger=None,
            clock=self.clock,
            watch=lambda _call: nullcontext(),
        )
        consumer: Any = self.kafka._consumer.client
        self.consumer = consumer
        self.consumer.ours = [("in", 0), ("in", 1), LEVEL_0, LEVEL_2]

    def now_ms(self) -> int:
        return int(self.clock.now_s * 1000)

    def waiting(self, offset: int, wait_ms: int, partition: int = 0) -> Message:
        until = self.now_ms() + wait_ms
        retried = Retried(
            of="in/0/1", timestamp=1, attempt=1, calls=1, move=1, until=until, due=until
        )
        where: dict[str, Any] = {"topic": "app-retry", "partition": partition, "offset": offset}
        return Message(
            **where, key=b"k", value=b"v", timestamp=(1, 7), headers=list(retried.encode())
        )

    def event(self, code: int, offset: int, partition: int = 0) -> Message:
        return Message(
            topic="app-retry", partition=partition, offset=offset, error=KafkaError(code, "")
        )

    def take(self, count: int = 10) -> list[Coordinates]:
        return [one.coordinates for one in self.kafka.take(count, 0.1).records]


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_what_has_not_waited_long_enough_is_no_record_and_no_progress(world):
    world.consumer.queue = [world.waiting(4, 200), message(1), world.event(EOF, 9)]
    batch = world.kafka.take(10, 0.1)
    assert list(batch.next) == [("in", 0)]
    assert [record.topic for record in batch.records] == ["in"]
    assert world.kafka.waiting() == 1
    world.clock.wait(0.199)
    assert world.kafka.take(10, 0.1).next == {}
    world.clock.wait(0.002)
    batch = world.kafka.take(10, 0.1)
    assert batch.first == {LEVEL_0: 4}
    assert batch.next == {LEVEL_0: 9}  # the end counts behind the records before it
    assert world.kafka.waiting() == 0


def test_a_level_is_handed_out_in_order_and_another_one_is_not_held_up(world):
    world.consumer.queue = [
        world.waiting(4, 200), world.waiting(5, 50), world.waiting(8, 50, partition=2)
    ]  # fmt: skip
    assert world.take() == []
    world.clock.wait(0.06)
    assert world.take() == [("app-retry", 2, 8)]
    world.clock.wait(0.2)
    assert world.take() == [("app-retry", 0, 4), ("app-retry", 0, 5)]


def test_an_intake_waits_no_longer_than_until_the_next_one_is_to_be_looked_at(world):
    waits: list[float] = []
    poll = world.consumer.poll

    def noted(wait_s: float) -> Any:
        waits.append(wait_s)
        return poll(wait_s)

    world.consumer.poll = noted
    world.consumer.queue = [world.waiting(4, 30)]
    world.take()
    world.take()
    assert waits[0] == 0.1
    assert 0 < waits[1] <= 0.03


def test_no_more_is_taken_than_asked_for_and_the_client_is_asked_each_time(world):
    world.consumer.queue = [world.waiting(offset, 0) for offset in range(5)]
    taken = world.take(1)
    polls = world.consumer.calls.count("poll")
    world.consumer.queue += [message(offset) for offset in range(5)]
    for _ in range(20):
        found = world.take(2)
        assert len(found) <= 2
        taken += found
    assert len(taken) == len(set(taken)) == 10
    assert world.consumer.calls.count("poll") >= polls + 20


def test_what_is_rewound_or_left_is_forgotten_and_read_again(world):
    world.consumer.queue = [world.waiting(4, 200), world.waiting(8, 200, partition=2)]
    world.take()
    world.kafka.rewind({LEVEL_0: 4})
    assert world.kafka.waiting() == 1
    world.kafka._states.leave([LEVEL_2])
    assert world.kafka.waiting() == 0
    world.clock.wait(1)
    world.consumer.offsets = {LEVEL_2: 8}
    world.consumer.queue = [world.waiting(4, 0)]
    assert world.take() == [("app-retry", 0, 4)]


def test_what_arrives_of_a_partition_that_left_in_the_same_call_is_not_kept(world):
    world.consumer.queue = [world.waiting(4, 200)]
    world.consumer.ours = [("in", 0)]
    world.consumer.before_poll = lambda: world.kafka._states.leave([LEVEL_0])
    assert world.take() == []
    assert world.kafka.waiting() == 0


def test_a_set_that_cannot_be_decoded_does_not_pass_those_that_wait_before_it(world):
    world.consumer.queue = [world.waiting(3, 200), world.event(BAD, 4), world.waiting(9, 0)]
    assert world.take() == []
    assert world.kafka.stuck() == {}
    world.clock.wait(0.3)
    assert world.take() == [("app-retry", 0, 3)]
    assert world.kafka.stuck()[LEVEL_0].offset == 4
    assert world.take() == []


def test_a_time_that_a_wrong_clock_wrote_holds_a_level_no_longer_than_its_wait(world):
    world.consumer.queue = [world.waiting(4, 3_600_000), world.waiting(6, 3_600_000, partition=2)]
    world.take()
    world.clock.wait(0.3)
    assert world.take() == [("app-retry", 0, 4)]
    world.clock.wait(WAITS_MS[2] / 1000)
    assert world.take() == [("app-retry", 2, 6)]


def test_of_a_level_on_which_much_waits_no_more_is_read_until_half_of_it_is_gone(
    world, monkeypatch
):
    monkeypatch.setattr(delay_buffer, "RECORDS_MAX", 4)
    world.consumer.queue = [world.waiting(offset, 200) for offset in range(4)]
    world.take()
    world.take()
    assert world.consumer.paused == {LEVEL_0}
    for why in ("operator", "outage"):
        world.kafka.pause(why)
        assert len(world.consumer.paused) == 4
        world.kafka.resume(why)
        assert world.consumer.paused == {LEVEL_0}, "it has a reason of its own"
    world.clock.wait(0.3)
    assert len(world.take(2)) == 2
    world.take(0)
    assert world.consumer.paused == set()
    assert world.consumer.seeks == [("app-retry", 0, 4)]


def test_a_short_queue_is_fetched_unless_the_settings_say_otherwise(world):
    assert world.kafka._consumer.properties == {
        "group.id": "app",
        "queued.min.messages": 7,
        "fetch.message.max.bytes": 128 << 10,
    }


def test_a_bounded_run_does_not_wait_for_the_retry_topic(world, monkeypatch):
    spans = "hapax.kafka.consume.span_stops.spans"
    monkeypatch.setattr(spans, lambda _p, places, _w: dict.fromkeys(places, Span(0, 3, "")))
    assert {topic for topic, _partition in world.kafka.ends() or ()} == {"in"}


@pytest.mark.parametrize("start", ["latest", "refuse"])
def test_the_retry_topic_is_read_from_its_first_record_wherever_inputs_begin(monkeypatch, start):
    world = World(monkeypatch, start)
    world.kafka._positions.find([LEVEL_0])
    assert world.consumer.seeks == [("app-retry", 0, 0)]


# -- The timer wheel of the retry topic: pure arithmetic ----------------------------------

MOVES_MAX = 3 * (LEVELS - 2) + 2
"""At most three in each level but the highest, one there more than once, and level 0."""


def path(delay_ms: int, late_ms: int = 0) -> list[tuple[int, int]]:
    """Return level and wait of each move, when each is looked at so late, until it is due."""
    left, found = delay_ms, []
    while left > 0:
        level, wait_ms = place(left)
        found.append((level, wait_ms))
        left -= wait_ms + late_ms
    return found


@pytest.mark.parametrize("seed", range(20))
def test_any_delay_comes_down_to_its_due_time_in_few_moves_and_never_early(seed):
    chance = random.Random(seed)
    for _ in range(500):
        delay_ms = round(SHORTEST_MS * (LONGEST_MS / SHORTEST_MS) ** chance.random())
        moves = path(delay_ms)
        assert sum(wait for _level, wait in moves) == delay_ms
        assert len(moves) <= MOVES_MAX
        levels = [level for level, _wait in moves]
        assert levels == sorted(levels, reverse=True)


def test_the_longest_delay_needs_no_more_moves_than_the_page_says():
    assert max(len(path(delay)) for delay in range(SHORTEST_MS, LONGEST_MS, 7919)) <= MOVES_MAX


@pytest.mark.parametrize("delay_ms", [SHORTEST_MS, 5_000, 300_000, LONGEST_MS])
def test_what_is_looked_at_late_waits_less_and_is_no_later_than_the_last_look(delay_ms):
    late_ms = 40
    spent = sum(wait + late_ms for _level, wait in path(delay_ms, late_ms))
    assert delay_ms <= spent <= delay_ms + late_ms


@pytest.mark.parametrize("level", range(1, LEVELS))
def test_a_record_waits_in_the_highest_level_whose_wait_fits(level):
    wait_ms = WAITS_MS[level]
    assert place(wait_ms) == (level, wait_ms)
    assert place(wait_ms - 1) == (level - 1, WAITS_MS[level - 1] or wait_ms - 1)


def test_the_lowest_level_holds_up_for_less_than_its_bound_and_the_highest_is_near_a_day():
    assert place(LOWEST_MS - 1) == (0, LOWEST_MS - 1)
    assert place(0) == place(-5) == (0, 0)
    assert LOWEST_MS <= 500
    assert WAITS_MS[-1] <= LONGEST_MS < FACTOR * WAITS_MS[-1]


def test_the_command_gives_the_topic_one_partition_for_each_level():
    assert f"--partitions {LEVELS}" in create_command("t")
    assert f"--alter --topic t --partitions {LEVELS}" in create_command("t", existing=True)

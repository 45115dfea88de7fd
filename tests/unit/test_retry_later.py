"""Later tries without a broker: what a call becomes, what waits, and what comes back."""

import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage

from hapax import Output, Poison, Record, RetryLater
from hapax.core.batch_result import BatchResult
from hapax.core.dead_letters import condemn
from hapax.core.deduplicate import Claimed
from hapax.core.headers import Retried
from hapax.core.identity import Identity
from hapax.core.later_calls import LaterCalls
from hapax.core.plan import Destinations, Planner
from hapax.core.ports import Batch, Interrupt, Message
from hapax.core.record_path import Facts
from hapax.core.records import Coordinates
from hapax.core.retry_later import (
    FACTOR,
    LEVELS,
    LONGEST_MS,
    LOWEST_MS,
    SHORTEST_MS,
    WAITS_MS,
    Later,
    Put,
    Retrying,
    RetryTopic,
    create_command,
    place,
)
from hapax.core.span import Span
from hapax.core.transform import Failure, Result, Transformer
from hapax.kafka.consume import client as kafka_consumer
from hapax.kafka.consume import shelf
from hapax.kafka.consume.retry_source import KafkaRetrySource
from tests.kit.consumers import FakeConsumer, message
from tests.kit.doubles import Ticking

TOPIC = RetryTopic("app-retry", frozenset({"in"}))
NOW_MS = 1_700_000_000_000
FIRST = Record("in", 3, 7, b"k", b"v", (("id", b"1"), ("hapax-id", b"up")), 77)


def policy(**fields: object) -> Retrying:
    return Retrying(**{"topic": TOPIC, **fields})  # type: ignore[arg-type]


def asking(after: str | float | timedelta) -> Callable[[Record], Output]:
    def ask(_record: Record) -> Output:
        raise RetryLater("busy", after=after)

    return ask


def apply(error: Exception, retrying: Retrying, attempts: int = 1) -> Result:
    def fail(_record: Record) -> Output:
        raise error

    return Transformer(fail, attempts, retrying).apply(FIRST)


# -- what business code asks for ----------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "delay_ms"),
    [
        ("5m", 300_000),
        ("1s", 1000),
        ("24h", 86_400_000),
        (2.5, 2500),
        (timedelta(hours=1), 3_600_000),
    ],
)
def test_a_delay_is_text_seconds_or_a_timedelta(after, delay_ms):
    assert apply(RetryLater("busy", after=after), policy()) == Later(
        delay_ms, "RetryLater", "busy", 1
    )


@pytest.mark.parametrize(
    "after",
    ["999ms", "25h", 0, -1, float("nan"), float("inf"), "soon", "5", None, timedelta(days=2)],
)
def test_what_is_no_delay_from_1_s_to_24_h_is_poison_and_says_so(after):
    failure = apply(RetryLater(after=after), policy(), attempts=3)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.attempts) == ("Poison", 1)
    assert "RetryLater(after=" in failure.text


def test_without_a_topic_a_later_try_is_a_dead_letter_that_says_what_to_set():
    failure = apply(RetryLater(after="5m"), Retrying(), attempts=3)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.attempts) == ("RetryLater", 1)
    assert "set HAPAX_RETRY__TOPIC" in failure.text


@pytest.mark.parametrize("name", ["ConnectionError", "OSError", "builtins.ConnectionResetError"])
def test_a_type_of_errors_is_named_by_itself_a_parent_or_its_module(name):
    error = ConnectionResetError("gone")
    assert apply(error, policy(later=(name,)), attempts=3) == Later(
        None, "ConnectionResetError", "gone", 3
    )
    assert isinstance(apply(error, policy(later=("Timeout",))), Failure)


def test_poison_never_waits():
    assert isinstance(apply(Poison("never"), policy(later=("Exception",))), Failure)


# -- attempts at once -----------------------------------------------------------------------


def test_attempts_at_once_have_a_pause_that_doubles_is_bounded_and_ends_with_the_batch():
    retrying = Retrying(backoff_ms=100)
    pauses = [retrying.pause_s(attempts) for attempts in (1, 2, 3, 30)]
    for pause_s, most_s in zip(pauses, (0.1, 0.2, 0.4, 1.0), strict=True):
        assert most_s / 2 <= pause_s <= most_s
    interrupt, began_s = Interrupt(), time.monotonic()
    interrupt.due = True
    interrupt.pause(30.0)
    assert time.monotonic() - began_s < 5
    interrupt.due = False
    interrupt.pause(0.02)
    assert time.monotonic() - began_s >= 0.02


def test_delays_by_policy_double_up_to_the_longest_and_chance_only_adds():
    retrying = policy(delay_ms=1000, delay_max_ms=5000)
    for attempt, least in ((1, 1000), (2, 2000), (3, 4000), (4, 5000), (40, 5000)):
        assert least <= retrying.delay_after(attempt) <= min(5000, least * 1.1)


# -- the way of a record ----------------------------------------------------------------------


def later_calls(
    function: Callable[[Record], Output], now_ms: int, retrying: Retrying | None = None
) -> LaterCalls:
    retrying = retrying or policy()
    return LaterCalls(Transformer(function, 1, retrying), retrying, now_ms=lambda: now_ms)


def step(function: Callable[[Record], Output], record: Record, now_ms: int) -> Result | None:
    return later_calls(function, now_ms).apply_all([record], Interrupt(), {})[0]


def written(record: Record, result: Result | None, event_id: bytes = b"1") -> Message:
    planner = Planner(Destinations("app", "out", "dead", TOPIC))
    (message,) = planner.plan([record], [event_id], [result], {}).messages
    return message


def read_back(message: Message, offset: int = 0) -> Record:
    return Record(
        message.topic,
        message.partition,
        offset,
        message.key,
        message.value,
        tuple(message.headers),
        NOW_MS,
    )


def test_a_record_waits_comes_down_is_called_as_it_was_and_its_output_names_the_original():
    seen: list[Record] = []

    def note(record: Record) -> Output:
        seen.append(record)
        return Output(b"done")

    now_ms, message = NOW_MS, written(FIRST, step(asking("1h"), FIRST, NOW_MS))
    for move in range(1, 50):
        record = read_back(message, move)
        retried = TOPIC.read(record)
        assert retried is not None
        assert (retried.move, retried.attempt, retried.of) == (move, 1, "in/3/7")
        assert retried.until <= retried.due == NOW_MS + 3_600_000
        assert message.timestamp_ms is None  # of writing: retention counts from there
        now_ms = retried.until
        result = step(note, record, now_ms)
        message = written(record, result)
        if not isinstance(result, Put):
            break
        assert not result.called
    assert now_ms == NOW_MS + 3_600_000
    assert seen == [FIRST]
    assert dict(message.headers) == {"id": b"1", "hapax-id": b"1", "hapax-source": b"in/3/7"}
    assert (message.topic, message.key, message.timestamp_ms) == ("out", b"k", 77)


def test_after_the_last_try_there_is_a_dead_letter_of_the_original_with_all_calls():
    now_ms, record = NOW_MS, FIRST
    for attempt in (1, 2):
        result = step(asking("1s"), record, now_ms)
        assert isinstance(result, Put)
        assert (result.retried.attempt, result.retried.calls) == (attempt, attempt)
        record, now_ms = read_back(written(record, result)), now_ms + 1000
    calls = later_calls(asking("1s"), now_ms, policy(later_attempts=2))
    (failure,) = calls.apply_all([record], Interrupt(), {})
    letter = written(record, failure)
    assert letter.topic == "dead"
    headers = dict(letter.headers)
    assert headers["hapax-error"] == b"RetryLater: busy"
    assert (headers["hapax-attempts"], headers["hapax-source"]) == (b"3", b"in/3/7")
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b"v", 77)
    assert not [name for name in headers if name.startswith("hapax-retry")]


def test_another_error_on_a_later_try_counts_the_calls_before_it():
    def fail(_record: Record) -> Output:
        raise ValueError("no")

    record = read_back(written(FIRST, step(asking("1s"), FIRST, NOW_MS)))
    assert step(fail, record, NOW_MS + 1000) == Failure("ValueError", "no", 2)


def test_a_failure_that_was_kept_over_an_abort_has_its_calls_counted_once():
    record = read_back(written(FIRST, step(asking("1s"), FIRST, NOW_MS)))
    kept = Failure("ValueError", "no", 2)
    calls = later_calls(asking("1s"), NOW_MS + 1000)
    assert calls.apply_all([record], Interrupt(), {0: kept}) == [kept]
    refused = condemn(record.coordinates, "MSG_SIZE_TOO_LARGE", None)
    (failure,) = calls.apply_all([record], Interrupt(), {0: refused})
    assert isinstance(failure, Failure)
    assert failure.attempts == 2
    cut = condemn(record.coordinates, "MSG_SIZE_TOO_LARGE", failure)
    assert calls.apply_all([record], Interrupt(), {0: cut}) == [cut]


def test_a_record_that_waits_has_the_claim_of_its_original_or_of_what_that_replayed():
    identity = Identity(("header:id",), inputs={"in"}, retry=TOPIC)
    waiting = read_back(written(FIRST, step(asking("1s"), FIRST, NOW_MS)))
    found = identity.identify([waiting])
    assert (found.ids, found.replays) == ([b"1"], {0: Coordinates("in", 3, 7)})
    replay = Record("in", 0, 1, b"k", b"v", (("id", b"1"), ("hapax-replay-of", b"in/0/0")), 1)
    waiting = read_back(written(replay, step(asking("1s"), replay, NOW_MS)))
    assert identity.identify([waiting]).replays == {0: Coordinates("in", 0, 0)}


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("hapax-retry-of", b"in/3/7"),),
        tuple(
            Retried(
                of="other/0/1", timestamp=1, attempt=1, calls=1, move=1, until=1, due=1
            ).encode()
        ),
    ],
)
def test_what_the_pipeline_did_not_write_to_the_topic_is_poison_and_claims_nothing(headers):
    stranger = Record("app-retry", 0, 1, b"k", b"v", headers, 1)
    found = Identity(("key",), inputs={"in"}, retry=TOPIC).identify([stranger])
    assert list(found.poison) == [0]
    assert found.claims == [b""]
    letter = written(stranger, Failure("Poison", str(found.poison[0]), 1))
    assert dict(letter.headers)["hapax-source"] == b"app-retry/0/1"


def test_headers_of_a_wait_in_an_input_mean_nothing():
    forged = Retried(of="in/0/0", timestamp=1, attempt=9, calls=1, move=1, until=1, due=1).encode()
    record = Record("in", 0, 1, b"k", b"v", tuple(forged), 5)
    result = step(asking("1s"), record, NOW_MS)
    assert isinstance(result, Put)
    assert (result.retried.of, result.retried.attempt) == ("in/0/1", 1)
    assert Identity(("key",), inputs={"in"}, retry=TOPIC).identify([record]).replays == {}


def test_one_that_waits_does_not_keep_those_beside_it_from_their_calls():
    waiting = read_back(written(FIRST, step(asking("1h"), FIRST, NOW_MS)))
    calls = later_calls(lambda record: Output(record.value), NOW_MS)
    fates: dict[int, Result | None] = {2: None}
    moved, done, twin = calls.apply_all([waiting, FIRST, FIRST], Interrupt(), fates)
    assert isinstance(moved, Put)
    assert done == (Output(b"v"),)
    assert twin is None
    assert fates == {2: None}


def test_the_time_that_a_record_has_waited_on_purpose_is_no_latency():
    waiting = read_back(written(FIRST, step(asking("1h"), FIRST, NOW_MS)))
    planner = Planner(Destinations("app", "out", "dead", TOPIC))
    done = (Output(b"v"),)
    for records, times_ms in (([waiting, FIRST], (77, 77)), ([waiting], (0, 0))):
        ids = [b"1"] * len(records)
        batch = Batch(records, {}, {})
        result = BatchResult.of(
            batch,
            planner.plan(records, ids, [done] * len(records), {}),
            Facts.of(batch, ids, len(records)),
            Claimed({}),
            phases_s={},
            attempt=1,
        )
        assert (result.oldest_timestamp_ms, result.newest_timestamp_ms) == times_ms


def test_a_plan_counts_later_tries_and_moves_apart_from_failures():
    asked = step(asking("1h"), FIRST, NOW_MS)
    waiting = read_back(written(FIRST, asked))
    moved = step(asking("1h"), waiting, NOW_MS)
    planner = Planner(Destinations("app", "out", "dead", TOPIC))
    plan = planner.plan([FIRST, waiting], [b"1", b"1"], [asked, moved], {})
    assert (plan.retried, plan.moved, plan.failures) == (1, 1, {})
    assert plan.outputs() == {"app-retry": 2}


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

    def waiting(self, offset: int, wait_ms: int, partition: int = 0) -> KafkaMessage:
        until = self.now_ms() + wait_ms
        retried = Retried(
            of="in/0/1", timestamp=1, attempt=1, calls=1, move=1, until=until, due=until
        )
        where: dict[str, Any] = {"topic": "app-retry", "partition": partition, "offset": offset}
        return KafkaMessage(
            **where, key=b"k", value=b"v", timestamp=(1, 7), headers=list(retried.encode())
        )

    def event(self, code: int, offset: int, partition: int = 0) -> KafkaMessage:
        return KafkaMessage(
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
    monkeypatch.setattr(shelf, "RECORDS_MAX", 4)
    world.consumer.queue = [world.waiting(offset, 200) for offset in range(4)]
    world.take()
    world.take()
    assert world.consumer.paused == {LEVEL_0}
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
    below = place(wait_ms - 1)
    assert below.level == level - 1
    assert below.wait_ms == (WAITS_MS[level - 1] or wait_ms - 1)


def test_the_lowest_level_holds_up_for_less_than_its_bound_and_the_highest_is_near_a_day():
    assert place(LOWEST_MS - 1) == (0, LOWEST_MS - 1)
    assert place(0) == place(-5) == (0, 0)
    assert LOWEST_MS <= 500
    assert WAITS_MS[-1] <= LONGEST_MS < FACTOR * WAITS_MS[-1]


def test_the_command_gives_the_topic_one_partition_for_each_level():
    assert f"--partitions {LEVELS}" in create_command("t")
    assert f"--alter --topic t --partitions {LEVELS}" in create_command("t", existing=True)

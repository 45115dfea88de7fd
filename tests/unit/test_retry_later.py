"""Later tries without a broker: what a call becomes, what waits, and what comes back."""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from hapax import Output, Poison, Record, RetryLater
from hapax.core.headers import Retried
from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.records import Coordinates, Message
from hapax.core.results import Failure, Later, Put, Result
from hapax.processing.batch_result import BatchResult
from hapax.processing.dead_letters import condemn
from hapax.processing.deduplicate import Claimed
from hapax.processing.identity import Identity
from hapax.processing.plan import Destinations, Planner
from hapax.processing.retry_later import LaterTries, Retrying, RetryTopic
from hapax.processing.transform import Transformer

TOPIC = RetryTopic("app-retry", frozenset({"in"}))
PLANNER = Planner(Destinations("app", "out", "dead", TOPIC))
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


NO_DELAYS = ("999ms", "25h", 0, -1, float("nan"), float("inf"), "soon", "5", None)


@pytest.mark.parametrize(
    ("after", "retrying", "reason", "words"),
    [
        *((after, policy(), "Poison", "RetryLater(after=") for after in NO_DELAYS),
        (timedelta(days=2), policy(), "Poison", "RetryLater(after="),
        ("5m", Retrying(), "RetryLater", "set HAPAX_RETRY__TOPIC"),
    ],
)
def test_what_is_no_delay_from_1_s_to_24_h_or_has_no_topic_is_a_dead_letter_and_says_so(
    after, retrying, reason, words
):
    failure = apply(RetryLater(after=after), retrying, attempts=3)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.attempts) == (reason, 1)
    assert words in failure.text


@pytest.mark.parametrize("name", ["ConnectionError", "OSError", "builtins.ConnectionResetError"])
def test_a_type_of_errors_is_named_by_itself_a_parent_or_its_module_and_poison_never_waits(name):
    error = ConnectionResetError("gone")
    assert apply(error, policy(later=(name,)), attempts=3) == Later(
        None, "ConnectionResetError", "gone", 3
    )
    assert isinstance(apply(error, policy(later=("Timeout",))), Failure)
    assert isinstance(apply(Poison("never"), policy(later=(name, "Exception"))), Failure)


def test_delays_and_pauses_double_up_to_the_longest_and_a_pause_ends_with_the_batch():
    retrying = policy(delay_ms=1000, delay_max_ms=5000)
    for attempt, least in ((1, 1000), (2, 2000), (3, 4000), (4, 5000), (40, 5000)):
        assert least <= retrying.delay_after(attempt) <= min(5000, least * 1.1)
    retrying = Retrying(backoff_ms=100)
    for attempts, most_s in ((1, 0.1), (2, 0.2), (3, 0.4), (30, 1.0)):
        assert most_s / 2 <= retrying.pause_s(attempts) <= most_s
    interrupt, began_s = Interrupt(), time.monotonic()
    interrupt.due = True
    interrupt.pause(30.0)
    assert time.monotonic() - began_s < 5
    interrupt.due = False
    interrupt.pause(0.02)
    assert time.monotonic() - began_s >= 0.02


# -- the way of a record ----------------------------------------------------------------------


def results(
    function: Callable[[Record], Output],
    records: list[Record],
    now_ms: int,
    known: dict[int, Result | None] | None = None,
    retrying: Retrying | None = None,
) -> list[Result | None]:
    retrying = retrying or policy()
    tries = LaterTries(retrying, now_ms=lambda: now_ms)
    preset = tries.before(records) | (known or {})
    called = Transformer(function, 1, retrying).apply_all(Batch(records), Interrupt(), preset)
    return tries.after(records, called, preset)


def step(function: Callable[[Record], Output], record: Record, now_ms: int) -> Result | None:
    return results(function, [record], now_ms)[0]


def written(record: Record, result: Result | None, event_id: bytes = b"1") -> Message:
    (message,) = PLANNER.plan([record], [event_id], [result], {}).messages
    return message


def read_back(message: Message, offset: int = 0) -> Record:
    where, headers = (message.topic, message.partition, offset), tuple(message.headers)
    return Record(*where, message.key, message.value, headers, NOW_MS)


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
    (failure,) = results(asking("1s"), [record], now_ms, retrying=policy(later_attempts=2))
    letter = written(record, failure)
    assert letter.topic == "dead"
    headers = dict(letter.headers)
    assert headers["hapax-error"] == b"RetryLater: busy"
    assert (headers["hapax-attempts"], headers["hapax-source"]) == (b"3", b"in/3/7")
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", b"v", 77)
    assert not [name for name in headers if name.startswith("hapax-retry")]


def test_another_error_on_a_later_try_counts_the_calls_before_it_and_an_abort_counts_none():
    def fail(_record: Record) -> Output:
        raise ValueError("no")

    record = read_back(written(FIRST, step(asking("1s"), FIRST, NOW_MS)))
    kept = Failure("ValueError", "no", 2)
    assert step(fail, record, NOW_MS + 1000) == kept
    again = partial(results, asking("1s"), [record], NOW_MS + 1000)
    assert again({0: kept}) == [kept]
    (failure,) = again({0: condemn(record.coordinates, "MSG_SIZE_TOO_LARGE", None)})
    assert isinstance(failure, Failure)
    assert failure.attempts == 2
    cut = condemn(record.coordinates, "MSG_SIZE_TOO_LARGE", failure)
    assert again({0: cut}) == [cut]


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
    preset: dict[int, Result | None] = {2: None}
    records = [waiting, FIRST, FIRST]
    moved, done, twin = results(lambda record: Output(record.value), records, NOW_MS, preset)
    assert isinstance(moved, Put)
    assert done == (Output(b"v"),)
    assert twin is None
    assert preset == {2: None}


def test_the_time_that_a_record_has_waited_on_purpose_is_no_latency():
    waiting = read_back(written(FIRST, step(asking("1h"), FIRST, NOW_MS)))
    done = (Output(b"v"),)
    for records, times_ms in (([waiting, FIRST], (77, 77)), ([waiting], (0, 0))):
        ids = [b"1"] * len(records)
        batch = Batch(records, {}, {})
        result = BatchResult.of(
            batch,
            PLANNER.plan(records, ids, [done] * len(records), {}),
            batch.facts(ids, len(records)),
            Claimed({}),
            phases_s={},
            attempt=1,
        )
        assert (result.oldest_timestamp_ms, result.newest_timestamp_ms) == times_ms


def test_a_plan_counts_later_tries_and_moves_apart_from_failures():
    asked = step(asking("1h"), FIRST, NOW_MS)
    waiting = read_back(written(FIRST, asked))
    moved = step(asking("1h"), waiting, NOW_MS)
    plan = PLANNER.plan([FIRST, waiting], [b"1", b"1"], [asked, moved], {})
    assert (plan.retried, plan.moved, plan.failures) == (1, 1, {})
    assert plan.messages.counts() == {"app-retry": 2}

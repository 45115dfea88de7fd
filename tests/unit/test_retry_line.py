"""Records that wait in the order of their key, without a broker: reading in, turns, floors."""

from __future__ import annotations

import random
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hapax import Output, Record, RetryLater
from hapax.core.errors import BatchAbortedError
from hapax.core.headers import DONE, Retried
from hapax.core.interrupt import Interrupt
from hapax.core.line_calls import LineCalls, Turns
from hapax.core.line_intake import LineIntake
from hapax.core.plan import Destinations, Planner
from hapax.core.records import Coordinates
from hapax.core.retry_later import Put, Retrying, RetryTopic, Stay
from hapax.core.retry_line import RECORDS_MAX, RetryLine
from hapax.core.transform import Failure, Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hapax.core.records import Progress, TopicPartition
    from hapax.core.transform import Result

TOPIC = RetryTopic("app-retry", frozenset({"in"}), by_key=True)
IN, WAITS = ("in", 0), ("app-retry", 0)
DESTINATIONS = Destinations("app", "out", "dead", TOPIC)


def given(offset: int, key: bytes | None = b"k") -> Record:
    return Record("in", 0, offset, key, b"%d" % offset)


class Pipeline:
    """Input, retry topic and outputs as lists, committed together; a process that may die."""

    def __init__(self, inputs: Sequence[Record], function: Callable[[Record], Output]) -> None:
        self.inputs, self.function = inputs, function
        self.log: list[Record] = []
        self.outputs: list[tuple[bytes | None, int]] = []
        self.dead: list[int] = []
        self.committed: Progress = {IN: 0, WAITS: 0}
        self.now_ms = 1_000_000
        self.start()

    def start(self) -> None:
        """Begin as a new process does, at what is committed."""
        self.line = RetryLine(TOPIC)
        self.read = dict(self.committed)
        self.line.expect(0, len(self.log))
        self.line.reach(0, self.committed[WAITS])

    def take(self, count: int) -> list[Record]:
        for record in self.log[self.read[WAITS] :]:
            self.line.read(record)
        self.read[WAITS] = len(self.log)
        found = [record for record, _why in self.line.take(count, self.now_ms)]
        at = self.read[IN]
        new = list(self.inputs[at : at + count - len(found)]) if self.line.open(0) else []
        self.read[IN] = at + len(new)
        return [*found, *new]

    def run(self, batch: Sequence[Record], *, dies: bool = False) -> Sequence[Result | None]:
        """Take steps 4 to 7 with a batch; ``dies``: before the commit."""
        policy = Retrying(topic=TOPIC, later_attempts=5)
        calls = LineCalls(
            Transformer(self.function, 1, policy), policy, self.line, now_ms=lambda: self.now_ms
        )
        results = calls.apply_all(batch, Interrupt(), {})
        progress = calls.progress({IN: self.read[IN], WAITS: 0}, batch, results)
        plan = Planner(DESTINATIONS).plan(batch, [b""] * len(batch), results, progress)
        if dies:
            self.start()
            return results
        for message in plan.messages:
            if message.topic == "out":
                self.outputs.append((message.key, int(message.value or b"")))
            elif message.topic == "dead":
                self.dead.append(int(message.value or b""))
            else:
                where: TopicPartition = (message.topic, message.partition)
                headers = tuple(message.headers)
                self.log.append(Record(*where, len(self.log), message.key, message.value, headers))
        self.committed |= progress
        calls.settle(batch, results)
        return results

    def turn(self, count: int = 10) -> Sequence[Result | None]:
        return self.run(self.take(count))


def failing(*offsets: int) -> tuple[set[int], Callable[[Record], Output]]:
    """Return a transform that asks for a later try at these offsets while they are in the set."""
    wanted = set(offsets)

    def function(record: Record) -> Output:
        if record.offset in wanted:
            raise RetryLater(after="1s")
        return Output(record.value)

    return wanted, function


def test_a_failure_known_from_a_larger_batch_waits_for_its_turn_in_the_smaller_one():
    pipeline = Pipeline([given(0), given(1), given(2)], failing(0)[1])
    pipeline.run(pipeline.take(2))
    policy = Retrying(topic=TOPIC)
    calls = LineCalls(
        Transformer(pipeline.function, 1, policy),
        policy,
        pipeline.line,
        now_ms=lambda: pipeline.now_ms,
    )
    failed = Failure("ValueError", "boom", 1)
    (result,) = calls.apply_all([given(2)], Interrupt(), {}, {0: failed})
    assert isinstance(result, Put)
    assert calls.apply_all([given(2)], Interrupt(), {0: failed}) == [failed]  # refused: no call
    other = given(2, b"other")
    assert calls.apply_all([other], Interrupt(), {}, {0: failed}) == [failed]


def test_a_record_waits_behind_the_first_of_its_key_without_a_call_and_others_do_not():
    seen: list[int] = []
    _, fails = failing(0)

    def function(record: Record) -> Output:
        seen.append(record.offset)
        return fails(record)

    inputs = [given(0), given(1), given(2, b"other"), given(3, None), given(4)]
    pipeline = Pipeline(inputs, function)
    results = pipeline.turn()
    assert seen == [0, 2, 3]
    assert pipeline.outputs == [(b"other", 2), (None, 3)]
    puts = [one for one in results if isinstance(one, Put)]
    assert [(one.retried.attempt, one.retried.calls, one.called) for one in puts] == [
        (1, 1, True),
        (0, 0, False),
        (0, 0, False),
    ]
    assert pipeline.committed == {IN: 5, WAITS: 0}


def test_the_key_goes_on_in_its_order_when_the_first_has_ended_also_in_one_batch():
    wanted, function = failing(0)
    pipeline = Pipeline([given(0), given(1), given(2)], function)
    pipeline.turn()
    assert pipeline.take(10) == []  # nothing is due
    wanted.clear()
    pipeline.now_ms += 1000
    pipeline.turn()
    assert pipeline.outputs == [(b"k", 0), (b"k", 1), (b"k", 2)]
    ended = [dict(record.headers).get(DONE) for record in pipeline.log[3:]]
    assert ended == [b"in/0/0", b"in/0/1", b"in/0/2"]
    assert pipeline.take(10) == []
    assert pipeline.line.floor(0) == len(pipeline.log)


def test_who_follows_one_that_fails_again_stays_where_it_is():
    _, function = failing(0)
    pipeline = Pipeline([given(0), given(1)], function)
    pipeline.turn()
    pipeline.now_ms += 1000
    first, second = pipeline.turn()
    assert isinstance(first, Put)
    assert (first.retried.attempt, first.retried.move) == (2, 2)
    assert isinstance(second, Stay)
    assert len(pipeline.log) == 3  # nothing was written for the second
    assert pipeline.committed[WAITS] == 1


def test_after_the_last_try_there_is_a_dead_letter_and_the_key_goes_on():
    _, function = failing(0)
    pipeline = Pipeline([given(0), given(1)], function)
    for _ in range(5):
        pipeline.turn()
        pipeline.now_ms += 1000
    failure = pipeline.turn()[0]
    assert isinstance(failure, Failure)
    assert failure.attempts == 6
    assert (pipeline.dead, pipeline.outputs) == ([0], [(b"k", 1)])


def test_an_end_out_of_order_is_not_forgotten_by_who_reads_from_the_committed_offset():
    wanted, function = failing(0, 1)
    pipeline = Pipeline([given(0, b"a"), given(1, b"b")], function)
    pipeline.turn()
    wanted.remove(1)
    pipeline.now_ms += 1000
    pipeline.turn()
    assert pipeline.outputs == [(b"b", 1)]
    pipeline.start()
    wanted.clear()
    pipeline.now_ms += 5000
    pipeline.turn()
    assert pipeline.outputs == [(b"b", 1), (b"a", 0)]


def test_nothing_is_handed_out_before_the_partition_is_read_in():
    line = RetryLine(TOPIC)
    retried = Retried(of="in/0/1", timestamp=1, attempt=1, calls=1, move=1, until=0, due=0)
    line.read(Record(*WAITS, 0, b"k", b"", tuple(retried.encode())))
    assert (line.take(10, 1), line.open(0), line.unasked(0)) == ([], False, True)
    line.expect(0, 2)
    assert (line.take(10, 1), line.open(0), line.unasked(0)) == ([], False, False)
    line.reach(0, 2)  # a marker: no record
    assert line.open(0)
    line.doubt(0)  # an input of this index came: the end is to be asked for again
    assert (line.take(10, 1), line.open(0), line.unasked(0)) == ([], False, True)
    line.expect(0, 2)
    assert len(line.take(10, 1)) == 1


def test_calls_without_what_waits_are_refused():
    policy = Retrying(topic=TOPIC)
    calls = LineCalls(
        Transformer(failing()[1], 1, policy), policy, RetryLine(TOPIC), now_ms=lambda: 0
    )
    with pytest.raises(BatchAbortedError, match="partition 0"):
        calls.apply_all([given(0)], Interrupt(), {})


def test_inputs_are_held_while_too_much_waits_and_until_half_of_it_is_done():
    line = RetryLine(TOPIC)
    line.expect(0, 0)
    line.reach(0, 0)
    for offset in range(RECORDS_MAX):
        assert line.open(0)
        retried = Retried(
            of=f"in/0/{offset}", timestamp=1, attempt=0, calls=0, move=1, until=0, due=0
        )
        line.read(Record(*WAITS, offset, b"k", b"", tuple(retried.encode())))
    assert not line.open(0)
    for offset in range(RECORDS_MAX // 2 + 1):
        assert not line.open(0)
        line.read(Record(*WAITS, RECORDS_MAX + offset, None, None, ((DONE, b"in/0/%d" % offset),)))
    assert line.open(0)


def test_a_record_that_names_no_input_is_poison_and_holds_up_no_other():
    pipeline = Pipeline([given(0)], failing()[1])
    pipeline.log.append(Record(*WAITS, 0, b"k", b"7", (("hapax-retry-of", b"elsewhere/0/0"),)))
    pipeline.start()
    foreign, own = pipeline.turn()
    assert isinstance(foreign, Failure)
    assert own == (Output(b"0"),)
    assert pipeline.line.count == 0


def orders(seed: int) -> tuple[dict[bytes | None, list[int]], dict[bytes | None, list[int]]]:
    """Return offsets by key as put in and as they came out, through deaths and failures."""
    chance = random.Random(seed)
    inputs = [given(offset, b"k%d" % chance.randrange(4)) for offset in range(60)]

    def function(record: Record) -> Output:
        if chance.random() < 0.3:
            raise RetryLater(after=chance.choice((1, 2, 5)))
        return Output(record.value)

    pipeline = Pipeline(inputs, function)
    for _ in range(2000):
        batch = pipeline.take(chance.randint(1, 12))
        if batch:
            pipeline.run(batch, dies=chance.random() < 0.2)
        if chance.random() < 0.2:
            pipeline.start()
        pipeline.now_ms += chance.choice((0, 100, 1500))
        if len(pipeline.outputs) + len(pipeline.dead) == len(inputs) and not pipeline.line.count:
            break
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for key, offset in pipeline.outputs:
        found[key].append(offset)
    expected: dict[bytes | None, list[int]] = defaultdict(list)
    for record in inputs:
        if record.offset not in pipeline.dead:
            expected[record.key].append(record.offset)
    return expected, found


@pytest.mark.parametrize("seed", range(100))
def test_outputs_of_a_key_stand_in_input_order_once_each_whatever_fails_and_dies(seed):
    expected, found = orders(seed)
    assert found == expected


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (Turns, "waits", lambda *_: False),  # a follower overtakes
        (RetryLine, "floor", lambda self, index, _done=(): self._parts[index].position),
        (Planner, "_end_waits", lambda *_: None),  # who ended is called again by the successor
    ],
)
def test_control_each_part_of_the_promise_is_needed(owner, name, wrong, monkeypatch):
    monkeypatch.setattr(owner, name, wrong)
    assert any(found != expected for expected, found in map(orders, range(20)))


def test_what_a_line_holds_is_named_by_where_it_first_came():
    _, function = failing(0)
    pipeline = Pipeline([given(0), given(1)], function)
    pipeline.turn()
    pipeline.take(10)
    (_, line) = pipeline.line.spot(given(0))
    assert list(pipeline.line.waiting(0, line)) == [0, 1]
    assert pipeline.line.spot(pipeline.log[1])[0] == Coordinates("in", 0, 1)


def test_what_waits_beside_a_rewound_input_is_read_in_again_from_where_it_stands():
    dropped: list[int] = []
    line: Any = SimpleNamespace(
        topic=SimpleNamespace(name="retry"), floor={0: 7, 1: None}.get, drop=dropped.append
    )
    intake: Any = SimpleNamespace(_line=line, _told={("retry", 0): 7})
    again = LineIntake.rewound(intake, {("in", 0): 5, ("in", 1): 6})
    assert again == {("in", 0): 5, ("in", 1): 6, ("retry", 0): 7}
    assert (sorted(dropped), intake._told) == ([0, 1], {})
    assert LineIntake.rewound(intake, {("retry", 0): 3}) == {("retry", 0): 3}

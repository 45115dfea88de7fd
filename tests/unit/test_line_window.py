"""The window where records wait in the order of their key: turns, offsets, and what moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest

from hapax.core.begun import Begun
from hapax.core.claiming import Claimed
from hapax.core.errors import BatchAbortedError
from hapax.core.headers import Retried
from hapax.core.identity import Identified
from hapax.core.line_window import LineWindow
from hapax.core.ports import Batch
from hapax.core.records import Output, Record
from hapax.core.retry_later import STAY, Later, Put, RetryTopic
from hapax.core.retry_line import RetryLine
from hapax.engines.window_runner import Windowing, WindowRunner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.calls import Call
    from hapax.core.transform import Result

TOPIC = RetryTopic("app-retry", frozenset({"in"}), by_key=True)
IN, WAITS = ("in", 0), ("app-retry", 0)
ANSWER: Result = (Output(b"x"),)
WISH = Later(1000, "RetryLater", "later", 1)
NOW_MS = 5_000


def given(offset: int, key: bytes | None = b"k") -> Record:
    return Record("in", 0, offset, key, b"%d" % offset)


def waiting(offset: int, of: int, due: int = 0, key: bytes = b"k") -> Record:
    """Return a record of the retry topic that stands for one of the input."""
    retried = Retried(of=f"in/0/{of}", timestamp=1, attempt=1, calls=1, move=1, until=due, due=due)
    return Record("app-retry", 0, offset, key, b"%d" % of, tuple(retried.encode()))


class World:
    """A window, and what waits in its retry topic, read in."""

    def __init__(self, *waits: Record) -> None:
        self.line = RetryLine(TOPIC)
        self.line.expect(0, len(waits))
        self.line.reach(0, 0)
        for record in waits:
            self.line.read(record)
        self.window = LineWindow(self.line, now_ms=lambda: NOW_MS)

    def admit(self, *records: Record, fates: Mapping[int, Any] | None = None) -> list[int]:
        """Return the offsets of the calls that are to be made."""
        first: dict[tuple[str, int], int] = {}
        after: dict[tuple[str, int], int] = {}
        for record in records:
            first.setdefault((record.topic, record.partition), record.offset)
            after[record.topic, record.partition] = record.offset + 1
        found = Identified([b""] * len(records), [], {}, {})
        begun = Begun(found, None, {}, claimed=Claimed({}), fates=dict(fates or {}))
        calls = self.window.admit(Batch(records, first, after), begun)
        return self.begin([*calls, *self.window.turns()])

    def taken(self) -> list[Record]:
        return [record for record, _why in self.line.take(100, NOW_MS)]

    def turns(self) -> list[int]:
        return self.begin(self.window.turns())

    def begin(self, calls: Sequence[Call]) -> list[int]:
        for call in calls:
            call.started = True
        return [call.record.offset for call in calls]

    def end(self, offset: int, result: Result = ANSWER, topic: str = "in") -> None:
        for calls in [self.window._again, *self.window._lines.values()]:
            for call in calls:
                if (call.record.topic, call.record.offset) == (topic, offset):
                    call.result = result

    def commit(self) -> list[tuple[str, int, str]]:
        """Return what leaves: topic, offset, and the kind of its result."""
        ready = self.window.ready(100)
        if ready is None:
            return []
        batch, begun = ready
        assert begun.results is not None
        results = [
            Put(retried(record), 0, called=True) if isinstance(result, Later) else result
            for record, result in zip(batch.records, begun.results, strict=True)
        ]
        self.line.settle(batch.records, results)
        progress = {where: at for where, at in batch.next.items() if where[0] == "in"}
        floor = self.line.floor(0)
        assert floor is not None
        self.window.settle({**progress, WAITS: floor})
        return [
            (record.topic, record.offset, type(result).__name__)
            for record, result in zip(batch.records, results, strict=True)
        ]


def retried(record: Record) -> Retried:
    of = str(TOPIC.original(record))
    return Retried(of=of, timestamp=1, attempt=1, calls=1, move=2, until=9_000, due=9_000)


def test_of_a_key_one_is_called_at_a_time_and_others_beside_it():
    world = World()
    assert world.admit(given(0), given(1), given(2, b"l"), given(3, None), given(4, None)) == [
        *(3, 4),  # those without a key have no order
        *(0, 2),
    ]
    assert world.turns() == []
    world.end(0)
    assert world.turns() == [1]
    assert world.commit() == [("in", 0, "tuple")]
    world.end(1)
    world.end(2)
    assert world.commit() == [("in", 1, "tuple"), ("in", 2, "tuple")]
    assert world.admit(given(5)) == [5]


def test_records_behind_one_that_asks_for_a_later_try_wait_without_a_call():
    world = World()
    assert world.admit(given(0), given(1), given(2, b"l"), given(3)) == [0, 2]
    world.end(0, WISH)
    assert world.turns() == []
    assert world.commit() == [("in", 0, "Put"), ("in", 1, "Put")]
    world.end(2)
    assert world.commit() == [("in", 2, "tuple"), ("in", 3, "Put")]
    assert world.admit(given(4), given(5, b"l")) == [5], "three of its key wait in the topic"
    assert world.commit() == [("in", 4, "Put")]


def test_a_dead_letter_before_it_lets_the_next_one_have_its_turn():
    world = World()
    assert world.admit(given(0), given(1), fates={0: None}) == [1]


def test_what_waits_is_called_one_by_one_and_lets_the_input_go_on_with_its_commit():
    world = World(waiting(0, of=3), waiting(1, of=4))
    assert [record.offset for record in world.taken()] == [0], "the second of a key comes later"
    assert world.admit(waiting(0, of=3)) == [0]
    assert world.admit(given(5)) == []
    assert world.commit() == [("in", 5, "Put")], "one before it is still in the topic"
    world.end(0, topic="app-retry")
    assert world.commit() == [("app-retry", 0, "tuple")]
    (second,) = world.taken()
    assert world.admit(second) == [1]
    world.end(1, topic="app-retry")
    assert world.commit() == [("app-retry", 1, "tuple")]


def test_a_record_behind_the_only_one_that_waits_stays_for_its_end():
    world = World(waiting(0, of=3))
    (first,) = world.taken()
    world.admit(first)
    assert world.admit(given(4)) == []
    world.end(0, topic="app-retry")
    assert world.turns() == [], "its effect is not committed"
    assert world.commit() == [("app-retry", 0, "tuple")]
    assert world.turns() == [4]


def test_a_record_behind_the_only_one_that_waits_waits_when_that_one_asks_again():
    world = World(waiting(0, of=3))
    (first,) = world.taken()
    world.admit(first)
    world.admit(given(4))
    world.end(0, WISH, topic="app-retry")
    assert world.commit() == [("app-retry", 0, "Put")]
    assert world.turns() == []
    assert world.commit() == [("in", 4, "Put")]


def test_the_offset_of_the_retry_topic_stays_at_the_first_that_waits():
    world = World(waiting(0, of=1, key=b"l"), waiting(1, of=2, key=b"m"), waiting(2, of=3))
    world.admit(*world.taken())
    world.end(1, topic="app-retry")
    ready = world.window.ready(100)
    assert ready is not None
    assert [record.offset for record in ready[0].records] == [1]
    assert ready[0].first[WAITS] == 0
    assert world.commit() == [("app-retry", 1, "tuple")]
    assert world.window.loose_ends()[WAITS] == 0
    assert world.window.put_back() == {WAITS: 0}
    assert world.window.records == 0


def test_after_an_abort_what_was_called_is_not_called_again():
    world = World(waiting(0, of=1, key=b"l"))
    (again,) = world.taken()
    assert world.admit(again, given(5), given(6)) == [0, 5]
    world.end(0, topic="app-retry")
    world.end(5, WISH)
    assert world.turns() == []
    assert world.window.put_back() == {WAITS: 0, IN: 5}
    assert world.admit(again, given(5), given(6), fates={0: STAY}) == []
    assert world.commit() == [
        ("app-retry", 0, "tuple"),
        ("in", 5, "Put"),
        ("in", 6, "Put"),
    ]


def test_what_is_to_be_decided_without_knowing_what_waits_is_put_back():
    world = World()
    world.line.doubt(0)
    with pytest.raises(BatchAbortedError, match="partition 0 is not known"):
        world.admit(given(0))


def running(world: World, records_max: int = 100) -> tuple[WindowRunner, MagicMock, MagicMock]:
    """Return the runner of a window, its calls and its source."""
    calls, source, sizing = MagicMock(), MagicMock(), MagicMock()
    sizing.pace.records = 100
    sizing.bounds.limit = lambda records: records
    source.take.return_value = Batch([], {}, {})
    windowing = Windowing(world.window, calls, MagicMock(), records_max, 1 << 20, 8)
    around = cast("Any", {"interrupt": MagicMock(), "watchdog": MagicMock()})
    parts = (MagicMock(), source, MagicMock(), sizing)
    return WindowRunner(*parts, windowing=windowing, **around), calls, source


def test_the_last_place_of_a_window_is_not_for_the_inputs_alone():
    world = World()
    world.admit(given(0), given(1))
    for records_max, asked in ((2, []), (3, [2]), (7, [5])):
        runner, _calls, source = running(world, records_max)
        runner.take(0.0)
        assert [call.args[0] for call in source.take.call_args_list] == asked


def test_a_partition_that_moves_takes_those_of_its_number_along_and_they_are_read_again():
    world = World(waiting(0, of=1, key=b"l"))
    world.admit(*world.taken(), given(5), given(6))
    other = Record("in", 1, 7, b"k", b"7")
    world.line.expect(1, 0)
    world.line.reach(1, 0)
    world.admit(other)
    runner, calls, _source = running(world)
    runner.forget({IN})
    (gone,) = calls.drop.call_args.args
    assert sorted((call.record.topic, call.record.offset) for call in gone) == [
        *(("app-retry", 0), ("in", 5), ("in", 6))
    ]
    with pytest.raises(BatchAbortedError, match="others moved"):
        runner.run({}, 1)
    assert runner.give_up().first == {WAITS: 0, ("in", 1): 7}
    assert not runner.busy

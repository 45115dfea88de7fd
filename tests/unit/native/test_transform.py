"""Steps 4 to 6: business code, plans and messages, through the native path and its reference."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hapax.core.errors import Poison
from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch, Plan
from hapax.core.records import Message, Output, Record
from hapax.core.results import Failure, Result
from hapax.kafka.native import UNCHANGED, NativeBatch, Prepared, by_reference
from hapax.processing.identity import Identity
from hapax.processing.plan import Destinations, Planner
from hapax.processing.transform import Transformer, identity
from tests.kit.native import Raw, few, plain, planned


class WillStopError(BaseException):
    """What no transform may swallow."""


class Odd:
    """An answer whose every use fails."""

    def __iter__(self) -> Iterator[Output]:
        raise ValueError("odd")


class Unspeakable(Exception):  # noqa: N818 - its name is the reason of a dead letter
    def __str__(self) -> str:
        raise ValueError("no text")


class Derived(bytes):
    """Bytes of another type."""


def _raising(error: BaseException) -> Callable[[Record], object]:
    def raising(_record: Record) -> object:
        raise error

    return raising


def _yielding(*outputs: object, error: Exception | None = None) -> Callable[[Record], object]:
    def yielding(_record: Record) -> Iterator[object]:
        yield from outputs
        if error is not None:
            raise error

    return yielding


def _giving(answer: object) -> Callable[[Record], object]:
    return lambda _record: answer


def _output(**fields: Any) -> Callable[[Record], object]:
    return lambda record: Output(record.value, **fields)


PLAIN: dict[str, Callable[[Record], object]] = {
    "same": lambda record: Output(record.value),
    "other": _giving(Output(b"other")),
    "null": _giving(Output(None)),
    "empty": _giving(Output(b"")),
    "filtered": _giving(None),
    "no outputs": _giving([]),
    "key": _output(key=b"new"),
    "no key": _output(key=None),
    "timestamp": _output(timestamp_ms=77),
    "timestamp 0": _output(timestamp_ms=0),
    "last timestamp": _output(timestamp_ms=2**63 - 1),
    "partition": _output(partition=2),
    "partition 0": _output(partition=0),
    "one in a list": lambda record: [Output(record.value)],
    "one of a generator": _yielding(Output(b"g")),
}
ODD: dict[str, Callable[[Record], object]] = {
    **PLAIN,
    "topic": _output(topic="elsewhere"),
    "no topic": _output(topic=""),
    "headers": _output(headers=(("h", b"1"), ("hapax-x", b"2"), ("n", None))),
    "no headers in a list": _output(headers=[]),
    "headers in a list": _output(headers=[("h", b"1")]),
    "two": lambda record: [Output(record.value), Output(None, key=b"2")],
    "generator": _yielding(Output(b"1"), Output(b"2")),
    "generator that fails": _yielding(Output(b"1"), error=ValueError("late")),
    "generator that stops": _yielding(Output(b"1"), error=Poison("late poison")),
    "text": _giving("text"),
    "bytes": _giving(b"bytes"),
    "number": _giving(7),
    "false": _giving(False),  # noqa: FBT003 - a wrong answer
    "odd": _giving(Odd()),
    "type": _giving(Output),
    "list of texts": _giving(["text"]),
    "value of text": _giving(Output("text")),
    "value of derived bytes": _giving(Output(Derived(b"x"))),
    "value of a bytearray": _giving(Output(bytearray(b"x"))),
    "key of text": _output(key="text"),
    "key of derived bytes": _output(key=Derived(b"x")),
    "timestamp -1": _output(timestamp_ms=-1),
    "timestamp 2^63": _output(timestamp_ms=2**63),
    "timestamp of a fraction": _output(timestamp_ms=1.5),
    "timestamp 0.0": _output(timestamp_ms=0.0),
    "timestamp false": _output(timestamp_ms=False),
    "timestamp of text": _output(timestamp_ms=""),
    "partition -1": _output(partition=-1),
    "partition 2^31": _output(partition=2**31),
    "partition true": _output(partition=True),
    "partition 0.0": _output(partition=0.0),
    "topic with a space": _output(topic="a b"),
    "header with a surrogate": _output(headers=(("\ud800", b"1"),)),
    "error": _raising(ValueError("wrong")),
    "error without text": _raising(Unspeakable()),
    "poison": _raising(Poison("poison")),
    "stop iteration": _raising(StopIteration()),
    "lone surrogate": _raising(ValueError("\ud800")),
}
LAST: dict[str, Callable[[Record], object]] = {
    "dictionary": _giving({}),
    "interrupt": _raising(KeyboardInterrupt()),
    "exit": _raising(SystemExit(3)),
    "stop": _raising(WillStopError()),
    "generator with an interrupt": _yielding(Output(b"1"), error=KeyboardInterrupt()),  # type: ignore[arg-type]
}


class Business:
    """Business code that answers by a script: one answer for a record, another when asked again.

    due_after  after so many calls the interrupt is due
    """

    def __init__(
        self, script: Sequence[tuple[str, str]], first: Record, due_after: int, interrupt: Interrupt
    ) -> None:
        self._script = script
        self._due_after = due_after
        self._interrupt = interrupt
        self.calls: list[Record] = []

    def __call__(self, record: Record) -> Any:
        again = record in self.calls
        assert self._interrupt.record == record
        self.calls.append(record)
        self._interrupt.due = len(self.calls) >= self._due_after
        return {**ODD, **LAST}[self._script[record.offset % len(self._script)][again]](record)


def played(
    batch: Batch,
    script: Sequence[tuple[str, str]],
    due_after: int,
    preset: dict[int, Result | None],
    bytes_max: int = 1 << 62,
) -> tuple[Any, list[Record], object, int]:
    """Return results or the error that ended them, the calls, and what the interrupt has."""
    interrupt = Interrupt()
    interrupt.bytes_max = bytes_max
    business = Business(script, batch.records[0], due_after, interrupt)
    transformer = Transformer(business, attempts_max=2)
    result: Any
    try:
        result = transformer.apply_all(batch, interrupt, preset)
    except BaseException as error:  # noqa: BLE001 - both paths must end with the same
        result = (type(error), str(error))
    return result, business.calls, interrupt.record, interrupt.bytes


def scripts(*tables: dict[str, Any]) -> st.SearchStrategy[list[tuple[str, str]]]:
    names = st.sampled_from([name for table in tables for name in table])
    return st.lists(st.tuples(names, names), min_size=1, max_size=7)


fated = st.dictionaries(
    st.integers(0, 8), st.none() | st.just(Failure("Poison", "known", 1)), max_size=4
)


@given(
    records=plain,
    script=scripts(PLAIN) | scripts(ODD) | scripts(ODD, LAST),
    due_after=st.integers(1, 12),
    preset=fated,
    bytes_max=st.sampled_from([1, 10, 1000, 1 << 62]),
)
@settings(max_examples=few(300), deadline=None)
def test_business_code_meets_the_same_records_and_its_answers_mean_the_same(
    stage, records, script, due_after, preset, bytes_max
):
    for native, batch in stage.play(records, []):
        mine = played(NativeBatch(native), script, due_after, preset, bytes_max)
        theirs = played(batch, script, due_after, preset, bytes_max)
        if isinstance(mine[0], list):
            assert by_reference(mine[0], native) == theirs[0]
            assert mine[1:] == theirs[1:]
        else:
            assert mine[:3] == theirs[:3]


PLANNER = Planner(Destinations("app", "out", "dead"))


def plans(native: Any, batch: Any, chain: list[str], results: list[Any]) -> tuple[Plan, Plan]:
    expected = by_reference(results, native)
    ids = Identity(chain).identify(batch.records).ids
    theirs = PLANNER.plan(list(batch.records), ids, expected, batch.next)
    return planned(native, results, to=batch.next), theirs


def previews(prepared: Prepared, preview: Any) -> list[Message]:
    indices = range(len(prepared.results))
    found = [preview(prepared.records, prepared.results, index) for index in indices]
    return [Message(prepared.topic, *fields) for fields in filter(None, found)]


@given(
    records=plain,
    script=scripts(PLAIN) | scripts(ODD),
    chain=st.sampled_from([["header:id", "key"], ["cloudevents"], []]),
    preset=fated,
)
@settings(max_examples=few(300), deadline=None)
def test_plans_and_messages_are_those_of_the_reference(stage, records, script, chain, preset):
    for native, batch in stage.play(records, chain):
        if not native.regular:
            continue
        results, *_ = played(NativeBatch(native), script, 99, preset)
        mine, theirs = plans(native, batch, chain, results)
        if isinstance(mine.messages, Prepared):
            made = list(theirs.messages)
            assert previews(mine.messages, stage.path.module.preview) == made
            assert list(mine.messages) == made
            assert len(mine.messages) == len(made)
        else:
            assert list(mine.messages) == list(theirs.messages)
            assert list(mine.sources) == list(theirs.sources)
        assert (mine.filtered, mine.duplicates) == (theirs.filtered, theirs.duplicates)
        assert (mine.failures, mine.progress) == (theirs.failures, theirs.progress)
        assert mine.messages.counts() == theirs.messages.counts()


@given(records=plain, preset=fated)
@settings(max_examples=few(60), deadline=None)
def test_the_default_transform_passes_records_on_as_the_reference_does(stage, records, preset):
    twins = dict.fromkeys(preset)
    transformer = Transformer(identity, 1)
    for native, batch in stage.play(records, ["key"]):
        results = transformer.apply_all(NativeBatch(native), Interrupt(), twins)
        expected = transformer.apply_all(batch, Interrupt(), twins)
        assert by_reference(results, native) == expected
        mine, theirs = plans(native, batch, ["key"], results)
        assert isinstance(mine.messages, Prepared) == native.regular or mine.messages
        assert previews(mine.messages, stage.path.module.preview) == [*theirs.messages]  # type: ignore[arg-type]


def test_a_plan_that_is_not_the_rule_is_made_by_the_reference(stage):
    """Otherwise these comparisons would compare the reference with itself."""
    ((native, _batch),) = stage.play([Raw(b"k", b"v")], [])
    rule = planned(native, [(Output(b"x", key=None),)], to={})
    assert isinstance(rule.messages, Prepared)
    for result in (
        (Output(b"1"), Output(b"2")),
        (Output(b"x", topic="t"),),
        (Output(b"x", timestamp_ms=0.0),),  # type: ignore[arg-type]
        (Output(b"x", partition=False),),
        Failure("E", "e", 1),
    ):
        assert not isinstance(planned(native, [result], to={}).messages, Prepared)


def test_business_code_that_ends_its_own_batch_is_told(stage):
    for native, _batch in stage.play([Raw(b"k", b"1"), Raw(b"k", b"2")], []):

        def close(_record: Record, native: Any = native) -> Output:
            native.close()
            return Output(b"x")

        closing = Transformer(close, 1)
        if len(native) > 1:
            with pytest.raises(RuntimeError, match="given back"):
                closing.apply_all(NativeBatch(native), Interrupt(), {})


def test_references_to_what_all_batches_share_do_not_grow(stage):
    """Neither do those to names of headers, which are kept between batches."""
    shared = (UNCHANGED, Output, Record, None, (), stage.client)
    raws = [Raw(b"k", b"v", ((b"id", b"1"), (b"trace", None))) for _ in range(50)]

    def round_trip() -> None:
        for native, _batch in stage.play(raws, ["header:id"]):
            list(native)
            list(native.claims)
            for function in (identity, lambda record: Output(record.value), lambda _record: None):
                taken = NativeBatch(native)
                results = Transformer(function, 1).apply_all(taken, Interrupt(), {0: None})
                planned(native, results, to={})
                [stage.path.module.preview(native, results, index) for index in range(len(results))]

    def grown() -> list[int]:
        before = [sys.getrefcount(each) for each in shared]
        for _ in range(20):
            round_trip()
        return [sys.getrefcount(each) - count for each, count in zip(shared, before, strict=True)]

    round_trip()
    # Other threads of this process take references to None as well: a leak grows each time.
    times = [grown() for _ in range(3)]
    assert max(map(min, zip(*times, strict=True))) < 40, times

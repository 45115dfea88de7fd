"""Keyed state without a broker: what a call sees, and what becomes of what it has changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hapax import Record, State
from hapax.core.errors import ConfigurationError, StateUnreadError
from hapax.core.record_path import Batch, Outputs, Plan
from hapax.core.records import Output
from hapax.engines.overlapping_calls import load_calls
from hapax.processing.keyed_state import KeyedState, MemoryState
from hapax.processing.state import EXPIRES, changelog_key, entry_of, prefix_of
from hapax.processing.transform import Transformer, form_of
from hapax.settings import load_settings
from hapax.testing import Pipeline
from tests.kit import keeping
from tests.kit.keeping import count, gaps
from tests.kit.managed_process import required

WHERE = ("input", 0)


def run(pipeline: Pipeline, *records: tuple[bytes | None, bytes]) -> list[bytes | None]:
    for key, value in records:
        pipeline.send(value, key=key)
    return pipeline.run().values("output")


def refusal(transform: Callable[..., Any], timestamp_ms: int = 0) -> str:
    """Return what the dead letter of one record says."""
    pipeline = Pipeline(transform)
    pipeline.send(b"x", key=b"a", timestamp_ms=timestamp_ms)
    (letter,) = pipeline.run().dead_letters
    return letter.error


def test_calls_of_a_key_see_what_those_before_them_have_kept_within_a_batch_and_after_it():
    pipeline = Pipeline(count)
    assert run(pipeline, (b"a", b"x"), (b"b", b"x"), (b"a", b"x")) == [b"1", b"1", b"2"]
    assert run(pipeline, (b"a", b"x"), (b"b", b"x")) == [b"3", b"2"]
    assert pipeline.state(b"a") == {"count": 3}


def test_a_call_that_fails_leaves_nothing_of_what_it_has_changed():
    pipeline = Pipeline(count)
    assert run(pipeline, (b"a", b"x"), (b"a", b"fail"), (b"a", b"x")) == [b"1", b"2"]
    assert pipeline.state(b"a") == {"count": 2}


def test_after_an_abort_records_are_called_again_and_find_the_state_of_before():
    pipeline = Pipeline(count)
    run(pipeline, (b"a", b"x"))
    pipeline.abort_next(times=2)
    assert run(pipeline, (b"a", b"x"), (b"a", b"x")) == [b"2", b"3"]
    assert pipeline.state(b"a") == {"count": 3}


def test_a_duplicate_is_not_called_and_changes_nothing():
    pipeline = Pipeline(count, {"HAPAX_DEDUP__ID": "header:message-id"})
    for _ in range(2):
        pipeline.send(b"x", key=b"a", headers=[("message-id", b"1")])
    assert len(pipeline.run().duplicates) == 1
    assert pipeline.state(b"a") == {"count": 1}


def test_what_is_deleted_is_gone_for_the_next_call_and_in_the_changelog():
    pipeline = Pipeline(count)
    assert run(pipeline, (b"a", b"x"), (b"a", b"forget"), (b"a", b"x")) == [b"1", b"2", b"1"]
    assert run(pipeline, (b"a", b"forget")) == [b"2"]
    assert pipeline.state(b"a") == {}


def test_a_record_without_a_key_is_a_dead_letter():
    pipeline = Pipeline(count)
    pipeline.send(b"x")
    (letter,) = pipeline.run().dead_letters
    assert letter.reason == "Poison"
    assert "no key" in letter.error


def test_what_a_generator_changes_on_its_way_is_kept():
    def steps(record: Record, state: State[int]):
        for _ in range(3):
            state.set("n", state.get("n", 0) + 1)
            yield b"%d" % state.get("n", 0)

    assert run(Pipeline(steps), (b"a", b"x"), (b"a", b"x")) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_value_is_kept_as_it_was_when_it_was_set():
    def appended(record: Record, state: State):
        items: list[str] = state.get("items", [])
        items.append("kept")
        state.set("items", items)
        items.append("not kept")
        return b"%d" % len(state.get("items", []))

    assert run(Pipeline(appended), (b"a", b"x"), (b"a", b"x")) == [b"1", b"2"]


def test_values_are_of_the_type_that_the_annotation_names():
    pipeline = Pipeline(keeping.fill)
    assert run(pipeline, (b"a", b"x"), (b"a", b"x")) == [b"1", b"2"]
    assert pipeline.state(b"a") == {"count": {"items": ["one", "one"]}}


@pytest.mark.parametrize("value", [b"\x07", EXPIRES, EXPIRES + bytes(7)])
def test_a_value_of_another_type_stops_the_process_and_loses_nothing(value):
    pipeline = Pipeline(keeping.fill)
    pipeline._store.values[prefix_of(0, b"a") + b"count"] = value
    with pytest.raises(ConfigurationError, match="not what the transform expects"):
        run(pipeline, (b"a", b"x"))
    assert pipeline._store.values[prefix_of(0, b"a") + b"count"] == value


@pytest.mark.parametrize("name", ["", "n" * 129, "a\0b"])
def test_a_name_that_cannot_be_one_makes_a_dead_letter(name):
    def named(record: Record, state: State[int]) -> Output:
        state.set(name, 1)
        return Output(b"x")

    assert "is no name of a state" in refusal(named)


def test_what_cannot_be_written_or_read_again_makes_a_dead_letter():
    def odd(record: Record, state: State) -> Output:
        state.set("n", object())
        return Output(b"x")

    def other(record: Record, state: State[int]) -> Output:
        state.set("n", 1.5)  # type: ignore[arg-type]
        return Output(b"x")

    assert "cannot be kept" in refusal(odd)
    assert "Expected `int`, got `float`" in refusal(other)


def test_a_state_that_outlives_its_call_changes_nothing():
    kept: list[State[Any]] = []

    def keep(record: Record, state: State) -> Output:
        kept.append(state)
        kept[0].set("n", record.key)
        return Output(b"x")

    pipeline = Pipeline(keep)
    assert run(pipeline, (b"a", b"x"), (b"b", b"x")) == [b"x"]
    assert (pipeline.state(b"a"), pipeline.state(b"b")) == ({"n": b"a"}, {})
    with pytest.raises(RuntimeError, match="the call that was given this one has ended"):
        kept[0].get("n")


def test_each_input_is_named_although_another_changes_the_same_after_it():
    store, places = MemoryState(), [("input", 0), ("other", 0)]
    state = KeyedState(store, "app-state", inputs=["input", "other"])
    records = [Record(*where, 4, b"a", b"x") for where in places]
    ends = dict.fromkeys(places, 5)
    both = Batch(records, dict.fromkeys(places, 4), ends)
    store.progress |= dict.fromkeys(places, 4)
    state.unread(dict.fromkeys(places, 4))
    state.begin(both, dict)
    calls = Transformer(state.bound(form_of(count), lambda form: form).function, 1)
    results = [calls.apply(record) for record in records]
    state.plan(plan := Plan(Outputs(), ends, []), both, results)
    state.settle(ends)
    assert store.newest == dict.fromkeys(places, 4)
    named = [value for name, value in plan.messages[-1].headers if name == "hapax-source"]
    assert named == [b"input/0/4", b"other/0/4"]


def test_only_a_second_parameter_of_this_name_is_the_state():
    assert form_of(count).stateful
    assert form_of(count).state_type is int
    assert form_of(partial(count)).state_type is int
    assert not form_of(lambda _record: None).stateful
    assert form_of(keeping.listed).state_type is int
    with pytest.raises(ValueError, match=r"\(record, state\)"):
        form_of(lambda _record, _other: None)
    with pytest.raises(ValueError, match="without a default"):
        form_of(lambda record, state=None: None)  # noqa: ARG005 - the parameter is what counts


def unresolved(record: "Unknown", state: "State[int]") -> "Unknown":  # type: ignore[name-defined]  # noqa: F821
    return record


def unknown(record: Record, state: "State[Unknown]") -> bytes:  # type: ignore[name-defined]  # noqa: F821
    return b""


def test_the_type_of_a_state_is_found_whatever_else_cannot_be_or_it_is_refused():
    assert form_of(unresolved).state_type is int
    with pytest.raises(ValueError, match="cannot be looked up"):
        form_of(unknown)


def test_an_entry_that_its_topic_does_not_take_makes_a_dead_letter_of_its_own_record_alone():
    def grown(record: Record, state: State[bytes]) -> bytes:
        state.set("n", bytes(2 << 20) if record.value == b"large" else b"small")
        return b"done"

    pipeline = Pipeline(grown)
    for value in (b"x", b"large", b"x"):
        pipeline.send(value, key=b"a")
    found = pipeline.run()
    assert found.values("output") == [b"done"] * 2
    assert "max.message.bytes" in found.dead_letters[0].error


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("CALL__ORDER=none", "lets calls of one key overlap"),
        ("GUARANTEE=at_least_once", "choose exactly_once"),
        ("RETRY__LATER=TimeoutError", "remove HAPAX_RETRY__LATER"),
        ("INPUT__TOPICS=one,two", "HAPAX_GROUP__PROTOCOL=consumer"),
        ("STATE__TOPIC=in", "rename it"),
    ],
)
def test_what_does_not_go_with_state_is_refused_in_tests_as_well(words, sentence):
    name, _, value = words.partition("=")
    given = required(TRANSFORM="tests.kit.keeping:count") | {f"HAPAX_{name}": value}
    for begin in (lambda: load_calls(load_settings(given)), lambda: Pipeline(count, given)):
        with pytest.raises(ConfigurationError, match=sentence):
            begin()


# -- expiry -------------------------------------------------------------------------------

HOUR_MS = 3_600_000


def seen(record: Record, state: State[int]) -> bytes:
    """Count the records of a key within an hour of each other."""
    number = state.get("n", 0) + 1
    state.set("n", number, ttl="1h")
    return b"%d" % number


def test_what_expires_is_not_found_by_records_of_that_time_or_later():
    pipeline = Pipeline(seen)
    for at_ms in (1, HOUR_MS, 2 * HOUR_MS, 2 * HOUR_MS + 1, 3 * HOUR_MS + 1):
        pipeline.send(b"x", key=b"a", timestamp_ms=at_ms)
    assert pipeline.run().values("output") == [b"1", b"2", b"1", b"2", b"1"]


def test_what_has_expired_is_deleted_with_a_later_batch_and_never_what_was_set_again():
    pipeline = Pipeline(seen)
    for key in (b"old", b"set again"):
        pipeline.send(b"x", key=key, timestamp_ms=1)
    pipeline.run()
    pipeline.send(b"x", key=b"other", timestamp_ms=2 * HOUR_MS)
    pipeline.send(b"x", key=b"set again", timestamp_ms=2 * HOUR_MS)
    pipeline.run()
    kept = {key: pipeline.state(key) for key in (b"old", b"other", b"set again")}
    assert kept == {b"old": {}, b"other": {"n": 1}, b"set again": {"n": 1}}


def test_a_record_from_the_future_deletes_nothing_before_its_time_by_the_clock():
    store, due = MemoryState(), EXPIRES + (2 * HOUR_MS).to_bytes(8, "big") + b"\x01"
    entry = prefix_of(0, b"b") + b"n"
    store.apply({entry: due}, {WHERE: 0}, {})
    for now_ms, deleted in ((HOUR_MS, False), (2 * HOUR_MS, True)):
        state = KeyedState(store, "app-state", now_ms=partial(int, now_ms))
        record = Record("input", 0, 0, b"a", b"x", timestamp_ms=9 * HOUR_MS)
        plan = Plan(messages=Outputs(), progress={WHERE: 1}, sources=[])
        called = state.take(record, (), {})
        state.plan(plan, Batch([record], {WHERE: 0}, {WHERE: 1}), [called])
        assert (len(plan.messages) == 1) == deleted


@pytest.mark.parametrize(
    ("ttl", "timestamp_ms", "why"),
    [("1h", 0, "no timestamp"), (0, 1, "longer than nothing"), ("1", 1, "unit"), ([], 1, "ttl=")],
)
def test_a_time_to_live_that_is_none_makes_a_dead_letter(ttl, timestamp_ms, why):
    def odd(record: Record, state: State[int]) -> bytes:
        state.set("n", 1, ttl=ttl)
        return b"x"

    assert why in refusal(odd, timestamp_ms)


# -- entries ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [b"", b"\0", b"a\0b", b"k" * 1000])
def test_entries_and_keys_of_the_changelog_stand_for_each_other(key):
    entry = prefix_of(3, key) + b"count"
    assert entry_of(3, changelog_key(entry)) == entry


def test_no_key_has_entries_that_begin_like_those_of_another():
    assert not prefix_of(0, b"key2").startswith(prefix_of(0, b"key"))
    assert not (prefix_of(0, b"key") + b"2n").startswith(prefix_of(0, b"key2"))


# -- the store is never ahead, and never taken for what it is not ---------------------------


def batch(first: int, *keys: bytes) -> Batch:
    records = [Record("input", 0, first + at, key, b"x") for at, key in enumerate(keys)]
    return Batch(records, {WHERE: first}, {WHERE: first + len(keys)})


def test_a_batch_is_not_begun_while_the_store_is_not_where_the_group_is():
    store = MemoryState()
    state = KeyedState(store, "app-state")
    with pytest.raises(StateUnreadError) as error:
        state.begin(batch(5, b"a"), lambda: {WHERE: 5})
    assert error.value.places == {WHERE: 5}
    store.progress[WHERE] = 5
    state.begin(batch(5, b"a"), lambda: {WHERE: 5})


def test_between_what_is_committed_and_the_first_record_the_store_may_be_anywhere():
    store = MemoryState()
    state = KeyedState(store, "app-state")
    for at, unread in ((4, True), (5, False), (7, False), (8, False), (9, True)):
        state.forget([WHERE])
        store.progress[WHERE] = at
        if not unread:
            state.begin(batch(8, b"a"), lambda: {WHERE: 5})
            continue
        with pytest.raises(StateUnreadError):
            state.begin(batch(8, b"a"), lambda: {WHERE: 5})


def test_progress_alone_moves_the_store_only_where_it_is_sure():
    store = MemoryState()
    state = KeyedState(store, "app-state")
    store.progress[WHERE] = 5
    state.move({WHERE: 9})
    assert store.position(WHERE) == 5
    state.begin(batch(5, b"a"), lambda: {WHERE: 5})
    state.move({WHERE: 9})
    assert store.position(WHERE) == 9
    state.forget([WHERE])
    state.move({WHERE: 12})
    assert store.position(WHERE) == 9


@pytest.mark.parametrize("form", keeping.FORMS)
def test_counts_of_many_keys_through_aborts_have_no_gap_in_any_form(form):
    settings = {f"HAPAX_{name}": value for name, value in keeping.FORMS[form].items()}
    with Pipeline(None, settings) as pipeline:
        for number in range(200):
            pipeline.send(b"fail" if number % 7 == 0 else b"x", key=b"%d" % (number % 5))
        pipeline.send(b"x")
        pipeline.abort_next(times=3)
        found = pipeline.run()
        assert gaps(record for record in found.outputs if record.topic == "output") == []
        assert {pipeline.state(b"%d" % key)["count"] for key in range(5)} == {34, 35}
    assert [letter.reason for letter in found.dead_letters] == ["ValueError"] * 29 + ["Poison"]


def test_a_list_of_another_length_changes_nothing():
    def short(records: list[Record], states: list[State[int]]) -> list[bytes]:
        states[0].set("n", 1)
        return []

    pipeline = Pipeline(short)
    pipeline.send(b"x", key=b"a")
    (letter,) = pipeline.run().dead_letters
    assert "as many answers" in letter.error
    assert pipeline.state(b"a") == {}

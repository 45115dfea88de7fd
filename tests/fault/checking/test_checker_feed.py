"""What is fed, what the feeder writes down, and what is read: the ends of the checker's chain."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fault import rules
from tests.fault.checking import reading_columns as columns
from tests.fault.checking import reading_texts as texts
from tests.fault.checking.judge import joined
from tests.fault.checking.reading import Errand, Read
from tests.fault.feeding.feed_events import Book, Events, Task
from tests.fault.feeding.ledger import COPIES, Fate, Ledger
from tests.fault.watching.live import MOMENT, SEEN, LiveHistory

TASK = Task("", "in", "", "r-1", partitions=4, seed=3, size=100, poison=True)


def _fed(task: Task, chunks: int = 40) -> tuple[list[Any], list[Any], Book]:
    """Return the events of a writer with transactions, of one without, and the book of both."""
    book = Book()
    writers = [Events(task, book, bound=bound) for bound in (True, False)]
    bound, plain = ([chunk for _ in range(chunks) for chunk in one.take(50)] for one in writers)
    return bound, plain, book


def test_numbers_are_dense_and_each_key_has_one_partition_one_writer_and_no_gaps():
    bound, plain, book = _fed(TASK)
    places, writers, kseqs = defaultdict(set), defaultdict(set), defaultdict(list)
    numbers = Counter[int]()
    for is_bound, one in chain(((True, one) for one in bound), ((False, one) for one in plain)):
        content = rules.decode(one.value)
        assert content is not None
        assert len(one.value) == TASK.size
        assert dict(one.headers)["message-id"] == b"r-1-%d" % content.number
        assert one.at == content.number * COPIES + int(dict(one.headers)["dup"])
        numbers[content.number] += 1
        writers[content.key].add(is_bound)
        if one.at % COPIES == 0:
            places[content.key].add(one.partition)
            kseqs[content.key].append(content.kseq)
    assert sorted(numbers) == list(range(len(book.fates) // COPIES))
    assert {len(found) for found in (*places.values(), *writers.values())} == {1}
    assert all(found == list(range(len(found))) for found in kseqs.values())
    twins = sum(count > 1 for count in numbers.values())
    assert 0.01 < twins / len(numbers) < 0.06


def test_copies_are_the_same_event_and_half_of_them_go_elsewhere():
    _bound, plain, _book = _fed(TASK, chunks=200)
    first = {one.at: one for one in plain if one.at % COPIES == 0}
    copies = [one for one in plain if one.at % COPIES]
    assert all(one.value == first[one.at - 1].value for one in copies)
    elsewhere = sum(one.partition != first[one.at - 1].partition for one in copies)
    assert 0.2 < elsewhere / len(copies) < 0.6


@pytest.mark.parametrize("poison", [True, False])
def test_poison_is_fed_only_to_those_who_have_dead_letters(poison: bool) -> None:  # noqa: FBT001 - what varies
    bound, plain, _book = _fed(replace(TASK, poison=poison))
    numbers = [content.number for one in bound + plain if (content := rules.decode(one.value))]
    assert any(map(rules.is_poison, numbers)) is poison


def test_events_to_abort_have_negative_numbers_and_no_place_in_the_book():
    made = Events(TASK, Book(), bound=True).aborted(20)
    numbers = [content.number for one in made if (content := rules.decode(one.value))]
    assert sorted(numbers) == list(range(-20, 0))
    assert {one.at for one in made} == {-1}


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    fates = np.array([[fate, Fate.NEVER] for fate in Fate], np.uint8)
    Ledger("r-1", fates, 7).save(tmp_path / "ledger.npz")
    ledger = Ledger.load(tmp_path / "ledger.npz")
    assert (ledger.run, ledger.hidden) == ("r-1", 7)
    assert np.flatnonzero(ledger.acked[:, 0]).tolist() == [Fate.OK, Fate.COMMITTED]
    assert np.flatnonzero(ledger.refused[:, 0]).tolist() == [Fate.ABORTED]


def test_an_output_counts_for_recovery_when_its_input_was_written_after_the_moment():
    moments = np.array([(100, 90, 0), (200, 150, 0), (300, 290, 0), (400, 390, 1)], MOMENT)
    nothing = np.zeros(0, SEEN)
    history = LiveHistory([], nothing, moments, complete=True, partitions=3)
    assert history.first_seen_s(90) == [0.1, 0.4, None]
    assert history.first_seen_s(151) == [0.3, 0.4, None]


# -- texts to numbers ---------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9**9), st.integers(0, 10**12)), min_size=1, max_size=20))
def test_numbers_are_read_as_they_were_written(rows):
    found = texts.numbers([b"%d/%d" % row for row in rows], b"/", 2)
    assert found is not None
    assert found.tolist() == [list(row) for row in rows]


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=5), st.integers(0, 5))
@settings(max_examples=300)
def test_what_cannot_be_read_among_others_is_odd_and_the_others_are_read(strange, at):
    good = [b"in/1/%d" % number for number in range(5)]
    mixed = [*good[:at], *strange, *good[at:]]
    places, offsets = texts.sources(mixed, "in")
    keep = [*range(at), *range(at + len(strange), len(mixed))]
    assert offsets[keep].tolist() == list(range(5))
    assert set(places[keep].tolist()) == {1}


@given(st.integers(0, 2**32 - 1))
def test_a_check_is_read_as_it_was_written(check):
    assert texts.checks([b"%08x" % check, b"?"]).tolist() == [check, 0]


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=6))
@settings(max_examples=200)
def test_any_values_and_headers_at_all_become_rows(values):
    messages = [
        Message("out", 0, at, value=value, key=value, headers=[("hapax-part", value), ("x", None)])
        for at, value in enumerate(values)
    ]
    names = columns.Names("in", "r-1", {})
    for parse in (columns.outputs, columns.dead_letters):
        assert len(parse(messages, names)) == len(values)
    assert len(columns.inputs(messages)) == len(values)
    assert len(columns.effect_times(messages, "in")[0]) == len(values)


def test_rows_of_several_files_become_one_table_with_one_list_of_names():
    def read(topic: str, lanes: list[int], whos: list[str]) -> tuple[Errand, Read]:
        rows = np.zeros(len(lanes), columns.EFFECT)
        rows["lane"] = lanes
        rows["at"] = range(len(lanes))
        rows["who"] = [lane % len(whos) for lane in lanes]
        partitions = tuple(sorted(set(lanes)))
        return Errand("", topic, partitions, "output", "in", "r", ""), Read(rows, whos)

    places = {("a", 0): 0, ("a", 1): 1, ("a", 2): 2, ("b", 0): 3}
    reads = [read("b", [0], ["w-2"]), read("a", [1, 1], ["w-1", "w-2"]), read("a", [0, 2], ["w-3"])]
    table, whos = joined(reads, places)
    assert table["lane"].tolist() == [0, 1, 1, 2, 3]
    assert [whos[who] for who in table["who"]] == ["w-3", "w-2", "w-2", "w-3", "w-2"]

"""The checker on histories that are made up: right ones pass, one anomaly is found by its name."""

import os
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from hypothesis import given, settings, strategies as st

from tests.fault import rules
from tests.fault.checking import (
    checker,
    checker_anomalies as anomalies,
    reading,
    reading_columns as columns,
    reading_texts as texts,
)
from tests.fault.checking.checker import check
from tests.fault.checking.checker_anomalies import PLANTS, Plant
from tests.fault.checking.checker_findings import Findings
from tests.fault.checking.checker_histories import right
from tests.fault.checking.checker_tables import history
from tests.fault.checking.judge import Topics, joined, judge, open_transactions, read_back
from tests.fault.checking.reading import Errand, Read
from tests.fault.feeding.feed import Feeder
from tests.fault.feeding.feed_events import Book, Events, Task
from tests.fault.feeding.ledger import COPIES, Fate, Ledger
from tests.fault.results import VIOLATIONS
from tests.fault.watching.live import MOMENT, SEEN, LiveHistory, LiveReader
from tests.kit.managed_process import WorkerProcess
from tests.kit.mutants import Mutant, in_place_of, replaced
from tests.kit.topics import lag, transaction
from tests.kit.turn import of_this_turn
from tests.kit.waiting import await_

BY_CAMPAIGNS = {"hang", "undefined-exit", "row-demand"}
SEEDS = of_this_turn(40, 40)
ENOUGH = 8 if os.environ.get("DEEP") == "1" else 3


@given(seed=st.integers(0, 2**32), claims=st.booleans())
@settings(max_examples=50 * ENOUGH // 3, deadline=None)
def test_a_history_in_which_all_went_well_has_0_in_every_class(seed: int, claims: bool) -> None:  # noqa: FBT001 - hypothesis
    judgement = check(history(right(seed, claims=claims)))
    assert judgement.violations == dict.fromkeys(VIOLATIONS, 0), judgement.examples
    if claims:
        assert set(judgement.consume_counts) == {1}


@pytest.mark.parametrize(
    ("plant", "classes"), PLANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_one_planted_anomaly_is_found_by_its_name_and_nothing_else(plant, classes):
    planted = 0
    for seed in SEEDS:
        world = right(seed)
        if plant(world):
            planted += 1
            judgement = check(history(world))
            assert judgement.anomalies.keys() == judgement.examples.keys() == classes, seed
        if planted == ENOUGH:
            break
    assert planted == ENOUGH


def test_every_class_that_the_checker_decides_is_planted():
    assert set().union(*(classes for _plant, classes in PLANTS)) == set(VIOLATIONS) - BY_CAMPAIGNS


# -- A checker that is broken gives itself away: by what it does not find, or by the law it breaks.
#
# Otherwise nobody would know that the tests of the checker can fail.


BROKEN_SEEDS = range(6)
NOTHING = np.zeros(0, np.int64)


def _matched(**fields: Callable[[checker.Matched], Any]) -> Mutant:
    @in_place_of(checker, "match")
    def match(whole: Any, given: Any) -> Any:
        found = whole(given)
        for name, value in fields.items():
            object.__setattr__(found, name, value(found))
        return found

    return match


def _only_the_first_found(self: Findings, name: str, found: Any, describe: Any) -> None:
    if not any(self.counts.values()):
        self.counts[name] += len(found)


BROKEN: dict[str, tuple[Mutant, Plant]] = {
    "takes every effect for the first output": (
        replaced(checker, "_slots", lambda _history, effects: np.ones(len(effects), int)),
        anomalies.torn_txn,
    ),
    "confuses partitions": (
        replaced(checker, "place_keys", lambda _lane, offset: np.sort(offset)),
        anomalies.lost,
    ),
    "forgets how often an effect is there": (
        _matched(made=lambda found: np.minimum(found.made, 1)),
        anomalies.duplicate,
    ),
    "takes every record for done": (
        _matched(done=lambda found: np.ones_like(found.done)),
        anomalies.ahead,
    ),
    "takes no record for due": (
        _matched(
            outputs=lambda found: found.outputs * 0, poison=lambda found: found.poison & False
        ),
        anomalies.lost,
    ),
    "takes aborted input for no input": (
        _matched(aborted=lambda found: found.aborted & False),
        anomalies.aborted_read,
    ),
    "takes an event that is there once for one that is owned": (
        replaced(checker._Records, "_events", lambda self, _records: np.ones(self._size, int)),
        anomalies.dedup_loss,
    ),
    "looks for no torn transactions": (
        replaced(checker._Records, "_torn", lambda _self: None),
        anomalies.torn_txn,
    ),
    "asks no ledger": (
        replaced(checker._Records, "_written", lambda _self: None),
        anomalies.lost_write,
    ),
    "knows no order": (
        replaced(checker, "_behind", lambda _groups, _ranks: NOTHING),
        anomalies.order,
    ),
    "compares no values": (
        replaced(checker, "_wrong", lambda _way, effects, _inputs: np.zeros(len(effects), bool)),
        anomalies.wrong_value,
    ),
    "asks no live reader": (replaced(checker, "judge_live", lambda *_: None), anomalies.poll_skip),
    "looks at no ends": (replaced(checker, "judge_ends", lambda *_: None), anomalies.stuck),
    "stops at what it finds first": (
        replaced(Findings, "add", _only_the_first_found),
        anomalies.dead_letter_and_outputs,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_checker_misses_what_is_planted(name, monkeypatch):
    break_, plant = BROKEN[name]
    expected = dict(PLANTS)[plant]
    break_(monkeypatch.setattr)
    answers = []
    for seed in BROKEN_SEEDS:
        world = right(seed)
        if plant(world):
            answers.append(_found(world))
    assert answers
    assert any(answer != expected for answer in answers)


def _found(world: Any) -> set[str]:
    try:
        counts = checker.check(history(world)).violations
    except AssertionError:
        return {"the law is broken"}
    return {name for name, count in counts.items() if count}


@pytest.mark.parametrize("error", [-1, 1])
def test_accounts_that_do_not_add_up_break_the_law(error, monkeypatch):
    silent = checker.Accounts.silent
    monkeypatch.setattr(
        checker.Accounts, "silent", lambda self, partition: silent(self, partition) + error
    )
    with pytest.raises(AssertionError, match=r"in/0: \d+ = \d+ \+ \d+ \+ -?\d+"):
        checker.check(history(right(1)))


@pytest.mark.parametrize("plant", [anomalies.lost, anomalies.duplicate, anomalies.repeated])
def test_a_checker_that_finds_nothing_breaks_the_law_or_shows_other_counts(plant, monkeypatch):
    monkeypatch.setattr(Findings, "add", lambda *_: None)
    told = 0
    for seed in BROKEN_SEEDS:
        world = right(seed)
        if not plant(world):
            continue
        try:
            told += set(checker.check(history(world)).consume_counts) != {1}
        except AssertionError:
            told += 1
    assert told


# -- What is fed, what the feeder writes down, and what is read: the ends of the checker's chain.


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
    assert 0.01 < sum(count > 1 for count in numbers.values()) / len(numbers) < 0.06


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
    history = LiveHistory([], np.zeros(0, SEEN), moments, complete=True, partitions=3)
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


# -- Feeder, service, live reader and judge together on a real broker ----------------------

PARTITIONS = 4
RECORDS = 4000


@dataclass
class Played:
    topics: Topics
    ledger: Ledger
    live: LiveHistory


@pytest.fixture
def played(sandbox, tmp_path, unique):
    app = unique("checked")
    topics = Topics.create(sandbox, app, PARTITIONS, headers=True)
    environment = topics.environment(
        **sandbox.environment(), HAPAX_TRANSFORM="tests.fault.business:split"
    )
    worker = WorkerProcess(environment, "w-1", tmp_path / "w-1.log")
    where = (sandbox.bootstrap_servers,)
    feeder = Feeder(
        *where, topics.source, tmp_path, run=app, partitions=PARTITIONS, rate=5000, seed=1
    )
    outputs = [*topics.outputs, topics.dead]
    reader = LiveReader(*where, outputs, tmp_path, source=topics.source, partitions=PARTITIONS)
    try:
        yield _play(topics, worker, feeder, reader)
    finally:
        for one in (worker, feeder, reader):
            one.close()


def _play(topics: Topics, worker: WorkerProcess, feeder: Feeder, reader: LiveReader) -> Played:
    """Feed while the worker is killed, so that there is something to hide; end in order."""
    reader.start()
    worker.start()
    feeder.start()
    await_(lambda: reader.done > 0, 60, lambda: f"no output: {worker.text()}")
    for _ in range(2):
        seen = reader.done
        worker.kill()
        worker.start()
        await_(lambda seen=seen: reader.done > seen, 60, worker.text)  # type: ignore[misc]
    await_(lambda: feeder.written > RECORDS, 60, lambda: f"written {feeder.written}")
    ledger = feeder.stop()
    left = partial(lag, topics.bootstrap, topics.app, topics.source)
    await_(lambda: left() == 0, 60, lambda: f"lag {left()}")
    assert worker.terminate() == 0
    return Played(topics, ledger, reader.stop())


@pytest.mark.long
@pytest.mark.real
def test_the_service_is_clean_and_one_output_written_twice_is_caught(played):
    topics, ledger, live = played.topics, played.ledger, played.live
    history = read_back(topics, ledger, live)
    assert len(history.aborted) >= ledger.hidden > 0
    assert {name.partition("/")[0] for name in history.whos} == {"w-1", ""}
    judgement = check(history)
    assert judgement.violations == dict.fromkeys(VIOLATIONS, 0), judgement.examples
    counts = judgement.counts
    assert counts.distinct > RECORDS * 0.9
    assert min(counts.duplicates, counts.filtered, counts.dead_letters, counts.hidden_in) > 0
    assert judgement.consume_counts.keys() == {1}
    assert live.complete
    assert len(live.seen) == counts.outputs + counts.dead_letters
    assert all(live.first_seen_s(0))

    again = _any_output(topics)
    _write(topics, again)
    judgement = judge(topics, ledger, live)
    assert judgement.anomalies.keys() == {"duplicate"}
    assert judgement.violations["duplicate"] == 1
    source = dict(again.headers() or ())["hapax-source"]
    assert isinstance(source, bytes)
    assert source.decode() in judgement.examples["duplicate"][0]
    assert "w-1/" in judgement.examples["duplicate"][0]


@pytest.mark.long
@pytest.mark.real
def test_an_open_transaction_is_named_for_as_long_as_it_is_open(sandbox, unique):
    topic, other, name = unique("out"), unique("out"), unique("w")
    for one in (topic, other):
        sandbox.create_topic(one)
    bootstrap = sandbox.bootstrap_servers
    with transaction(bootstrap, name) as producer:
        producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        assert open_transactions(bootstrap, [topic], "feeder") == [f"{name}: ongoing"]
        assert open_transactions(bootstrap, [other], "feeder") == []
        assert open_transactions(bootstrap, [topic], name) == []
        (end,) = reading.ends(bootstrap, topic)
        assert end.stable < end.high
        producer.abort_transaction(30)
    await_(
        lambda: not open_transactions(bootstrap, [topic], "feeder"), 30, lambda: "it is still open"
    )
    (end,) = reading.ends(bootstrap, topic)
    assert end.stable == end.high


def _any_output(topics: Topics) -> Message:
    consumer = Consumer(
        {"bootstrap.servers": topics.bootstrap, "group.id": "any", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topics.outputs[0], 0, 0)])
        message = consumer.poll(30)
    finally:
        consumer.close()
    assert message is not None
    assert message.error() is None
    return message


def _write(topics: Topics, message: Message) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(
        topics.outputs[0],
        message.value(),
        message.key(),
        message.partition() or 0,
        headers=message.headers(),
    )
    assert producer.flush(30) == 0

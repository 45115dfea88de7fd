"""Steps 4 and 5 in the core: prefixes, condemned and unreadable records, culprits, the limit."""

import pytest

from hapax.core.errors import BatchAbortedError, DeadLetterLimitError
from hapax.core.records import Output, Record
from hapax.core.transform import Cut, Failure
from tests.kit.doubles import Script
from tests.kit.pipeline import Pipeline, filled, opened, run, taken

TOO_LARGE = Failure("Refused", "MSG_SIZE_TOO_LARGE", 1)


@pytest.fixture(name="pipeline")
def _pipeline():
    return filled()


def test_an_interrupt_commits_a_prefix_and_the_rest_is_taken_later():
    def interrupting(record: Record) -> Output:
        if record.value == b"b":
            pipeline.interrupt.due = True
        return Output(record.value)

    pipeline = opened(Pipeline(2, transform=interrupting))
    pipeline.write(b"a", b"b", b"c")
    pipeline.write(b"d", partition=1)
    batch = taken(pipeline)
    settled = run(pipeline, batch)
    assert settled.records == 2
    assert settled.offsets == {("in", 0): (0, 2)}
    assert pipeline.outputs() == [b"a", b"b"]
    pipeline.source.rewind({**batch.first, ("in", 0): 2})
    pipeline.interrupt.due = False
    assert run(pipeline).records == 2
    assert pipeline.drained()
    assert pipeline.outputs() == [b"a", b"b", b"c", b"d"]


def test_an_interrupt_that_is_due_at_the_start_still_lets_one_record_through(pipeline):
    pipeline.interrupt.due = True
    assert run(pipeline).records == 1


def test_a_prefix_carries_the_ends_of_partitions_without_records():
    pipeline = opened(Pipeline(2))
    pipeline.write(b"a", b"b")
    pipeline.broker.hide(("in", 1), 4)
    pipeline.interrupt.due = True
    assert run(pipeline).offsets == {("in", 0): (0, 1), ("in", 1): (4, 4)}


def test_a_condemned_record_becomes_a_dead_letter_without_being_transformed(pipeline):
    batch = taken(pipeline)
    condemned = {batch.records[1].coordinates: TOO_LARGE}
    settled = pipeline.core.run(batch, condemned, 4)
    assert settled.attempt == 4
    assert settled.dead_letter_reasons == {"Refused": 1, "ValueError": 1}
    assert pipeline.dead() == [b"two", b"boom"]


def test_an_unreadable_record_becomes_a_dead_letter(pipeline):
    batch = taken(pipeline)
    batch.unreadable[0] = "a header name is not UTF-8"
    run(pipeline, batch)
    assert pipeline.dead() == [b"a", b"boom"]
    assert b"not UTF-8" in (dict(pipeline.broker.records("dead")[0].headers)["hapax-error"] or b"")


def test_an_unreadable_record_is_never_dropped_as_a_twin():
    pipeline = opened(Pipeline(sources=("header:id", "key")))
    for _ in range(2):
        pipeline.broker.write("in", b"x", key=b"customer")
    batch = taken(pipeline)
    batch.unreadable.update({0: "a header name is not UTF-8", 1: "a header name is not UTF-8"})
    run(pipeline, batch)
    assert len(pipeline.dead()) == 2


def test_a_record_whose_id_cannot_be_told_becomes_a_dead_letter():
    pipeline = opened(Pipeline(sources=("json:/id",)))
    pipeline.broker.write("in", b"no json")
    assert run(pipeline).dead_letter_reasons == {"Poison": 1}


def test_a_message_that_alone_is_refused_names_its_record(pipeline):
    pipeline.broker.bytes_max = 60
    pipeline.write(b"x" * 50)
    batch = taken(pipeline)
    with pytest.raises(BatchAbortedError) as caught:
        run(pipeline, batch)
    assert caught.value.culprits == {batch.records[5].coordinates: TOO_LARGE}
    assert caught.value.content


def test_all_that_are_refused_by_name_are_blamed_and_dead_letters_are_cut(monkeypatch):
    pipeline = opened(Pipeline())
    pipeline.write(b"a", b"boom", b"b")
    batch = taken(pipeline)

    def refuse(_messages: object) -> None:
        raise BatchAbortedError("refused", refused={0: "x", 1: "y"}, content=True)

    monkeypatch.setattr(pipeline.transaction, "send", refuse)
    with pytest.raises(BatchAbortedError) as caught:
        run(pipeline, batch)
    assert caught.value.culprits == {
        batch.records[0].coordinates: Failure("Refused", "x", 1),
        batch.records[1].coordinates: Failure("ValueError", "boom", 1, Cut.VALUE),
    }


def test_two_refused_parts_of_one_record_blame_it(monkeypatch):
    pipeline = opened(Pipeline())
    pipeline.write(b"two")
    batch = taken(pipeline)

    def refuse(_messages: object) -> None:
        raise BatchAbortedError("refused", refused={0: "x", 1: "y"}, content=True)

    monkeypatch.setattr(pipeline.transaction, "send", refuse)
    with pytest.raises(BatchAbortedError) as caught:
        run(pipeline, batch)
    assert caught.value.culprits == {batch.records[0].coordinates: Failure("Refused", "y", 1)}


def test_a_dead_letter_rate_over_its_limit_stops_before_anything_is_written():
    script = Script()
    pipeline = filled(faults=script)
    rate = pipeline.core._dead_letter_rate
    rate._records_min = 5
    with pytest.raises(DeadLetterLimitError):
        run(pipeline)
    assert "begin" not in script.steps
    assert pipeline.outputs() == []


def test_records_are_counted_by_their_topics():
    pipeline = opened(Pipeline())
    batch = taken(pipeline)
    batch.records = [Record(topic, 0, 0, None, b"x") for topic in ("in", "in", "other")]
    batch.first.update({("in", 0): 0, ("other", 0): 0})
    batch.next.update({("in", 0): 1})
    assert run(pipeline, batch).inputs == {"in": 2, "other": 1}

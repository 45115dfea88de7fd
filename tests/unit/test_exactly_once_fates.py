"""Steps 4 and 5 in the core: prefixes, condemned and unreadable records, culprits, the limit."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from hapax.core.errors import BatchAbortedError, ClaimsUnavailableError, DeadLetterLimitError
from hapax.core.record_path import Batch
from hapax.core.records import Headers, Record
from hapax.core.results import Cut, Failure
from hapax.testing.claims import MemoryClaims
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script, Ticking
from tests.kit.pipeline import Pipeline, filled, opened, run, taken

TOO_LARGE = Failure("Refused", "MSG_SIZE_TOO_LARGE", 1)


def test_an_interrupt_that_is_due_at_the_start_lets_one_record_and_ends_of_others_through():
    pipeline = opened(Pipeline(2))
    pipeline.write(b"a", b"b")
    pipeline.broker.hide(("in", 1), 4)
    pipeline.interrupt.due = True
    settled = run(pipeline)
    assert (settled.records, settled.offsets) == (1, {("in", 0): (0, 1), ("in", 1): (4, 4)})


def test_a_condemned_record_becomes_a_dead_letter_without_being_transformed():
    pipeline = filled()
    batch = taken(pipeline)
    settled = pipeline.core.run(batch, {batch.records[1].coordinates: TOO_LARGE}, 4)
    assert settled.attempt == 4
    assert settled.dead_letter_reasons == {"Refused": 1, "ValueError": 1}
    assert pipeline.dead() == [b"two", b"boom"]


def test_an_unreadable_record_becomes_a_dead_letter_and_is_never_dropped_as_a_twin():
    pipeline = opened(Pipeline(sources=("header:id", "key")))
    for _ in range(2):
        pipeline.broker.write("in", b"x", key=b"customer")
    batch = taken(pipeline)
    batch.unreadable.update({0: "a header name is not UTF-8", 1: "a header name is not UTF-8"})
    run(pipeline, batch)
    assert pipeline.dead() == [b"x", b"x"]
    assert b"not UTF-8" in (dict(pipeline.broker.records("dead")[0].headers)["hapax-error"] or b"")


def test_a_record_whose_id_cannot_be_told_becomes_a_dead_letter():
    pipeline = opened(Pipeline(sources=("json:/id",)))
    pipeline.broker.write("in", b"no json")
    assert run(pipeline).dead_letter_reasons == {"Poison": 1}


def test_a_message_that_alone_is_refused_names_its_record():
    pipeline = filled()
    pipeline.broker.bytes_max = 60
    pipeline.write(b"x" * 50)
    batch = taken(pipeline)
    with pytest.raises(BatchAbortedError) as caught:
        run(pipeline, batch)
    assert caught.value.culprits == {batch.records[5].coordinates: TOO_LARGE}
    assert caught.value.content


@pytest.mark.parametrize(
    ("values", "failures"),
    [
        (
            (b"a", b"boom", b"b"),
            [Failure("Refused", "x", 1), Failure("ValueError", "boom", 1, Cut.VALUE)],
        ),
        ((b"two",), [Failure("Refused", "y", 1)]),  # both parts of one record
    ],
)
def test_all_that_are_refused_by_name_are_blamed_and_dead_letters_are_cut(
    pipeline, monkeypatch, values, failures
):
    pipeline.write(*values)
    batch = taken(pipeline)
    refused = BatchAbortedError("refused", refused={0: "x", 1: "y"}, content=True)
    monkeypatch.setattr(pipeline.transaction, "send", Mock(side_effect=refused))
    with pytest.raises(BatchAbortedError) as caught:
        run(pipeline, batch)
    places = [one.coordinates for one in batch.records[: len(failures)]]
    assert caught.value.culprits == dict(zip(places, failures, strict=True))


def test_a_dead_letter_rate_over_its_limit_stops_before_anything_is_written():
    script = Script()
    pipeline = filled(faults=script)
    pipeline.core._steps.dead_letter_rate._records_min = 5
    with pytest.raises(DeadLetterLimitError):
        run(pipeline)
    assert "begin" not in script.steps
    assert pipeline.outputs() == []


def test_records_are_counted_by_their_topics(pipeline):
    batch = taken(pipeline)
    batch.records = [Record(topic, 0, 0, None, b"x") for topic in ("in", "in", "other")]
    batch.first.update({("in", 0): 0, ("other", 0): 0})
    batch.next.update({("in", 0): 1})
    assert run(pipeline, batch).inputs == {"in": 2, "other": 1}


@pytest.fixture
def pipeline():
    return opened(Pipeline())


def test_our_own_claim_lets_the_record_through_again():
    pipeline = filled()
    batch = taken(pipeline)
    pipeline.claims.claim([b"header:id\0a"], batch.records[:1], {})
    assert run(pipeline, batch).duplicates == 1
    pipeline.judge()


def test_a_twin_in_a_later_batch_has_no_output_and_its_offset_commits():
    pipeline = filled()
    run(pipeline)
    pipeline.write(b"a/3", b"c")
    settled = run(pipeline)
    assert (settled.duplicates, settled.outputs) == (1, {"out": 1})
    pipeline.judge()


def test_records_without_an_id_are_processed_and_counted_and_a_twin_is_found_among_them(pipeline):
    pipeline.broker.write("in", b"x")
    pipeline.write(b"y")
    pipeline.broker.write("in", b"x")
    pipeline.write(b"y/2")
    settled = run(pipeline)
    assert settled.outputs == {"out": 3}
    assert (settled.without_id, settled.claims_new_or_own, settled.duplicates) == (2, 1, 1)
    assert pipeline.outputs() == [b"X", b"X", b"Y"]


def test_a_batch_without_any_id_asks_no_store_and_without_one_twins_pass(pipeline):
    pipeline.claims.outage = "away"
    pipeline.broker.write("in", b"x")
    assert run(pipeline).outputs == {"out": 1}
    settled = run(filled(claims=False))
    assert (settled.duplicates, settled.claims_new_or_own) == (0, 0)
    assert settled.outputs == {"out": 5, "dead": 1}


def replay(pipeline: Pipeline, of: Record, value: bytes) -> None:
    """Write a dead letter's event again: as a replay of the record that it replayed, if any."""
    headers = dict(of.headers)
    original = headers.get("hapax-replay-of", headers["hapax-source"])
    again: Headers = (("id", headers["hapax-id"]), ("hapax-replay-of", original))
    pipeline.broker.write("in", value, headers=again)


def test_a_replay_inherits_the_claim_of_its_original_and_later_twins_are_dropped(pipeline):
    pipeline.broker.write("in", b"anonymous")
    pipeline.write(b"boom")
    run(pipeline)
    replay(pipeline, pipeline.broker.records("dead")[0], b"mended")
    pipeline.write(b"boom/2")
    pipeline.broker.write("in", b"nameless")
    assert run(pipeline).duplicates == 1
    assert pipeline.outputs() == [b"ANONYMOUS", b"MENDED", b"NAMELESS"]


def test_a_replay_that_fails_again_can_be_replayed_again(pipeline):
    pipeline.write(b"boom")
    run(pipeline)
    replay(pipeline, pipeline.broker.records("dead")[0], b"boom again")
    run(pipeline)
    replay(pipeline, pipeline.broker.records("dead")[1], b"mended")
    run(pipeline)
    assert pipeline.outputs() == [b"MENDED"]


@pytest.mark.parametrize("lost_answers", [0, 1])
def test_an_outage_under_pause_raises_before_a_transaction_and_the_batch_passes_later(lost_answers):
    script = Script()
    pipeline = filled(faults=script)
    claims = pipeline.claims
    claims.outage, claims.lost_answers = None if lost_answers else "away", lost_answers
    batch = taken(pipeline)
    with pytest.raises(ClaimsUnavailableError):
        run(pipeline, batch)
    assert "begin" not in script.steps
    claims.outage = None
    run(pipeline, batch)
    pipeline.judge()


def test_an_outage_under_pass_goes_on_and_marks_every_output():
    pipeline = filled(pass_on_outage=True)
    pipeline.claims.outage = "away"
    settled = run(pipeline)
    assert (settled.unchecked, settled.claims_new_or_own, settled.duplicates) == (6, 0, 0)
    written = pipeline.broker.records("out") + pipeline.broker.records("dead")
    assert len(written) == 6
    assert all(dict(record.headers)["hapax-unchecked"] == b"1" for record in written)


class Overtaken(MemoryClaims):
    """A store that every other request reaches only when its answer is waited for."""

    _asked = 0

    def ask(self, *what: Any) -> Any:
        self._asked += 1
        claimed = super().ask
        late = SimpleNamespace(answer=lambda: claimed(*what).answer())
        return claimed(*what) if self._asked % 2 == 0 else late


def overtaken(script: Script | None = None) -> Pipeline:
    return opened(Pipeline(claims=Overtaken(clock=Ticking(), ttl_ms=3_600_000), faults=script))


def asked_ahead(pipeline: Pipeline) -> tuple[Batch, Any, Batch]:
    """Return two batches of one id, of which the second was asked ahead and dropped."""
    pipeline.write(b"a/first")
    before = taken(pipeline)
    asked = pipeline.core.ask(before)
    pipeline.write(b"a/second")
    ahead = taken(pipeline)
    pipeline.core.ask(ahead).drop()
    return before, asked, ahead


def test_of_two_records_of_one_id_the_first_counts_when_the_claim_of_the_second_comes_first():
    pipeline = overtaken()
    pipeline.write(b"a/first", b"b")
    before = taken(pipeline)
    asked = pipeline.core.ask(before)
    pipeline.write(b"a/second", b"c")
    after = taken(pipeline)
    asked_ahead = pipeline.core.ask(after)
    first = pipeline.core.run(before, {}, 1, asked)
    second = pipeline.core.run(after, {}, 1, asked_ahead)
    assert (first.duplicates, second.duplicates) == (0, 1)
    assert pipeline.outputs() == [b"A/FIRST", b"B", b"C"]
    assert (first.claims_taken_over, second.claims_taken_over) == (0, 0)
    pipeline.judge()


def test_what_a_frozen_process_has_claimed_for_a_later_record_belongs_to_the_first(pipeline):
    """It asked for the second first, and gives its claim to the first when it thaws."""
    pipeline.write(b"a/first")
    before = taken(pipeline)
    pipeline.write(b"a/second")
    after = taken(pipeline)
    pipeline.claims.claim([b"header:id\0a"], after.records, {})
    first = run(pipeline, before)
    pipeline.claims.claim([b"header:id\0a"], before.records, {}, [after.coordinates(0)])
    second = run(pipeline, after)
    assert (first.duplicates, second.duplicates) == (0, 1)
    assert pipeline.outputs() == [b"A/FIRST"]
    pipeline.judge()


def test_what_was_asked_ahead_and_read_again_is_a_twin_of_the_first_as_well():
    pipeline = overtaken()
    before, asked, ahead = asked_ahead(pipeline)
    pipeline.core.run(before, {}, 1, asked)
    assert run(pipeline, ahead).duplicates == 1
    assert pipeline.outputs() == [b"A/FIRST"]
    pipeline.judge()


def test_what_is_asked_again_after_an_abort_and_a_loss_of_all_claims_has_its_effect():
    """The first record, of another partition, may be with another member by then."""
    script = Script(send=[InjectedFault("aborted")])
    pipeline = overtaken(script)
    before, asked, ahead = asked_ahead(pipeline)
    with pytest.raises(BatchAbortedError):
        pipeline.core.run(before, {}, 1, asked)
    assert not script.unplayed
    pipeline.claims.empty()
    pipeline.core.ask(ahead)  # it is the first that claims now
    assert pipeline.core.run(ahead, {}, 1, pipeline.core.ask(ahead)).duplicates == 0
    assert pipeline.outputs() == [b"A/SECOND"]

"""The claim of the next batch travels while one is in work: when, and what becomes of it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hapax.core.record_path import ClaimRequest
from hapax.core.records import Coordinates, Record
from hapax.testing.claims import MemoryClaims
from hapax.testing.source import InjectedFault
from tests.kit.doubles import Script, Ticking
from tests.kit.pipeline import Pipeline
from tests.simulation.business import work

ERRORS = ("aborted", "dead", "fenced")
TRAVEL_S = 0.5


class Claims(MemoryClaims):
    """Notes what is asked and answered, by the first offset; an answer takes its time."""

    def __init__(self, travel_s: float = 0.0) -> None:
        self.clock = Ticking()
        super().__init__(clock=self.clock, ttl_ms=3_600_000)
        self.travel_s = travel_s
        self.wait: Callable[[float], object] = self.clock.wait
        self.notes: list[tuple[str, int]] = []

    def ask(self, wanted: ClaimRequest) -> Any:
        first = wanted.records[0].offset
        self.notes.append(("ask", first))
        return Asked(self, first, super().ask(wanted))


class Asked:
    """A claim on its way."""

    def __init__(self, claims: Claims, first: int, inner: Any) -> None:
        self._claims, self._first, self._inner = claims, first, inner
        self._back_s = claims.clock.monotonic() + claims.travel_s

    def answer(self) -> Mapping[int, Coordinates]:
        self._claims.notes.append(("answer", self._first))
        self._claims.clock.wait(max(0.0, self._back_s - self._claims.clock.monotonic()))
        return self._inner.answer()  # type: ignore[no-any-return]

    def drop(self) -> None:
        self._claims.notes.append(("drop", self._first))


def backlog(
    count: int = 9, partitions: int = 1, script: Script | None = None, **options: Any
) -> tuple[Pipeline, Claims]:
    """Return a worker with batches of three, and so many records in each partition."""
    claims = Claims(options.pop("travel_s", 0.0))
    options.setdefault("batch_max", 3)
    pipeline = Pipeline(partitions, faults=script, claims=claims, **options)
    claims.clock = pipeline.clock
    for partition in range(partitions):
        pipeline.write(*[b"%d-%d" % (partition, n) for n in range(count)], partition=partition)
    return pipeline, claims


def settled(pipeline: Pipeline) -> list[int]:
    return [facts["settled"].records for facts in pipeline.told.of("transaction_committed")]


def test_behind_a_full_batch_the_next_one_asks_before_the_first_is_answered():
    pipeline, claims = backlog(7)
    pipeline.run_judged()
    asked = [("ask", 0), ("ask", 3), ("answer", 0), ("ask", 6), ("answer", 3), ("answer", 6)]
    assert claims.notes == asked, "each asks once, in the order in which they were read"
    assert settled(pipeline) == [3, 3, 1]


def test_where_nothing_is_claimed_nothing_is_taken_ahead():
    script = Script()
    pipeline = Pipeline(faults=script, claims=False, batch_max=2)
    pipeline.write(b"a", b"b", b"c", b"d")
    pipeline.run_judged()
    steps = [step for step in script.steps if step in {"take", "commit"}]
    assert steps[:4] == ["take", "commit", "take", "commit"]


def test_without_a_backlog_a_batch_is_answered_before_the_next_one_is_taken():
    script = Script()
    pipeline, claims = backlog(0, script=script)
    pipeline.write(b"a", b"b")
    script.at("take", 2, lambda: pipeline.write(b"c"))
    pipeline.run_judged()
    assert claims.notes == [("ask", 0), ("answer", 0), ("ask", 2), ("answer", 2)]


def test_the_claim_phase_is_what_was_waited_for_and_not_the_way():
    script = Script()
    pipeline, _claims = backlog(9, script=script, travel_s=TRAVEL_S)
    script.then = lambda step: pipeline.clock.wait(2 * TRAVEL_S if step == "commit" else 0.0)
    pipeline.run()
    waits = [
        round(facts["settled"].phases_s["claim"], 1)
        for facts in pipeline.told.of("transaction_committed")
    ]
    assert waits[0] == TRAVEL_S
    assert set(waits[1:]) == {0.0}


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["begin", "send", "send_offsets", "commit"])
def test_when_a_batch_fails_the_one_ahead_is_dropped_and_asks_again(step, error, *, after):
    fault: InjectedFault | None = InjectedFault(error, after=after)  # one of three
    pipeline, claims = backlog(6, 2, Script(**{step: [fault]}))
    pipeline.run_judged()
    assert ("drop", 3) in claims.notes
    assert claims.notes.count(("ask", 3)) >= 2


def test_partitions_of_the_batch_ahead_alone_are_read_again_when_the_first_one_aborts():
    pipeline, _claims = backlog(3, 2, Script(send=[InjectedFault("aborted")]))
    pipeline.run_judged()
    assert pipeline.told.of("batch_aborted")[0]["rewound_to"] == {("in", 0): 0, ("in", 1): 0}


def test_an_end_that_was_met_ahead_is_committed_although_the_first_batch_aborts():
    script = Script(send=[InjectedFault("aborted")])
    pipeline, claims = backlog(0, 2, script)
    pipeline.write(*[b"%d" % n for n in range(6)])

    def hide() -> None:
        log = pipeline.broker.logs[("in", 1)]
        log.append(b"x", key=b"", headers=(), timestamp_ms=0, producer="upstream")
        log.mark("upstream", commit=False)

    script.at("take", 2, hide)
    pipeline.run_judged()
    assert ("drop", 3) in claims.notes
    assert pipeline.committed()[("in", 1)] == 2


def test_while_a_batch_is_tried_again_none_is_taken_ahead():
    pipeline, claims = backlog(6)
    pipeline.broker.rejects = lambda message: (
        message.topic == "out" and b"0-1" in (message.value or b"")
    )
    pipeline.told.on["transaction_committed"] = lambda: claims.notes.append(("commit", 0))
    pipeline.run()
    assert pipeline.dead() == [b"0-1"]
    dropped = claims.notes.index(("drop", 3))
    tried = claims.notes[dropped + 1 : claims.notes.index(("commit", 0))]
    assert tried
    assert {what for what, _first in tried[::2]} == {"ask"}
    assert {what for what, _first in tried[1::2]} == {"answer"}


def test_when_a_batch_is_cut_the_one_ahead_waits_for_its_rest():
    cuts = iter([False, True])

    def cut(record: Record) -> Any:
        pipeline.interrupt.due = next(cuts, False)
        return work(record)

    pipeline, claims = backlog(6, transform=cut)
    pipeline.run_judged()
    assert settled(pipeline)[0] == 2
    assert ("drop", 3) in claims.notes


def test_a_batch_whose_partition_left_and_came_back_is_read_from_where_the_group_is():
    script = Script()
    pipeline, claims = backlog(6, script=script)
    commits: list[int] = []

    def elsewhere() -> None:
        """Let another member have the partition, and commit two records of it."""
        pipeline.broker.group.expel("w")
        for record in pipeline.broker.fetch(("in", 0), 0, 2):
            pipeline.broker.write("out", record.value, key=record.key, headers=record.headers)
        pipeline.broker.committed[("in", 0)] = 2
        commits.append(2)

    script.at("take", 2, elsewhere)
    pipeline.run()
    assert commits
    assert pipeline.outputs() == [b"0-%d" % n for n in range(6)]
    assert ("drop", 0) in claims.notes


def test_a_batch_that_waits_while_its_partition_is_away_is_not_run():
    script = Script(
        commit=[InjectedFault(doubt=True, after=True)], open=[None, InjectedFault("dead")]
    )
    pipeline, claims = backlog(6, script=script)
    expelled: list[str] = []

    def elsewhere() -> None:
        pipeline.broker.group.expel("w")
        expelled.append("w")

    script.once(lambda step: step == "attend" and pipeline.committed(), elsewhere)
    pipeline.run_judged()
    assert expelled
    assert ("drop", 3) in claims.notes


@pytest.mark.parametrize(
    ("most", "batches", "asked"), [(4, [3, 1], [("ask", 0), ("ask", 3)]), (3, [3], [("ask", 0)])]
)
def test_a_bounded_run_takes_no_more_ahead_than_it_may(most, batches, asked):
    pipeline, claims = backlog(9, records_max=most)
    pipeline.run()
    assert settled(pipeline) == batches
    assert [note for note in claims.notes if note[0] != "answer"] == asked
    assert pipeline.committed() == {("in", 0): most}


def test_a_pause_lets_the_batch_ahead_through_and_takes_none_after_it():
    pipeline, claims = backlog(12)

    def pause() -> None:
        if len(settled(pipeline)) == 1:
            pipeline.lifecycle.pause()

    pipeline.told.on["transaction_committed"] = pause
    watch = pipeline._watch

    def resume() -> None:
        watch()
        if pipeline.source.paused:
            assert settled(pipeline) == [3, 3]
            assert claims.notes[-1] == ("answer", 3)
            pipeline.lifecycle.resume()

    pipeline._watch = resume  # type: ignore[method-assign]
    pipeline.run_judged()
    assert pipeline.told.names().count("intake_paused") == 1


def test_a_duplicate_in_the_batch_ahead_costs_no_look_at_its_owner():
    pipeline, _claims = backlog(0)
    pipeline.write(b"a", b"b", b"c", b"a/2", b"b/2", b"d")
    pipeline.run_judged()
    assert pipeline.outputs() == [b"A", b"B", b"C", b"D"]
    assert pipeline.owners.asked == {"committed": 0, "records": 0}


def test_of_two_batches_whose_claims_arrive_in_the_other_order_the_first_counts():
    pipeline, claims = backlog(0)
    pipeline.write(b"a", b"b", b"c", b"a/2", b"d", b"e")
    pipeline.run()
    [(_, kept)] = claims._kept.generations
    (claim,) = [each for each, owner in kept.items() if owner.offset == 0]
    pipeline, claims = backlog(0)
    pipeline.write(b"a", b"b", b"c", b"a/2", b"d", b"e")
    claims.claim([claim], pipeline.broker.fetch(("in", 0), 3, 1), {})
    pipeline.run_judged()
    assert pipeline.owners.asked["records"] == 0, "that its owner comes later is known"
    assert pipeline.outputs() == [b"A", b"B", b"C", b"D", b"E"]


@pytest.mark.parametrize("policy", [False, True])
def test_an_outage_that_begins_while_a_claim_travels_holds_or_passes_its_own_batch(*, policy):
    pipeline, claims = backlog(9, pass_on_outage=policy)

    def lose() -> None:
        if len(settled(pipeline)) == 1:
            claims.lost_answers = 1  # of the batch after the one that is ahead now

    pipeline.told.on["transaction_committed"] = lose
    pipeline.run_judged()
    unchecked = [facts["settled"].unchecked for facts in pipeline.told.of("transaction_committed")]
    assert unchecked == ([0, 0, 3] if policy else [0, 0, 0])
    assert pipeline.told.names().count("claims_unavailable") == (0 if policy else 1)


def test_claims_that_are_emptied_while_a_batch_is_ahead_double_nothing():
    pipeline, claims = backlog(9)

    def empty() -> None:
        if len(settled(pipeline)) == 1:
            claims.empty()

    pipeline.told.on["transaction_committed"] = empty
    pipeline.run_judged()
    assert settled(pipeline) == [3, 3, 3]


def test_a_mark_is_written_for_a_partition_when_its_own_batch_is_due():
    pipeline, _claims = backlog(3, 2, marked=True)
    marks: list[tuple[Mapping[Any, int], list[int]]] = []
    end = pipeline.core.end

    def note(progress: Any, wanted: Any = None) -> None:
        if wanted:
            marks.append((dict(progress), settled(pipeline)))
        end(progress, wanted)

    pipeline.core.end = note  # type: ignore[assignment, method-assign]
    pipeline.run_judged()
    assert marks == [({("in", 0): 0}, []), ({("in", 1): 0}, [3])]

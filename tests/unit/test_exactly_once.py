"""One batch through the real core on memory adapters: all of its effects, or none."""

import pytest

from hapax.core.errors import BatchAbortedError, HapaxError, ProducerDeadError
from hapax.core.records import size_of
from hapax.testing.source import InjectedFault
from tests.kit.doubles import CrashError, Script, crashing_at
from tests.kit.pipeline import Pipeline, filled, opened, run, taken

STEPS = ("begin", "send", "send_offsets", "commit")
ERRORS = ("aborted", "dead", "fenced")


def test_a_batch_settles_every_fate_and_its_numbers_add_up():
    pipeline = filled()
    settled = run(pipeline)
    pipeline.judge()
    assert settled.records == 6
    assert settled.outputs == {"out": 4, "dead": 1}
    assert (settled.duplicates, settled.filtered, settled.dead_letters) == (1, 1, 1)
    assert settled.dead_letter_reasons == {"ValueError": 1}
    assert settled.offsets == {("in", 0): (0, 5), ("in", 1): (0, 1)}
    assert (settled.without_id, settled.unchecked, settled.claims_new_or_own) == (0, 0, 5)
    assert settled.bytes_in == sum(map(size_of, pipeline.broker.records("in")))
    assert list(settled.phases_s) == [
        "identify", "claim", "transform", "plan", "send", "send_offsets", "commit",
    ]  # fmt: skip
    assert min(settled.phases_s.values()) > 0


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_fails_at_any_step_is_seen_whole_or_not_at_all(step, error, *, after):
    fault: InjectedFault | None = InjectedFault(error, after=after)  # one of three
    script = Script(**{step: [fault]})
    pipeline = filled(faults=script)
    with pytest.raises((BatchAbortedError, ProducerDeadError)) as caught:
        run(pipeline)
    assert not script.unplayed
    if step == "commit" and after:
        pipeline.judge()
        assert not getattr(caught.value, "resolved", False)
        return
    assert pipeline.outputs() == pipeline.dead() == []
    assert pipeline.committed() == {}
    pipeline.start("w2")
    pipeline.broker.group.expel("w")
    run(opened(pipeline))
    pipeline.judge()


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_before_any_step_leaves_nothing_and_the_next_start_finishes(step):
    script = Script()
    pipeline = filled(faults=script)
    batch = taken(pipeline)
    script.then = crashing_at(step)
    with pytest.raises(CrashError):
        run(pipeline, batch)
    assert pipeline.outputs() == pipeline.dead() == []
    script.then = lambda _reached: None
    pipeline.broker.group.expel("w")
    pipeline.start("w2")
    pipeline.run_judged()


def test_ends_alone_are_committed_in_a_transaction_unless_their_partition_is_not_ours():
    pipeline = opened(Pipeline())
    pipeline.broker.hide(("in", 0), 3)
    taken(pipeline)
    with pytest.raises(HapaxError, match="no longer assigned"):
        pipeline.core.end({("other", 0): 3})
    assert pipeline.committed() == {}
    pipeline.core.end({("in", 0): 3})
    assert pipeline.committed() == {("in", 0): 3}


@pytest.mark.parametrize(
    ("change", "member", "reason"),
    [("expel", "w", "no live member"), ("join", "other", "ILLEGAL_GENERATION")],
)
def test_progress_of_an_expelled_member_or_an_old_generation_is_refused(change, member, reason):
    pipeline = filled()
    batch = taken(pipeline)
    getattr(pipeline.broker.group, change)(member)
    with pytest.raises(BatchAbortedError, match=reason):
        run(pipeline, batch)
    assert pipeline.outputs() == []
    assert pipeline.committed() == {}

"""What the first records of a process, and later duplicates, say about the ids."""

from __future__ import annotations

from hapax.core.record_path import Batch
from hapax.core.records import Coordinates, Record
from hapax.processing.deduplicate import AGAIN_S, FIRST, Claimed, IdWatch
from tests.kit.doubles import Ticking

TWINS = Claimed({1: Coordinates("in", 0, 0)}, checked=True)
NONE = Claimed({}, checked=True)


def batch(*keys: bytes | None) -> Batch:
    records = [Record("in", 0, offset, key, b"") for offset, key in enumerate(keys)]
    return Batch(records, {("in", 0): len(keys)}, {("in", 0): 0})


def test_most_of_the_first_records_without_an_id_are_named_once():
    watch = IdWatch(Ticking())
    assert watch.look(batch(*[b"k"] * 9), [b""] * 9, NONE) is None
    found = watch.look(batch(*[b"k"] * 9), [b""] * 3 + [b"i"] * 6, NONE)
    assert found is not None
    assert (found.missing, found.looked, found.shared) == (12, 18, None)
    assert watch.look(batch(*[b"k"] * 9), [b""] * 9, NONE) is None


def test_half_of_them_are_not_most_and_without_an_answer_of_the_claim_store_nothing_is_said():
    ids = [b"", b"i"] * 10
    assert IdWatch(Ticking()).look(batch(*[b"k"] * 20), ids, NONE) is None
    assert IdWatch(Ticking()).look(batch(*[None] * 20), [b""] * 20, Claimed({})) is None


def test_one_id_on_two_keys_is_named_across_batches_and_a_repeated_event_is_not():
    watch = IdWatch(Ticking())
    assert watch.look(batch(b"k", b"k", None, b""), [b"i", b"i", b"j", b"l"], TWINS) is None
    for key, claim, first in ((b"o", b"i", 0), (b"", b"j", 2), (None, b"l", 3)):
        found = watch.look(batch(key), [claim], TWINS)
        assert found is not None
        assert found.shared == (Coordinates("in", 0, first), Coordinates("in", 0, 0))


def test_after_the_first_records_a_batch_with_duplicates_is_checked_once_a_minute():
    clock = Ticking()
    watch = IdWatch(clock)
    shared = batch(b"k", b"o"), [b"i", b"i"]
    watch.look(batch(*[b"k"] * FIRST), [b"%d" % number for number in range(FIRST)], NONE)
    assert watch.look(*shared, NONE) is None
    assert watch.look(*shared, TWINS) is not None
    assert watch.look(*shared, TWINS) is None
    clock.wait(AGAIN_S)
    assert watch.look(*shared, TWINS) is not None

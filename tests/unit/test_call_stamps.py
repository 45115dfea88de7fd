"""The stamps of calls: one that overlaps with another of its key is found, and one that was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.calls import Stamps

if TYPE_CHECKING:
    from pathlib import Path


def stamps(folder: Path, *lines: str) -> Stamps:
    """Return the stamps of one process: a time, a word, and what belongs to it."""
    path = folder / "stamps"
    path.write_text("".join(f"7 {line}\n" for line in lines))
    return Stamps(path)


def test_calls_of_one_key_that_overlap_are_found(tmp_path):
    found = stamps(tmp_path, "1 begin 0 0/0 a", "2 begin 1 0/1 a", "3 end 0", "4 end 1")
    ((one, two),) = found.overlaps()
    assert (one.places, two.places) == (((0, 0),), ((0, 1),))
    assert found.together_most() == 2


def test_calls_of_one_key_in_series_and_those_of_two_keys_are_no_overlap(tmp_path):
    series = ("1 begin 0 0/0 a", "2 end 0", "3 begin 1 0/1 a", "4 end 1")
    assert stamps(tmp_path, *series).overlaps() == []
    assert Stamps(tmp_path / "stamps").together_most() == 1
    keys = ("1 begin 0 0/0 a", "2 begin 1 0/1 b", "3 end 0", "4 end 1")
    assert stamps(tmp_path, *keys).overlaps() == []


def test_lists_that_have_a_key_in_common_overlap(tmp_path):
    lines = ("1 begin 0 0/0,1/0 a,b", "2 begin 1 0/1,1/1 c,b", "3 end 0", "4 end 1")
    found = stamps(tmp_path, *lines)
    assert len(found.overlaps()) == 1
    assert found.called() == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_a_call_that_was_cut_has_no_end_and_overlaps_with_all_after_it(tmp_path):
    found = stamps(tmp_path, "1 setup", "2 begin 0 0/0 a", "9 begin 1 0/0 a", "10 end 1")
    assert [call.ended_ns for call in found.calls()] == [None, 10]
    assert len(found.overlaps()) == 1
    assert (found.times("setup"), found.times("teardown")) == (1, 0)

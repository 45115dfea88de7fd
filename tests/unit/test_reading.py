"""What commands read: ranges with progress, and waiting for open transactions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hapax.operations import reading
from hapax.operations.reading import await_decided, read_ranges, undecided

A, B = ("in", 0), ("in", 1)


class Offsets:
    """Answers with one last stable offset after another for the first partition."""

    def __init__(self, *stable: int) -> None:
        self._stable = list(stable)

    def high_watermarks(self, _: object) -> dict[tuple[str, int], int]:
        return {A: 9, B: 4}

    def last_stable(self, _: object) -> dict[tuple[str, int], int]:
        first = self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]
        return {A: first, B: 4}


def client(*stable: int) -> Any:
    return cast("Any", Offsets(*stable))


def test_only_partitions_whose_end_readers_do_not_reach_are_undecided():
    assert undecided(client(5), [A, B]) == {A: (5, 9)}
    assert undecided(client(9), [A, B]) == {}


def test_it_waits_until_all_that_was_begun_is_decided():
    waits: list[None] = []
    ends, behind = await_decided(client(5, 7, 11), [A, B], 60_000, lambda: waits.append(None))
    assert (ends, behind, len(waits)) == ({A: 11, B: 4}, {}, 2)


def test_after_the_time_of_a_transaction_it_names_what_is_still_open(monkeypatch):
    monkeypatch.setattr("hapax.operations.reading.MARGIN_S", 0.0)
    monkeypatch.setattr("hapax.operations.reading.REST_S", 0.0)
    ends, behind = await_decided(client(7), [A, B], 0, lambda: None)
    assert (ends[A], behind) == (7, {A: (7, 9)})


class Chunks:
    """Stands for the reader of ranges."""

    def __init__(self, _settings: object, isolation: str) -> None:
        assert isolation == "read_uncommitted"

    def read(self, spans: dict[tuple[str, int], tuple[int, int]]) -> Any:
        assert set(spans) == {A, B}
        yield ["a", "b"]
        yield ["c"]


@pytest.mark.parametrize(
    ("every_s", "shown"),
    [(-1.0, ["reading: 2 of at most 7", "reading: 3 of at most 7"]), (60.0, [])],
)
def test_long_reading_shows_how_far_it_is_and_short_reading_nothing(every_s, shown, monkeypatch):
    monkeypatch.setattr(reading, "RangeReader", Chunks)
    monkeypatch.setattr(reading, "TELL_S", every_s)
    lines: list[str] = []
    spans = {A: (2, 9), B: (4, 3)}
    found = read_ranges(cast("Any", None), spans, lines.append, "reading", "read_uncommitted")
    assert [len(chunk) for chunk in found] == [2, 1]
    assert lines == shown

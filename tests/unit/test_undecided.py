"""Waiting for open transactions ends when they are decided, or when they never will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hapax.operations.undecided import await_decided, undecided

if TYPE_CHECKING:
    import pytest

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


def test_only_partitions_whose_end_readers_do_not_reach_are_undecided() -> None:
    assert undecided(client(5), [A, B]) == {A: (5, 9)}
    assert undecided(client(9), [A, B]) == {}


def test_it_waits_until_all_that_was_begun_is_decided() -> None:
    waits: list[None] = []
    ends, behind = await_decided(client(5, 7, 11), [A, B], 60_000, lambda: waits.append(None))
    assert (ends, behind, len(waits)) == ({A: 11, B: 4}, {}, 2)


def test_after_the_time_of_a_transaction_it_names_what_is_still_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hapax.operations.undecided.MARGIN_S", 0.0)
    monkeypatch.setattr("hapax.operations.undecided.REST_S", 0.0)
    ends, behind = await_decided(client(7), [A, B], 0, lambda: None)
    assert (ends[A], behind) == (7, {A: (7, 9)})

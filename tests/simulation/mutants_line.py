"""Broken in what waits in the order of its key."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from hapax.core import line_window
from hapax.core.line_calls import Turns
from hapax.core.plan import Planner
from hapax.core.retry_line import RetryLine
from hapax.testing.line_source import MemoryLineSource

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest


def later_records_of_a_key_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turns, "waits", lambda *_values: False)


def inputs_are_taken_before_what_waits_is_read_in(patch: pytest.MonkeyPatch) -> None:
    """Reading in takes a while, and nothing waits for it."""
    read_in, takes = MemoryLineSource._read_in, count()

    def slowly(self: MemoryLineSource) -> None:
        if next(takes) % 4 == 0:
            read_in(self)

    patch.setattr(MemoryLineSource, "_read_in", slowly)
    for name in ("ready", "open"):
        patch.setattr(RetryLine, name, lambda *_values: True)


def the_offset_passes_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    def careless(self: RetryLine, index: int, _done: Collection[int] = ()) -> int | None:
        part = self._parts.get(index)
        return None if part is None else part.position

    patch.setattr(RetryLine, "floor", careless)


def the_end_of_a_wait_is_not_written(patch: pytest.MonkeyPatch) -> None:
    def nothing(*_values: Any) -> None:
        """Write nothing."""

    patch.setattr(Planner, "_end_waits", nothing)


def later_records_of_a_key_have_their_turn_in_a_window(patch: pytest.MonkeyPatch) -> None:
    """Only what waits inside is waited for, not what waits in the topic."""
    patch.setattr(RetryLine, "waiting", lambda *_values: ())
    patch.setattr(RetryLine, "last_is_out", lambda *_values: False)


def a_window_forgets_who_asked_to_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(line_window, "Later", Forgotten)
    patch.setattr(line_window, "Put", Forgotten)


class Forgotten:
    """The type of nothing."""

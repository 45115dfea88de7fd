"""Broken in what a window makes of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hapax.core.call_window import CallQueue, Window
from hapax.engines.batch_runner import WindowRunner

if TYPE_CHECKING:
    import pytest

    from hapax.core.batch_result import Begun
    from hapax.core.ports import Batch


def commits_past_a_gap(patch: pytest.MonkeyPatch) -> None:
    ready = Window.ready

    def jumping(self: Window, records_max: int) -> Any:
        lines = dict(self._lines)
        for where, line in lines.items():
            self._lines[where] = type(line)(call for call in line if call.done) or line
        try:
            return ready(self, records_max)
        finally:
            self._lines.update(lines)

    patch.setattr(Window, "ready", jumping)


def commits_offsets_of_results_that_were_not_produced(patch: pytest.MonkeyPatch) -> None:
    ready = Window.ready

    def eager(self: Window, records_max: int) -> tuple[Batch, Begun] | None:
        found = ready(self, records_max)
        if found is not None:
            found[0].next.update({where: self._ends[where] for where in found[0].first})
        return found

    patch.setattr(Window, "ready", eager)


def lets_calls_of_one_key_overlap(patch: pytest.MonkeyPatch) -> None:
    made = CallQueue.__init__
    patch.setattr(CallQueue, "__init__", lambda self, _order, most: made(self, "none", most))


def keeps_results_of_a_revoked_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WindowRunner, "forget", lambda _self, _partitions: None)


def forgets_results_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "_known", lambda _self, _where, _record: None)


def puts_back_only_what_was_tried(patch: pytest.MonkeyPatch) -> None:
    give_up = WindowRunner.give_up

    def partly(self: WindowRunner, moved: Any = ()) -> Batch:
        tried = self._current.batch.first
        back = give_up(self, moved)
        back.first = {where: at for where, at in back.first.items() if where in tried}
        return back

    patch.setattr(WindowRunner, "give_up", partly)

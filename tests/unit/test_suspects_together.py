"""Suspects that are called in a process of their own: how many of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hapax.core.forms import load_form
from hapax.core.interrupt import Interrupt
from hapax.core.isolation import Death
from hapax.core.records import Record
from hapax.engines.gathered_calls import GatheredCalls, call_limits, open_transformer
from hapax.settings import load_settings
from hapax.wiring.calls import isolation
from tests.unit.test_settings import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Sequence

WHERE = ("in", 0)
TEN = [Record(*WHERE, offset, None, b"v") for offset in range(10)]


class Noted:
    """Another process, which notes what it is given; it dies over more than one record if told."""

    def __init__(self, *, dies: bool) -> None:
        self.given: list[int] = []
        self._dies = dies

    def call(self, records: Sequence[Record]) -> Any:
        self.given.append(len(records))
        if self._dies and len(records) > 1:
            raise Death("it was ended", hung=False)
        return [()] * len(records)

    def close(self) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize(
    ("transform", "concurrency", "most"),
    [("function", "1", 1), ("function", "3", 3), ("batch", "1", 4), ("coroutine_batch", "2", 8)],
)
def test_a_batch_of_suspects_is_given_away_in_groups_as_large_as_calls_overlap(
    transform, concurrency, most, *, dies
):
    environ = {
        "HAPAX_TRANSFORM": f"tests.kit.calls:{transform}",
        "HAPAX_CALL__CONCURRENCY": concurrency,
        "HAPAX_CALL__RECORDS_MAX": "4",
    }
    settings = load_settings(REQUIRED | environ)
    made = open_transformer(load_form(settings.transform), call_limits(settings))
    apart = isolation(settings, made, on_death=lambda *_: None, on_failure=lambda _: None)
    apart._elsewhere = noted = Noted(dies=dies)
    apart.suspect(WHERE, len(TEN), 1)
    assert apart.apply_all(TEN, Interrupt(), {}) == [()] * len(TEN)
    groups = [min(most, len(TEN) - at) for at in range(0, len(TEN), most)]
    alone = [[group, *[1] * group] if dies and group > 1 else [group] for group in groups]
    assert noted.given == [size for sizes in alone for size in sizes]
    if isinstance(made, GatheredCalls):
        made.close()

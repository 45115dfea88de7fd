"""What all effects of one input record come to, added one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.operations.audit.result import Compare
from hapax.operations.audit.rows import DEAD_SLOT, POISON, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.operations.audit.local_rows import Row


class FoundEffects:
    """Effects of one record, by slot and parts; effects of one slot mean the same.

    effects    how many there are, ``extra`` of them repeat a slot
    outs       slots with outputs; ``dead``: dead letters, 0 or 1
    content    of all outputs together; ``dead_content``: of the dead letter
    mixed      effects of one slot differ
    unchecked  all were made while the claim store was away
    torn       some outputs only, or outputs of different sets
    single     slots with one effect
    waiting    a record of the retry topic stands for it; ``waited``: one did, or does
    lane, at   the last effect
    """

    __slots__ = (
        "at", "content", "dead", "dead_content", "effects", "extra", "lane", "mixed",
        "outs", "parts", "single", "unchecked", "waited", "waiting",
    )  # fmt: skip

    def __init__(self, rows: Iterable[Row]) -> None:
        """Add rows (place, offset, slot, parts, content, unchecked, lane, at), sorted."""
        self.effects = self.extra = self.outs = self.dead = self.content = 0
        self.dead_content: int | None = None
        self.mixed, self.unchecked = False, True
        self.waiting = self.waited = False
        moves: set[int] = set()
        self.lane: int | None = None
        self.at: int | None = None
        self.parts: set[int] = set()
        self.single: set[tuple[int, int]] = set()
        last: tuple[int, int] | None = None
        known: int | None = None
        for _place, _offset, slot, parts, content, unchecked, lane, at in rows:
            if slot < DEAD_SLOT:
                self.waited = True
                self.waiting |= slot == WAITING
                self.extra += parts in moves
                moves.add(parts)
                continue
            self.effects += 1
            self.unchecked = self.unchecked and bool(unchecked)
            if self.lane is None or (lane, at) > (self.lane, self.at):
                self.lane, self.at = lane, at
            if (slot, parts) == last:
                self.extra += 1
                self.single.discard(last)
                if content is not None:
                    self.mixed = self.mixed or known not in {None, content}
                    known = content
                    if slot == DEAD_SLOT:
                        self.dead_content = content
                continue
            last, known = (slot, parts), content
            self.single.add(last)
            self._slot(slot, parts, content)

    def _slot(self, slot: int, parts: int, content: int | None) -> None:
        if slot > DEAD_SLOT:
            self.outs += 1
            self.parts.add(parts)
            self.content ^= content or 0
        else:
            self.dead += 1
            self.dead_content = content

    @property
    def torn(self) -> bool:
        """Whether some of its outputs are not there."""
        return self.outs > 0 and self.parts != {self.outs}


def differs(compare: Compare, found: FoundEffects, due: int | None, content: int | None) -> bool:
    """Whether the effects of a record that has any are not those that are due."""
    if compare is Compare.NONE:
        return False
    if found.outs and due is not None and due != found.outs:
        return True
    if compare is Compare.COUNTS:
        return False
    if found.mixed or content is None:
        return found.mixed
    if found.outs:
        return content != found.content
    wrong = found.dead_content not in {None, content}
    return due == POISON and found.dead > 0 and wrong

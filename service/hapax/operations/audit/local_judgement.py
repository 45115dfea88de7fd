"""Judges inputs against effects in one process: sorted rows, merged record by record.

1. place    effects of records that are not judged are set aside: before the start, beyond the
            end, or at or above the committed offset although they were visible before it was read
2. order    effects of one input partition in one output partition: a running maximum
3. match    full outer merge of inputs and effects by (place, offset)
4. decide   what each record came to, and which anomalies it is
5. ids      records that share an id: one owner has the effects

The Spark engine states the same rules as DataFrames; tests compare the two.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from hapax.operations.audit.local_effects import FoundEffects, differs
from hapax.operations.audit.result import NAMES, Audit, Offence, OutputFindings, Scope, audit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.audit.local_rows import AuditRows, Row
    from hapax.operations.audit.steps import Report

    Key = tuple[int, int]

REPORT_ROWS = 100_000
ROWS_AT_ONCE = 10_000


class LocalJudgement:
    """One audit; call ``result`` once."""

    def __init__(self, rows: AuditRows, scope: Scope, report: Report) -> None:
        self._rows = rows
        self._scope = scope
        self._report = report
        self._counts: dict[int, dict[str, int]] = defaultdict(dict)
        self._examples: dict[str, list[tuple[Key, Offence]]] = {name: [] for name in NAMES}
        self._copies: list[Row] = []
        self._done, self._total = 0, 0

    def result(self, outputs: list[OutputFindings]) -> Audit:
        """Judge everything that was read."""
        self._total = self._rows.count("inputs") + 2 * self._rows.count("effects")
        if self._scope.claimed:
            self._rows.index_ids()
        self._place()
        disordered = _Grouped(self._rows.disordered())
        for key, given, effects in self._matched():
            found = FoundEffects(effects)
            if given is None:
                self._orphaned(key, found)
            else:
                self._decide(key, given, found)
                if given[2] and self._judged(key):
                    self._order(key, found, disordered)
        self._flush(0)
        self._share()
        audit = audit_of(self._scope, self._counts, outputs)
        audit.examples = {
            name: [offence.sentence(name, self._scope) for _key, offence in self._examples[name]]
            for name in (audit.anomalies if self._scope.examples_max else ())
        }
        return audit

    # -- effects by lane ------------------------------------------------------------------

    def _place(self) -> None:
        """Count effects that are not judged, and keep those after one of a later record."""
        highest: dict[Key, Key] = {}
        late: list[Row] = []
        for lane, at, place, offset, slot, parts in self._rows.effects_by_lane():
            self._progress()
            where = self._where(lane, at, place, offset)
            if where:
                name = "orphaned" if where == "nowhere" else where
                offence = Offence(place, offset, lane, at)
                self._add(name, (place, offset), offence)
                continue
            rank, top = (offset, slot), highest.get((lane, place), (-1, -1))
            if rank >= top:
                highest[(lane, place)] = rank
                continue
            late.append((place, offset, slot, parts, lane, at, top[0]))
            if len(late) >= ROWS_AT_ONCE:
                self._rows.add("disordered", late, 7)
                late = []
        self._rows.add("disordered", late, 7)

    def _where(self, lane: int, at: int, place: int, offset: int) -> str:
        """Return why an effect is not judged; nothing where it is."""
        if place < 0:
            return "nowhere"
        bounds = self._scope.inputs[place]
        if offset < bounds.start:
            return "before"
        if offset < bounds.until:
            return ""
        if offset >= (bounds.committed or 0) and at < self._scope.outputs[lane].settled:
            return "ahead"
        return "later"

    # -- record by record -----------------------------------------------------------------

    def _matched(self) -> Iterator[tuple[Key, Row | None, Iterator[Row]]]:
        """Yield each record with its effects, and effects that name no record."""
        effects = _Grouped(row for row in self._rows.effects_by_record() if self._judged(row[:2]))
        for given in self._rows.inputs():
            self._progress()
            key = given[:2]
            while effects.key is not None and effects.key < key:
                yield effects.key, None, effects.take()
            yield key, given, effects.take() if effects.key == key else iter(())
        while effects.key is not None:
            yield effects.key, None, effects.take()

    def _decide(self, key: Key, given: Row, found: FoundEffects) -> None:
        """Count what a record came to; of one whose id others share, the rest is decided later."""
        visible, owner, event_id, due, content, shared = (
            given[2], given[3:5], given[5], given[6], given[7], given[8],
        )  # fmt: skip
        judged = self._judged(key)
        if visible and shared and self._scope.claimed:
            counts = found.effects > 0 and not found.unchecked
            copy = (event_id, *key, *owner, judged, due, found.effects, counts)
            self._copies.append((*copy, found.lane, found.at))
            self._flush(ROWS_AT_ONCE)
        if not judged:
            return
        offence = Offence(*key, found.lane, found.at, found.effects, due)
        if not visible:
            self._add("hidden", key)
            self._add("from_aborted", key, offence, found.effects)
            return
        self._add("records", key)
        self._add("outputs", key, count=found.outs)
        self._add("doubled", key, offence, found.extra + bool(found.outs and found.dead))
        if not found.effects:
            self._effectless(key, due, shared=shared, event_id=event_id)
            return
        self._add("with_outputs" if found.outs else "dead_letters", key)
        if found.unchecked:
            self._add("unchecked", key)
        if not found.outs and due is not None and due >= 0:
            self._add("unexpected_dead", key)
        if found.torn:
            self._add("torn", key, offence)
        elif differs(self._scope.compare, found, due, content):
            self._add("wrong", key, offence)

    def _effectless(
        self, key: Key, due: int | None, *, shared: bool, event_id: bytes | None
    ) -> None:
        if due == 0:
            self._add("filtered", key)
        elif not self._scope.claimed or event_id is None:
            self._without("alone", key, due)
        elif not shared:
            old = self._rows.is_old(event_id[:16])
            self._without("elsewhere" if old else "alone", key, due)

    def _without(self, event: str, key: Key, due: int | None) -> None:
        """Count a record without an effect that was due, or may have been.

        event  alone      no other record has the id, or the record is its owner
               elsewhere  another record had or will have the effect, or was filtered
               lost       the first of several, and none of them has an effect
        """
        if event == "elsewhere":
            self._add("duplicates", key)
        elif due is None:
            self._add("unexplained", key)
        else:
            self._add("missing" if event == "alone" else "dedup_loss", key, Offence(*key))

    def _orphaned(self, key: Key, found: FoundEffects) -> None:
        offence = Offence(*key, found.lane, found.at, found.effects)
        compacted = self._scope.inputs[key[0]].compacted
        self._add("gone" if compacted else "orphaned", key, offence, found.effects)

    def _order(self, key: Key, found: FoundEffects, disordered: _Grouped) -> None:
        """Count effects out of order; those that are repeated are doubled, and counted as such."""
        while disordered.key is not None and disordered.key < key:
            _exhaust(disordered.take())
        if disordered.key != key:
            return
        for place, offset, slot, parts, lane, at, last in disordered.take():
            if (slot, parts) in found.single:
                offence = Offence(place, offset, lane, at, last=last)
                self._add("out_of_order", key, offence, order=(lane, at))

    # -- records that share an id ---------------------------------------------------------

    def _flush(self, at_least: int) -> None:
        if len(self._copies) >= at_least:
            self._rows.add("copies", self._copies, 11)
            self._copies = []

    def _share(self) -> None:
        """Decide for all records of an id. Two readers in step, for an id may have many records."""
        again = self._rows.copies()
        for _id, copies in groupby(self._rows.copies(), itemgetter(0)):
            number, some, first, owner = 0, False, None, None
            for _event, place, offset, *owned, judged, due, effects, counts, _lane, _at in copies:
                number += 1
                some = some or bool(effects) or not judged or due == 0
                first = first or ((place, offset) if judged else None)
                if counts and (owner is None or tuple(owned) < owner):
                    owner = tuple(owned)
            for _copy in range(number):
                self._shared(next(again), owner, first, some=some)

    def _shared(self, copy: Row, first_owner: Key | None, first: Key | None, *, some: bool) -> None:
        event_id, place, offset, *owned, judged, due, effects, counts, lane, at = copy
        key, owner = (place, offset), tuple(owned)
        if not judged:
            return
        if effects:
            if counts and owner != first_owner:
                self._add("repeated", key, Offence(*key, lane, at, effects, due))
        elif due != 0:
            if owner == first_owner:
                event = "alone"
            elif some or self._rows.is_old(event_id[:16]):
                event = "elsewhere"
            else:
                event = "lost" if key == first else "elsewhere"
            self._without(event, key, due)

    # -- counts ---------------------------------------------------------------------------

    def _judged(self, key: Key) -> bool:
        bounds = self._scope.inputs[key[0]]
        return bounds.start <= key[1] < bounds.until

    def _add(
        self,
        name: str,
        key: Key,
        offence: Offence | None = None,
        count: int = 1,
        *,
        order: Key | None = None,
    ) -> None:
        if not count:
            return
        counts = self._counts[key[0]]
        counts[name] = counts.get(name, 0) + count
        examples = self._examples.get(name)
        if offence is not None and examples is not None:
            insort(examples, (order or key, offence), key=itemgetter(0))
            del examples[self._scope.examples_max :]

    def _progress(self) -> None:
        self._done += 1
        if self._done % REPORT_ROWS == 1:
            self._report("judging (rows)", self._done, self._total)


class _Grouped:
    """Rows that are sorted by their first two columns, taken key by key."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._groups = groupby(rows, itemgetter(0, 1))
        self.key: Key | None = None
        self._rows: Iterator[Row] = iter(())
        self._next()

    def take(self) -> Iterator[Row]:
        """Yield the rows of ``key``, then go to the next one; exhaust it before the next call."""
        yield from self._rows
        self._next()

    def _next(self) -> None:
        self.key, self._rows = next(self._groups, (None, iter(())))


def _exhaust(rows: Iterator[Row]) -> None:
    for _row in rows:
        pass

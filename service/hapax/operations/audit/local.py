"""The audit in this process: ranges are read one after the other, sorted on disk, and merged.

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
from collections import defaultdict, deque
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from hapax.operations.audit.local_rows import AuditRows, GroupedRows
from hapax.operations.audit.result import (
    NAMES,
    Compare,
    IncompleteError,
    Offence,
    OutputFindings,
    audit_of,
)
from hapax.operations.audit.rows import DEAD_SLOT, POISON, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.operations.audit.local_rows import Key, Row
    from hapax.operations.audit.result import Audit, Scope
    from hapax.operations.audit.topics import ReadEffects, ReadInputs, Report

_INPUT_COLUMNS, _EFFECT_COLUMNS = 8, 9
_TOPICS, _READ = 8, 9
"""Columns of what tasks yield: topics that an input's outputs name; set at the end of a range."""
REPORT_ROWS = 100_000
ROWS_AT_ONCE = 10_000


class LocalAudit:
    """Reads and judges in this process; see hapax.operations.audit.topics.Engine."""

    cores = 1

    def __init__(self, report: Report) -> None:
        self._report = report
        self._rows = AuditRows()
        self._named: set[str] = set()
        self._outputs: dict[int, list[int]] = {}

    @classmethod
    @contextmanager
    def opened(cls, report: Report) -> Iterator[LocalAudit]:
        audit = cls(report)
        try:
            yield audit
        finally:
            audit._rows.close()

    def read_inputs(self, task: ReadInputs, what: str) -> None:
        for rows in self._read(task, what):
            self._named.update(*(row[_TOPICS] for row in rows if row[_TOPICS]))
            kept = [row[:_INPUT_COLUMNS] for row in rows if row[_READ] is None]
            self._rows.add("inputs", kept, _INPUT_COLUMNS)

    def read_effects(self, task: ReadEffects, what: str) -> None:
        for rows in self._read(task, what):
            kept = [row[:_EFFECT_COLUMNS] for row in rows if row[_READ] is None]
            self._rows.add("effects", kept, _EFFECT_COLUMNS)
            for row in rows[len(kept) :]:
                known = self._outputs.get(row[0], [0, 0, 0])
                more = zip(row[_READ:], known, strict=True)
                self._outputs[row[0]] = [count + before for count, before in more]

    def _read(self, task: ReadInputs | ReadEffects, what: str) -> Iterator[list[Row]]:
        """Yield rows. Raises IncompleteError unless the last row of each range has ``read`` set."""
        offsets = sum(one.end - one.start for one in task.stretches)
        done = 0
        for number, one in enumerate(task.stretches):
            ended = False
            self._report(what, done, offsets)
            for rows in task(number):
                if rows:
                    ended = rows[-1][_READ] is not None
                    yield rows
                    at = one.end if ended else rows[-1][1]
                    self._report(what, done + at - one.start, offsets)
            if not ended:
                raise IncompleteError(f"{one.topic}/{one.partition} was not read to its end")
            done += one.end - one.start

    def named_topics(self) -> set[str]:
        return self._named

    def first_named(self, lanes: list[int]) -> dict[int, int]:
        return self._rows.first_named(lanes)

    def judge(self, scope: Scope) -> Audit:
        outputs = []
        for lane, bounds in enumerate(scope.outputs):
            records, foreign, hidden = self._outputs.get(lane, (0, 0, 0))
            outputs.append(
                OutputFindings(bounds=bounds, records=records, foreign=foreign, hidden=hidden)
            )
        return LocalJudgement(self._rows, scope, self._report).result(outputs)


# -- Judgement ---------------------------------------------------------------------------------


class LocalJudgement:
    """One audit; call ``result`` once."""

    def __init__(self, rows: AuditRows, scope: Scope, report: Report) -> None:
        self._rows = rows
        self._scope = scope
        self._report = report
        self._found = LocalCounts(scope)
        self._copies: list[Row] = []
        self._done, self._total = 0, 0

    def result(self, outputs: list[OutputFindings]) -> Audit:
        self._total = self._rows.count("inputs") + 2 * self._rows.count("effects")
        if self._scope.claimed:
            self._rows.index_ids()
        self._place()
        disordered = GroupedRows(self._rows.disordered())
        for key, given, effects in self._matched():
            found = FoundEffects(effects)
            if given is None:
                self._orphaned(key, found)
            else:
                self._decide(key, given, found)
                if given[2] and self._judged(key) and not found.waited:
                    self._order(key, found, disordered)
        self._flush(0)
        self._share()
        return self._found.audit(outputs)

    # -- effects by lane ------------------------------------------------------------------

    def _place(self) -> None:
        highest: dict[Key, Key] = {}
        late: list[Row] = []
        for lane, at, place, offset, slot, parts in self._rows.effects_by_lane():
            self._progress()
            where = self._where(lane, at, place, offset)
            if where:
                name = "orphaned" if where == "nowhere" else where
                offence = Offence(place, offset, lane, at)
                self._found.add(name, (place, offset), offence)
                continue
            if slot < DEAD_SLOT:
                continue  # it waits, or waited: in the retry topic nothing has an order
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
        if place < 0:
            return "nowhere"
        bounds = self._scope.inputs[place]
        if offset < bounds.start:
            return "before"
        if offset < bounds.until:
            return ""
        committed = bounds.committed is not None and offset < bounds.committed
        if not committed and at < self._scope.outputs[lane].settled:
            return "ahead"
        return "later"

    # -- record by record -----------------------------------------------------------------

    def _matched(self) -> Iterator[tuple[Key, Row | None, Iterator[Row]]]:
        effects = GroupedRows(
            row for row in self._rows.effects_by_record() if self._judged(row[:2])
        )
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
            present = found.effects + found.waiting  # what waits has its effect still to come
            counts = present > 0 and (found.waiting or not found.unchecked)
            copy = (event_id, *key, *owner, judged, due, present, counts)
            self._copies.append((*copy, found.lane, found.at))
            self._flush(ROWS_AT_ONCE)
        if not judged:
            return
        offence = Offence(*key, found.lane, found.at, found.effects, due)
        if not visible:
            self._found.add("hidden", key)
            self._found.add("from_aborted", key, offence, found.effects)
            return
        self._found.add("records", key)
        self._found.add("outputs", key, count=found.outs)
        self._found.add("doubled", key, offence, found.extra + bool(found.outs and found.dead))
        if not found.effects and found.waiting:
            self._found.add("waiting", key)
            return
        if not found.effects:
            self._effectless(key, due, shared=shared, event_id=event_id)
            return
        self._found.add("with_outputs" if found.outs else "dead_letters", key)
        if found.unchecked:
            self._found.add("unchecked", key)
        if not found.outs and due is not None and due >= 0:
            self._found.add("unexpected_dead", key)
        if found.torn:
            self._found.add("torn", key, offence)
        elif differs(self._scope.compare, found, due, content):
            self._found.add("wrong", key, offence)

    def _effectless(
        self, key: Key, due: int | None, *, shared: bool, event_id: bytes | None
    ) -> None:
        if due == 0:
            self._found.add("filtered", key)
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
            self._found.add("duplicates", key)
        elif due is None:
            self._found.add("unexplained", key)
        else:
            self._found.add("missing" if event == "alone" else "dedup_loss", key, Offence(*key))

    def _orphaned(self, key: Key, found: FoundEffects) -> None:
        offence = Offence(*key, found.lane, found.at, found.effects)
        compacted = self._scope.inputs[key[0]].compacted
        self._found.add("gone" if compacted else "orphaned", key, offence, found.effects)

    def _order(self, key: Key, found: FoundEffects, disordered: GroupedRows) -> None:
        while disordered.key is not None and disordered.key < key:
            deque(disordered.take(), 0)  # records that are not judged
        if disordered.key != key:
            return
        for place, offset, slot, parts, lane, at, last in disordered.take():
            if (slot, parts) in found.single:
                offence = Offence(place, offset, lane, at, last=last)
                self._found.add("out_of_order", key, offence, order=(lane, at))

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
                self._found.add("repeated", key, Offence(*key, lane, at, effects, due))
        elif due != 0:
            if owner == first_owner:
                event = "alone"
            elif some or self._rows.is_old(event_id[:16]):
                event = "elsewhere"
            else:
                event = "lost" if key == first else "elsewhere"
            self._without(event, key, due)

    # -- all ------------------------------------------------------------------------------

    def _judged(self, key: Key) -> bool:
        bounds = self._scope.inputs[key[0]]
        return bounds.start <= key[1] < bounds.until

    def _progress(self) -> None:
        self._done += 1
        if self._done % REPORT_ROWS == 1:
            self._report("judging (rows)", self._done, self._total)


# -- Counts and examples -----------------------------------------------------------------------


class LocalCounts:
    """Grows while records are judged."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._counts: dict[int, dict[str, int]] = defaultdict(dict)
        self._examples: dict[str, list[tuple[Key, Offence]]] = {name: [] for name in NAMES}

    def add(
        self,
        name: str,
        key: Key,
        offence: Offence | None = None,
        count: int = 1,
        *,
        order: Key | None = None,
    ) -> None:
        """Count; keep ``offence`` if it is one of the first by ``order`` (default: by record)."""
        if not count:
            return
        counts = self._counts[key[0]]
        counts[name] = counts.get(name, 0) + count
        examples = self._examples.get(name)
        if offence is not None and examples is not None:
            insort(examples, (order or key, offence), key=itemgetter(0))
            del examples[self._scope.examples_max :]

    def audit(self, outputs: list[OutputFindings]) -> Audit:
        audit = audit_of(self._scope, self._counts, outputs)
        audit.examples = {
            name: [offence.sentence(name, self._scope) for _key, offence in self._examples[name]]
            for name in (audit.anomalies if self._scope.examples_max else ())
        }
        return audit


# -- Effects of one record ---------------------------------------------------------------------


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

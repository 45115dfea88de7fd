"""``hapax audit --state``: the state that the input asks for, against what its changelog has.

1. ids         which of them occur more than once, where duplicates are dropped
2. effects     records that became dead letters have changed nothing, nor have duplicates, which no
               output names
3. calls       the transform runs again, a partition in order, with the state that it keeps itself
4. changelog   folded up to the committed offsets; what later records have changed is not judged

What has expired may be deleted already, or not yet. Late records find it as the changelog says, as
long as compaction leaves its deletion.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.core.record_path import Batch
from hapax.core.results import Undecided
from hapax.engines.overlapping_calls import GatheredCalls, open_transformer, retrying
from hapax.kafka.read.changelog import Changelog
from hapax.operations.audit.result import Compare, StateFindings
from hapax.operations.audit.rows import DEAD_SLOT, EffectRows
from hapax.operations.reading import read_ranges
from hapax.processing.call_window import CallLimits
from hapax.processing.identity import Identity
from hapax.processing.keyed_state import KeyedState, MemoryState, changes_of
from hapax.processing.state import due_ms, parts_of
from hapax.processing.transform import error_of, load_form

if TYPE_CHECKING:
    from hapax.core.ports import Tell
    from hapax.core.records import Record, TopicPartition
    from hapax.core.results import Result
    from hapax.operations.audit.result import Audit
    from hapax.processing.state import Changes
    from hapax.processing.transform import Transformer
    from hapax.settings import Settings

    Spans = dict[TopicPartition, tuple[int, int]]
    Place = tuple[int, int]

PATIENCE_S = 600.0
"""For a schema: no poll waits for an audit."""


def audit_limits(settings: Settings) -> CallLimits:
    """Return how an audit calls the transform: one call at a time, without pauses."""
    patient = msgspec.structs.replace(settings.formats.registry, wait_s=PATIENCE_S)
    return CallLimits(
        attempts_max=settings.retry.attempts,
        retrying=msgspec.structs.replace(retrying(settings), backoff_ms=0),
        output_bytes_max=settings.call.output_bytes_max,
        formats=msgspec.structs.replace(settings.formats, registry=patient),
    )


def judge_state(settings: Settings, found: Audit, tell: Tell, examples_max: int) -> None:
    """Judge the state at the committed offsets, and explain what has no effect by calls in order.

    Raises HapaxError when not all could be read.
    """
    if len(settings.input.topics) > 1:
        problem = (
            "--state: the inputs are several, and no log says in which order their records were"
            " called: hapax audit --no-transform judges all but contents and state"
        )
        raise ConfigurationError(problem)
    found.state = findings = StateFindings()
    spans = _spans(found, findings)
    bounds = [one.bounds for one in found.outputs]
    lanes = {(one.topic, one.partition): (one.low, one.end) for one in bounds}
    with closing(_StateJudge(settings, spans, lanes, tell)) as judge:
        for where in spans:
            judge.judge(where, findings, examples_max)
    for one in found.inputs:
        where = (one.bounds.topic, one.bounds.partition)
        if spans.get(where) == (one.bounds.start, one.bounds.until):
            _explain(found, one.counts, judge.due[where])


def _explain(found: Audit, counts: dict[str, int], due: int) -> None:
    """Say what records without effect came to: as many as the calls give outputs are missing."""
    unknown = counts.get("unexplained", 0)
    there = sum(counts.get(name, 0) for name in ("with_outputs", "torn", "repeated"))
    lacking = min(unknown, max(0, due - there))
    moved = {"unexplained": -unknown, "missing": lacking, "filtered": unknown - lacking}
    for name, count in moved.items():
        counts[name] = counts.get(name, 0) + count
        found.totals[name] += count


def _spans(found: Audit, findings: StateFindings) -> Spans:
    """Return what of the input has changed the state; leave out what cannot be called again."""
    spans: Spans = {}
    for bounds in (one.bounds for one in found.inputs):
        if bounds.compacted:
            why = "the input is compacted"
        elif bounds.low:
            why = f"records below {bounds.low:,} were deleted"
        else:
            until = 0 if bounds.committed is None else bounds.committed
            spans[(bounds.topic, bounds.partition)] = (0, until)
            continue
        name = f"{bounds.topic}/{bounds.partition}"
        findings.remarks.append(f"{name}: its state is not judged: {why}")
    return spans


class _StateJudge:
    """``due``: by partition, how many of its records have outputs by the calls."""

    def __init__(self, settings: Settings, spans: Spans, lanes: Spans, tell: Tell) -> None:
        self._settings, self._spans, self._tell = settings, spans, tell
        self.due = dict.fromkeys(spans, 0)
        self._places = {where: number for number, where in enumerate(spans)}
        self._identity = Identity(settings.dedup.id, inputs=settings.input.topics)
        self._store = MemoryState()
        self._state = KeyedState(self._store, settings.state_topic)
        self._changelog = Changelog(settings)
        form = load_form(settings.transform)
        self._transformer: Transformer | GatheredCalls = open_transformer(
            form, audit_limits(settings), state=self._state
        )
        repeated = self._repeated() if settings.dedup.enabled else set()
        self._skipped = self._without_change(repeated, lanes)

    def close(self) -> None:
        if isinstance(self._transformer, GatheredCalls):
            self._transformer.close()

    def judge(self, where: TopicPartition, findings: StateFindings, examples_max: int) -> None:
        found, later, deleted = self._folded(where)
        newest_ms = self._call_again(where, deleted)
        for entry in sorted(self._store.values.keys() | found.keys()):
            due = self._store.values.get(entry), found.get(entry)
            if entry in later or _equal(*due, newest_ms):
                findings.unjudged += entry in later
                findings.entries += entry not in later
                continue
            findings.entries += 1
            findings.wrong += 1
            if len(findings.examples) < examples_max:
                _partition, key, name = parts_of(entry)
                what = " and ".join("none" if one is None else repr(one)[:99] for one in due)
                findings.examples.append(f"{where[0]}/{where[1]} {key!r} {name!r}: {what}")
        self._store.values.clear()

    def _call_again(self, where: TopicPartition, deleted: dict[int, list[bytes]]) -> int:
        """Bring the store to the committed offset; return the newest timestamp, Unix ms.

        ``deleted``: by the offset of the last record of a batch, what may have expired by then.
        """
        newest_ms, place = 0, self._places[where]
        what = f"calling for {where[0]}/{where[1]}"
        for chunk in read_ranges(self._settings, {where: self._spans[where]}, self._tell, what):
            ends = [at for at, one in enumerate(chunk, 1) if one.record.offset in deleted]
            for start, end in pairwise(sorted({0, *ends, len(chunk)})):
                records = [one.record for one in chunk[start:end]]
                newest_ms = max(newest_ms, *(record.timestamp_ms for record in records))
                preset: dict[int, Result | None] = {
                    index: None
                    for index, one in enumerate(chunk[start:end])
                    if not one.readable or (place, one.record.offset) in self._skipped
                }
                self.due[where] += self._apply(records, preset)
                for entry in deleted.get(records[-1].offset, ()):
                    if _equal(self._store.get(entry), None, newest_ms):
                        self._store.values.pop(entry, None)
        return newest_ms

    def _apply(self, records: list[Record], preset: dict[int, Result | None]) -> int:
        due = 0
        for result in self._transformer.apply_all(Batch(records), Interrupt(), preset):
            if isinstance(result, Undecided):
                raise error_of(result)
            due += isinstance(result, tuple) and bool(result)
            self._store.apply(changes_of(result) or {}, {}, {})
        self._state.clear()
        return due

    def _folded(self, where: TopicPartition) -> tuple[Changes, set[bytes], dict[int, list[bytes]]]:
        """Return what the changelog has at the committed offset, and what changed after it.

        And what was deleted, by the offset of its record.
        """
        found: Changes = {}
        later: set[bytes] = set()
        deleted: dict[int, list[bytes]] = {}
        committed = self._spans[where][1]
        for piece in self._changelog.whole(where):
            found.update(piece.changes)
            for offset, entry in piece.deleted:
                deleted.setdefault(offset, []).append(entry)
            if piece.source >= committed:
                later.update(piece.changes)
        found = {entry: value for entry, value in found.items() if value is not None}
        return found, later, deleted

    def _repeated(self) -> set[Place]:
        seen: dict[bytes, Place] = {}
        repeated: set[Place] = set()
        for chunk in read_ranges(self._settings, self._spans, self._tell, "reading ids"):
            records = [one.record for one in chunk]
            for record, claim in zip(records, self._identity.identify(records).claims, strict=True):
                place = self._places[(record.topic, record.partition)], record.offset
                if claim and (first := seen.setdefault(claim, place)) != place:
                    repeated |= {first, place}
        return repeated

    def _without_change(self, repeated: set[Place], lanes: Spans) -> set[Place]:
        """Return dead letters, and of those with the same id what no effect names."""
        letters = self._settings.dead_letter.topic
        read = {at: span for at, span in lanes.items() if repeated or at[0] == letters}
        effects = EffectRows(
            self._places, [0] * len(self._places), app=self._settings.app, compare=Compare.NONE
        )
        dead: set[Place] = set()
        named: set[Place] = set()
        for chunk in read_ranges(self._settings, read, self._tell, "reading effects"):
            for row in filter(None, (effects.row(one.record) for one in chunk)):
                (dead if row.slot == DEAD_SLOT else named).add((row.place, row.offset))
        return dead | (repeated - named)


def _equal(expected: bytes | None, found: bytes | None, newest_ms: int) -> bool:
    if expected == found:
        return True
    due = None if expected is None else due_ms(expected)
    return found is None and due is not None and due <= newest_ms

"""``hapax audit --state``: the state that the input asks for, against what its changelog has.

1. ids         which of them occur more than once, where duplicates are dropped
2. effects     records that became dead letters have changed nothing, nor have duplicates, which no
               output names
3. calls       the transform runs again, a partition in order, with the state that it keeps itself
4. changelog   folded up to the committed offsets; what later records have changed is not judged

What has expired may be deleted already, or not yet.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hapax.cluster.topic_rules import TopicRules
from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.core.results import Undecided
from hapax.engines.overlapping_calls import GatheredCalls, open_transformer, retrying
from hapax.kafka.admin.topics import topic_settings
from hapax.kafka.properties import producer_properties
from hapax.kafka.read.changelog import Changelog
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.operations.audit.result import Compare, StateFindings
from hapax.operations.audit.rows import DEAD_SLOT, EffectRows
from hapax.operations.reading import read_ranges
from hapax.processing.call_window import CallLimits
from hapax.processing.identity import Identity
from hapax.processing.keyed_state import KeyedState, MemoryState, changes_of
from hapax.processing.state import due_ms, parts_of
from hapax.processing.transform import error_of, load_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.ports import Tell
    from hapax.core.records import Record, TopicPartition
    from hapax.core.results import Result
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


def judged_state(
    settings: Settings, outputs: Sequence[str], tell: Tell, examples_max: int
) -> StateFindings:
    """Judge the state at the committed offsets. Raises HapaxError when not all could be read."""
    if len(settings.input.topics) > 1:
        problem = (
            "--state: the inputs are several, and no log says in which order their records were"
            " called: audit without it"
        )
        raise ConfigurationError([problem])
    findings = StateFindings()
    spans = _spans(settings, findings)
    with closing(_StateJudge(settings, spans, outputs, tell)) as judge:
        for where in spans:
            judge.judge(where, findings, examples_max)
    return findings


def _spans(settings: Settings, findings: StateFindings) -> Spans:
    """Return what of the input has changed the state; leave out what cannot be called again."""
    with closing(BlockingOffsets(settings)) as client:
        places = client.partitions(settings.input.topics)
        lows, committed = client.log_starts(places), client.committed(places)
    told = topic_settings(producer_properties(settings), settings.input.topics)
    spans: Spans = {}
    for where in places:
        if TopicRules.of(told.get(where[0], {})).compacted:
            why = "the input is compacted"
        elif lows[where]:
            why = f"records below {lows[where]:,} were deleted"
        else:
            spans[where] = (0, committed[where] or 0)
            continue
        findings.remarks.append(f"{where[0]}/{where[1]}: its state is not judged: {why}")
    return spans


class _StateJudge:
    def __init__(
        self, settings: Settings, spans: Spans, outputs: Sequence[str], tell: Tell
    ) -> None:
        self._settings, self._spans, self._tell = settings, spans, tell
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
        self._skipped = self._without_change(repeated, outputs)

    def close(self) -> None:
        if isinstance(self._transformer, GatheredCalls):
            self._transformer.close()

    def judge(self, where: TopicPartition, findings: StateFindings, examples_max: int) -> None:
        newest_ms = self._call_again(where)
        found, later = self._folded(where)
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

    def _call_again(self, where: TopicPartition) -> int:
        """Bring the store to the committed offset; return the newest timestamp, Unix ms."""
        newest_ms, place = 0, self._places[where]
        what = f"calling for {where[0]}/{where[1]}"
        for chunk in read_ranges(self._settings, {where: self._spans[where]}, self._tell, what):
            records = [one.record for one in chunk]
            newest_ms = max(newest_ms, *(record.timestamp_ms for record in records))
            preset: dict[int, Result | None] = {
                index: None
                for index, one in enumerate(chunk)
                if not one.readable or (place, one.record.offset) in self._skipped
            }
            self._apply(records, preset)
        return newest_ms

    def _apply(self, records: list[Record], preset: dict[int, Result | None]) -> None:
        for result in self._transformer.apply_all(records, Interrupt(), preset):
            if isinstance(result, Undecided):
                raise error_of(result)
            self._store.apply(changes_of(result) or {}, {}, {})
        self._state.clear()

    def _folded(self, where: TopicPartition) -> tuple[Changes, set[bytes]]:
        """Return what the changelog has at the committed offset, and what changed after it."""
        found: Changes = {}
        later: set[bytes] = set()
        committed = self._spans[where][1]
        for piece in self._changelog.whole(where):
            found.update(piece.changes)
            if piece.source >= committed:
                later.update(piece.changes)
        return {entry: value for entry, value in found.items() if value is not None}, later

    def _repeated(self) -> set[Place]:
        seen: dict[bytes, Place] = {}
        repeated: set[Place] = set()
        for chunk in read_ranges(self._settings, self._spans, self._tell, "reading ids"):
            records = [one.record for one in chunk]
            for record, claim in zip(records, self._identity.identify(records).claims, strict=True):
                place = self._place(record)
                if claim and (first := seen.setdefault(claim, place)) != place:
                    repeated |= {first, place}
        return repeated

    def _without_change(self, repeated: set[Place], outputs: Sequence[str]) -> set[Place]:
        """Return dead letters, and of those with the same id what no effect names."""
        letters = self._settings.dead_letter.topic
        topics = [*(outputs if repeated else ()), *([letters] if letters else ())]
        effects = EffectRows(
            self._places, [0] * len(self._places), app=self._settings.app, compare=Compare.NONE
        )
        dead: set[Place] = set()
        named: set[Place] = set()
        for chunk in read_ranges(self._settings, self._ends(topics), self._tell, "reading effects"):
            for row in filter(None, (effects.row(one.record) for one in chunk)):
                (dead if row.slot == DEAD_SLOT else named).add((row.place, row.offset))
        return dead | (repeated - named)

    def _ends(self, topics: Sequence[str]) -> Spans:
        with closing(BlockingOffsets(self._settings)) as client:
            lanes = client.partitions(dict.fromkeys(topics))
            lows, ends = client.log_starts(lanes), client.last_stable(lanes)
        return {lane: (lows[lane], ends[lane]) for lane in lanes}

    def _place(self, record: Record) -> Place:
        return self._places[(record.topic, record.partition)], record.offset


def _equal(expected: bytes | None, found: bytes | None, newest_ms: int) -> bool:
    if expected == found:
        return True
    due = None if expected is None else due_ms(expected)
    return found is None and due is not None and due <= newest_ms

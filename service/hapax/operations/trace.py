"""Composition of ``hapax trace``: from an id or a place to what became of a record.

1. sightings  the input records that are meant: by place, by an effect's source, or by their id
2. offsets    the group's offsets, once before the outputs are read and once after; before the
              second look a process is asked what it has read and is calling, when one is named
3. effects    outputs and dead letters that name them, visible or still undecided
4. claims     who owns their ids
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.errors import HapaxError
from hapax.core.headers import ID, PART, SOURCE, Retried, coordinates
from hapax.kafka.read.range_reader import RangeReader, undecodable_problem
from hapax.operations.claims import ClaimSources
from hapax.operations.reading import Operation, read_ranges, require_group
from hapax.processing.dead_letters import dead_letter
from hapax.processing.identity import Identity
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hapax.core.ports import Tell
    from hapax.core.records import Coordinates, Progress, Record, TopicPartition
    from hapax.operations.local_process import LocalProcess
    from hapax.settings import Settings

_DIGITS_MAX = 9
ONE_WITHIN_S = 10.0


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An output or a dead letter.

    at       where it is
    source   the input record it came from
    part     ``i/n`` when that record had several outputs, else ""
    error    of a dead letter; "" for outputs
    visible  whether read_committed readers see it; else its transaction is undecided
    """

    at: Coordinates
    source: Coordinates
    event_id: bytes
    part: str
    error: str
    visible: bool


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of a record in ``/status.json``.

    assigned   whether it has the partition
    read       whether it has read the record
    in_call_s  for how long the record has been in a call of the transform; None: it is not
    behind     the first record of its partition that is in a call, and for how long; "": none is
    """

    instance: str
    assigned: bool
    read: bool
    in_call_s: float | None = None
    behind: str = ""

    @classmethod
    def of(cls, status: Mapping[str, Any], at: Coordinates) -> Within:
        """Count what was read since the last query as not read, unless it is in a call."""
        calls = status.get("calls") or {}
        where = f"{at.topic}/{at.partition}/"
        named = {one["record"]: one["seconds"] for one in calls.get("waited_for", ())}
        named |= calls.get("records", {})
        first = min(
            (one for one in named if one.startswith(where)),
            key=lambda one: int(one.removeprefix(where)),
            default="",
        )
        rows = {(row["topic"], row["partition"]): row for row in status.get("partitions", ())}
        row = rows.get((at.topic, at.partition))
        position = None if row is None else row.get("position")
        in_call_s = named.get(str(at))
        return cls(
            instance=str(status.get("instance")),
            assigned=row is not None,
            read=in_call_s is not None or (position is not None and position > at.offset),
            in_call_s=in_call_s,
            behind=f"{first}, which has been in a call for {named[first]} s" if first else "",
        )


class Sighting(msgspec.Struct, kw_only=True):
    """One input record and all that is known of it.

    record    None: deleted by retention, or not written yet
    event_id  b"": it has none, or it is not known
    owners    by source of ids, who owns its claim; None: not asked
    undecodable  why it cannot be decoded, and what to do; empty: it can, or is missing
    within    what the process that was asked says of it; None: none was
    waits     what stands for it in the retry topic, where it waits for a later try
    before, after  the group's offset before and after the outputs were looked at
    """

    at: Coordinates
    record: Record | None
    event_id: bytes
    owners: dict[str, Coordinates] | None
    original: Coordinates | None = None
    before: int | None = None
    after: int | None = None
    effects: list[Effect] = []
    undecodable: str = ""
    waits: Retried | None = None
    within: Within | None = None

    @property
    def committed(self) -> bool:
        return self.after is not None and self.after > self.at.offset

    @property
    def owner(self) -> Coordinates | None:
        own = {self.at, self.original}
        return next((one for one in (self.owners or {}).values() if one not in own), None)


def verdict(one: Sighting) -> str:
    visible = [effect for effect in one.effects if effect.visible]
    hidden = len(one.effects) > len(visible)
    if not one.committed and one.undecodable:
        return f"STUCK: {one.undecodable}"
    if not one.committed:
        return _not_committed(one.within, visible=bool(visible), hidden=hidden)
    if visible:
        return _done(visible)
    if hidden:
        return "its transaction is not decided yet, run trace again"
    return _without_effect(one) if one.waits is None else _waiting(one.waits)


def _not_committed(within: Within | None, *, visible: bool, hidden: bool) -> str:
    if visible:
        return "BROKEN: it has effects, but its offset is not committed; run hapax audit"
    if hidden:
        return "in progress: its effects are in a transaction that is not decided"
    return "waiting: not processed yet" if within is None else _inside(within)


def _inside(within: Within) -> str:
    name = within.instance
    if not within.assigned:
        return f"waiting: not processed yet, and {name} does not have its partition"
    if within.in_call_s is not None:
        return f"waiting for its call, which has taken {within.in_call_s} s so far in {name}"
    if not within.read:
        return f"waiting: {name} had not read it when it last looked at its positions"
    if within.behind:
        return f"waiting for its call or its commit: read by {name}, alongside {within.behind}"
    return f"waiting: read by {name}, whose batch is not committed"


def _waiting(waits: Retried) -> str:
    if not waits.attempt:
        return "waiting for retry of the records before it with the same key: not called yet"
    due = datetime.fromtimestamp(waits.due / 1000, tz=UTC).isoformat(timespec="seconds")
    calls = f"{waits.calls} call{'s' if waits.calls > 1 else ''} so far"
    return f"waiting for retry until {due}: later try {waits.attempt}, {calls}"


def _without_effect(one: Sighting) -> str:
    if one.before is None or one.before <= one.at.offset:
        return "just processed, run trace again"
    if one.owner is not None:
        return f"duplicate: its id belongs to {one.owner}, which was seen first"
    return (
        "no effect was found: filtered by the transform, a duplicate whose claim is over, or its "
        "outputs were deleted or are older than the searched time (--since)"
    )


def _done(visible: list[Effect]) -> str:
    letters = [effect for effect in visible if effect.error]
    outputs = [effect for effect in visible if not effect.error]
    if letters and not outputs and len(letters) == 1:
        return f"dead letter: {letters[0].error}"
    if letters:
        return "BROKEN: more than one effect, a dead letter among them; run hapax audit"
    parts = sorted(effect.part for effect in outputs)
    count = parts[0].partition("/")[2]  # of i/n, or of whatever else a header may hold
    due = int(count) if count.isdecimal() and len(count) < _DIGITS_MAX else 1
    if len(outputs) == due and len(set(parts)) == due:
        return f"done: {due} output{'s' if due > 1 else ''}"
    if len(outputs) < due:
        return f"{len(outputs)} of {due} outputs were found; the others may be outside the search"
    return f"BROKEN: {len(outputs)} outputs of {due}; run hapax audit"


class Trace(Operation):
    """Follows records of one pipeline."""

    def __init__(
        self,
        settings: Settings,
        tell: Tell,
        *,
        more_topics: Sequence[str],
        process: LocalProcess | None = None,
    ) -> None:
        """``process``: is asked what it has of a record that is not committed; None: none is."""
        require_group(settings)
        super().__init__(settings, tell)
        self._process = process
        self._undecodable = ""
        self._identity = Identity(settings.dedup.id, inputs=settings.input.topics)
        self._more_topics = more_topics

    @cached_property
    def _inputs(self) -> list[TopicPartition]:
        return self._client.partitions(self._settings.input.topics)

    @cached_property
    def _outputs(self) -> list[TopicPartition]:
        settings = self._settings
        topics = [settings.output.topic, *self._more_topics, settings.dead_letter.topic]
        return self._client.partitions(dict.fromkeys(filter(None, topics)))

    @cached_property
    def _retry(self) -> list[TopicPartition]:
        retry = self._settings.retry_topic
        return self._client.partitions([retry]) if retry else []

    def place(self, at: Coordinates, since_ms: int | None) -> list[Sighting]:
        where = (at.topic, at.partition)
        if where in {*self._inputs, *self._outputs, *self._retry}:
            end = self._client.high_watermarks([where])[where]
            if at.offset >= end:
                raise HapaxError(
                    f"{at} does not exist: it is beyond the end of {at.topic}/{at.partition}, which"
                    f" is {end}"
                )
        if where in self._inputs:
            sighting = self._sighting(at, self._one(at))
            sighting.undecodable = self._undecodable
            return self._followed([sighting], b"", since_ms)
        if where in self._retry:
            waiting = self._one(at)
            retried = None if waiting is None else Retried.decode(dict(waiting.headers))
            original = None if retried is None else coordinates(retried.of.encode())
            if original is None:
                raise HapaxError(f"{at}: that place holds no record that waits for a later try")
            return self.place(original, since_ms)
        if where not in self._outputs:
            raise HapaxError(f"{at}: no such partition among inputs, outputs and dead letters")
        found = self._one(at, committed=False)
        if found is None:
            raise HapaxError(f"{at}: no record exists: it was deleted, or is a marker")
        effect = _effect(found, visible=True)
        if effect is None:
            raise HapaxError(f"{at}: no record of this pipeline wrote that (no {SOURCE})")
        source = effect.source
        if (source.topic, source.partition) not in self._inputs:
            raise HapaxError(f"{at} came from {source}, which is in no input of this pipeline")
        return self._followed([self._sighting(source, self._one(source))], b"", since_ms)

    def event(self, event_id: bytes, since_ms: int) -> list[Sighting]:
        found: list[Sighting] = []
        for chunk in self._read(self._inputs, since_ms, "inputs"):
            ids = self._identity.identify(chunk).ids
            found += [
                self._sighting(record.coordinates, record)
                for record, its_id in zip(chunk, ids, strict=True)
                if its_id == event_id
            ]
        return self._followed(found, event_id, since_ms)

    def _sighting(self, at: Coordinates, record: Record | None) -> Sighting:
        sighting = Sighting(at=at, record=record, event_id=b"", owners=None)
        if record is not None:
            identified = self._identity.identify([record])
            sighting.event_id = identified.ids[0]
            sighting.original = identified.replays.get(0)
        return sighting

    def _followed(
        self, sightings: list[Sighting], event_id: bytes, since_ms: int | None
    ) -> list[Sighting]:
        by_place = {one.at: one for one in sightings}
        before = self._client.committed(self._inputs, stable=False)
        if since_ms is None:
            times_ms = [one.record.timestamp_ms for one in sightings if one.record is not None]
            since_ms = min(times_ms, default=0)
        for effect in self._effects(since_ms):
            if effect.source not in by_place:
                named = event_id and effect.event_id == event_id
                if not named or (effect.source.topic, effect.source.partition) not in before:
                    continue
                by_place[effect.source] = self._sighting(effect.source, None)
            one = by_place[effect.source]
            one.effects = [*one.effects, effect]
            one.event_id = one.event_id or effect.event_id
        self._find_waiting(by_place, since_ms)
        if self._process is not None:
            status = self._process.status_of(self._settings.app)
            for one in by_place.values():
                one.within = Within.of(status, one.at)
        after = self._client.committed(self._inputs, stable=False)
        for one in by_place.values():
            where = (one.at.topic, one.at.partition)
            one.before, one.after = before.get(where), after.get(where)
        self._ask_claims(list(by_place.values()))
        return sorted(by_place.values(), key=lambda one: one.at)

    def _find_waiting(self, by_place: dict[Coordinates, Sighting], since_ms: int) -> None:
        if not self._retry:
            return
        passed = self._client.committed(self._retry, stable=False)
        for chunk in self._read(self._retry, since_ms, "the retry topic"):
            for record in chunk:
                headers = dict(record.headers)
                retried = Retried.decode(headers)
                if record.offset < (passed[(record.topic, record.partition)] or 0):
                    continue
                if retried is not None and (of := coordinates(retried.of.encode())) in by_place:
                    by_place[of].waits = retried

    def _effects(self, since_ms: int) -> Iterator[Effect]:
        stable = self._client.last_stable(self._outputs)
        for chunk in self._read(self._outputs, since_ms, "outputs", stable):
            yield from filter(None, (_effect(record, visible=True) for record in chunk))
        highs = self._client.high_watermarks(self._outputs)
        undecided = {where: (stable[where], highs[where]) for where in self._outputs}
        for seen in RangeReader(self._settings, "read_uncommitted").read(undecided):
            yield from filter(None, (_effect(record, visible=False) for record, _ in seen))

    def _read(
        self, places: list[TopicPartition], since_ms: int, what: str, ends: Progress | None = None
    ) -> Iterator[list[Record]]:
        ends = ends or self._client.last_stable(places)
        starts = self._client.at_time(places, since_ms)
        spans = {where: (starts.get(where, end), end) for where, end in ends.items()}
        for chunk in read_ranges(self._settings, spans, self._tell, f"reading {what}"):
            yield [seen.record for seen in chunk]

    def _one(self, at: Coordinates, *, committed: bool = True) -> Record | None:
        where = (at.topic, at.partition)
        spans = RangeReader(self._settings, "read_committed" if committed else "read_uncommitted")
        log = self._client.log_offsets([where])[where]
        end = log.last_stable if committed else log.high_watermark
        if not log.log_start <= at.offset < end:
            return None
        first = spans.firsts({where: (at.offset, at.offset + 1)}, ONE_WITHIN_S).get(where)
        if (stuck := spans.undecodable.get(where)) is not None:
            self._undecodable = undecodable_problem(where, stuck)
        return None if first is None else first.record

    def _ask_claims(self, sightings: list[Sighting]) -> None:
        store = claim_store(self._settings)
        if store is None:
            return
        sources = ClaimSources(self._settings.dedup.id)
        with closing(store):
            for one in sightings:
                record = one.record
                made = None if record is None else self._identity.identify([record]).claims[0]
                one.owners = {
                    source: owned.owner
                    for source, claim in sources.candidates(one.event_id).items()
                    if record is None or claim == made
                    if (owned := store.owner(claim)) is not None
                }


def _effect(record: Record, *, visible: bool) -> Effect | None:
    headers = dict(record.headers)
    letter = dead_letter(record)
    source = coordinates(headers.get(SOURCE))
    if source is None:
        return None
    return Effect(
        at=record.coordinates,
        source=source,
        event_id=headers.get(ID) or b"",
        part=(headers.get(PART) or b"").decode("utf-8", "backslashreplace"),
        error="" if letter is None else letter.error or "?",
        visible=visible,
    )

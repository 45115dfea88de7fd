"""Judges a pipeline by its input and its output alone. Pure; knows no engine.

For each event (records that share an id) exactly one of its records may have an effect, and that
effect must be whole: every expected output once, or for poison one dead letter. Where an effect
comes from is read from its ``hapax-source`` header.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.headers import PART, SOURCE, coordinates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hapax.core.records import Coordinates, Record

    Expected = Callable[[bytes], list[bytes]]
    """The values of the outputs of one input value; raises ValueError for poison."""

DEAD = "dead letter"
EXAMPLES_MAX = 5


class DemoRecord(NamedTuple):
    """One input record that a read_committed reader sees."""

    id: bytes
    key: bytes | None
    value: bytes


class DemoEffect(NamedTuple):
    """One record that the pipeline wrote. ``slot``: ``i/n``, or DEAD in the dead-letter topic."""

    where: Coordinates
    source: Coordinates | None
    slot: str
    given: DemoRecord


class DemoInput(NamedTuple):
    """The input as two readers see it."""

    visible: Mapping[Coordinates, DemoRecord]
    aborted: frozenset[Coordinates]


class DemoVerdict(msgspec.Struct):
    """What came of it. The counts below ``duplicates_removed`` must all be 0.

    records_in          input records, without those of aborted transactions
    events              distinct ids among them
    outputs             records in the output topic
    dead_letters        records in the dead-letter topic
    duplicates_removed  input records without effect because another one of their id has it
    lost                events without their whole effect
    doubled_by_repeats  outputs and dead letters too many: the sender sent the event twice
    doubled_by_crashes  outputs and dead letters too many: one record was processed twice
    out_of_order        effects after one of a later record of their input partition
    wrong               effects that are not what their source asks for, or that mix two sources
    from_aborted        effects of records that were never committed
    examples            the first few of each kind, with their ids
    """

    records_in: int = 0
    events: int = 0
    outputs: int = 0
    dead_letters: int = 0
    duplicates_removed: int = 0
    lost: int = 0
    doubled_by_repeats: int = 0
    doubled_by_crashes: int = 0
    out_of_order: int = 0
    wrong: int = 0
    from_aborted: int = 0
    examples: dict[str, list[str]] = msgspec.field(default_factory=dict)

    @property
    def doubled(self) -> int:
        """Effects too many, whatever the cause."""
        return self.doubled_by_repeats + self.doubled_by_crashes

    @property
    def exact(self) -> bool:
        """Whether every event had its effect exactly once, in order, and nothing else did."""
        anomalies = self.lost + self.doubled + self.out_of_order + self.wrong + self.from_aborted
        return anomalies == 0

    def offend(self, kind: str, example: str) -> None:
        """Count one more anomaly, and keep the first few."""
        setattr(self, kind, getattr(self, kind) + 1)
        kept = self.examples.setdefault(kind, [])
        if len(kept) < EXAMPLES_MAX:
            kept.append(example)


def as_given(record: Record) -> DemoRecord:
    """Take from a record what counts."""
    identity = dict(record.headers).get("message-id")
    return DemoRecord(identity or b"", record.key, record.value or b"")


def as_effect(record: Record, *, dead: bool = False) -> DemoEffect:
    """Take from a record that was written what counts."""
    headers = dict(record.headers)
    source = coordinates(headers.get(SOURCE))
    place = headers.get(PART)
    slot = "1/1" if place is None else place.decode("utf-8", "replace")
    slot = DEAD if dead else slot
    return DemoEffect(record.coordinates, source, slot, as_given(record))


def judge(given: DemoInput, effects: Iterable[DemoEffect], expected: Expected) -> DemoVerdict:
    """Compare what was written with what should have been.

    ``effects`` of one partition must come in the order of their offsets.
    """
    verdict = DemoVerdict(records_in=len(given.visible))
    due = _due(given, expected)
    verdict.events = len(due)
    found: dict[bytes, dict[str, list[Coordinates]]] = defaultdict(lambda: defaultdict(list))
    order = _Order(verdict)
    for effect in effects:
        if effect.slot == DEAD:
            verdict.dead_letters += 1
        else:
            verdict.outputs += 1
        source = effect.source
        if source is None:
            verdict.offend("wrong", f"{_named(effect.given.id)} at {effect.where}: no source")
        elif _is_right(effect, source, given, due, verdict):
            order.check(effect, source)
            found[effect.given.id][effect.slot].append(source)
    for identity, slots in due.items():
        _weigh(identity, slots, found[identity], verdict)
    verdict.duplicates_removed = _removed(given, found)
    return verdict


def _due(given: DemoInput, expected: Expected) -> dict[bytes, dict[str, bytes]]:
    """Return by id what each slot must hold."""
    due: dict[bytes, dict[str, bytes]] = {}
    for one in given.visible.values():
        if one.id not in due:
            due[one.id] = _slots(one.value, expected)
    return due


def _slots(value: bytes, expected: Expected) -> dict[str, bytes]:
    try:
        values = expected(value)
    except ValueError:
        return {DEAD: value}
    return {f"{part}/{len(values)}": one for part, one in enumerate(values, start=1)}


def _is_right(
    effect: DemoEffect,
    source: Coordinates,
    given: DemoInput,
    due: Mapping[bytes, Mapping[str, bytes]],
    verdict: DemoVerdict,
) -> bool:
    """Return whether this is what its source asks for; what is not counts as one anomaly."""
    name = f"{_named(effect.given.id)} at {effect.where} from {source}"
    if source in given.aborted:
        verdict.offend("from_aborted", name)
        return False
    asked = given.visible.get(source)
    if asked is None:
        verdict.offend("wrong", f"{name}: no such input record")
        return False
    wanted = DemoRecord(asked.id, asked.key, due[asked.id].get(effect.slot, b""))
    if effect.slot not in due[asked.id] or effect.given != wanted:
        verdict.offend("wrong", f"{name}: unexpected {effect.slot}, id, key or value")
        return False
    return True


def _weigh(
    identity: bytes,
    slots: Iterable[str],
    found: Mapping[str, list[Coordinates]],
    verdict: DemoVerdict,
) -> None:
    """Count one event: each slot wants exactly one effect, all from the same record."""
    missing = [slot for slot in slots if not found.get(slot)]
    if missing:
        verdict.offend("lost", f"{_named(identity)}: no {', '.join(missing)}")
    for slot, sources in found.items():
        first, *more = sources
        for number, source in enumerate(more, start=1):
            kind = "crashes" if source in sources[:number] else "repeats"
            verdict.offend(
                f"doubled_by_{kind}", f"{_named(identity)}: {slot} from {source}, after {first}"
            )
    if not missing and not set.intersection(*map(set, found.values())):
        verdict.offend("wrong", f"{_named(identity)}: parts come from different records")


def _removed(given: DemoInput, found: Mapping[bytes, Mapping[str, list[Coordinates]]]) -> int:
    effective = {
        source for slots in found.values() for sources in slots.values() for source in sources
    }
    return sum(
        1 for where, one in given.visible.items() if where not in effective and found.get(one.id)
    )


class _Order:
    """Whether effects of one input partition keep their order in each partition they reach.

    An effect that was there before is doubled, which is counted already.
    """

    def __init__(self, verdict: DemoVerdict) -> None:
        self._verdict = verdict
        self._last: dict[tuple[str, int, str, int], tuple[int, int]] = {}
        self._seen: set[tuple[Coordinates, str]] = set()

    def check(self, effect: DemoEffect, source: Coordinates) -> None:
        if (source, effect.slot) in self._seen:
            return
        self._seen.add((source, effect.slot))
        lane = (effect.where.topic, effect.where.partition, source.topic, source.partition)
        rank = (source.offset, 0 if effect.slot == DEAD else int(effect.slot.split("/")[0]))
        if rank < self._last.get(lane, rank):
            self._verdict.offend(
                "out_of_order",
                f"{_named(effect.given.id)} at {effect.where} from {source}: after offset "
                f"{self._last[lane][0]}",
            )
        else:
            self._last[lane] = rank


def _named(identity: bytes) -> str:
    return identity.decode("utf-8", "backslashreplace")

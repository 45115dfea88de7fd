"""What became of one input record, judged from what is there. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.headers import Retried
    from hapax.core.records import Coordinates, Record


_DIGITS_MAX = 9


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """An output or a dead letter.

    at       where it stands
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

    instance   its name
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
        """Return what a status says of the record there.

        Positions are those of the last query of brokers: what was read since counts as not read,
        unless it is in a call.
        """
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

    record    None: deleted by retention, or not there yet
    event_id  b"": it has none, or it is not known
    owners    by source of ids, who owns its claim; None: not asked
    undecodable  why it cannot be decoded, and what to do; empty: it can, or it is not there
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
        """Whether the group's offset stands behind it."""
        return self.after is not None and self.after > self.at.offset

    @property
    def owner(self) -> Coordinates | None:
        """Whom its claim belongs to, if to another record than itself or its original."""
        own = {self.at, self.original}
        others = [one for one in (self.owners or {}).values() if one not in own]
        return others[0] if others else None


def verdict(one: Sighting) -> str:
    """Return what became of it, in one sentence."""
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


def _parts_due(part: str) -> int:
    """Return the n of ``i/n``; 1 for whatever else a header may hold."""
    count = part.partition("/")[2]
    return int(count) if count.isdecimal() and len(count) < _DIGITS_MAX else 1


def _done(visible: list[Effect]) -> str:
    letters = [effect for effect in visible if effect.error]
    outputs = [effect for effect in visible if not effect.error]
    if letters and not outputs and len(letters) == 1:
        return f"dead letter: {letters[0].error}"
    if letters:
        return "BROKEN: more than one effect, a dead letter among them; run hapax audit"
    parts = sorted(effect.part for effect in outputs)
    due = _parts_due(parts[0])
    if len(outputs) == due and len(set(parts)) == due:
        return f"done: {due} output{'s' if due > 1 else ''}"
    if len(outputs) < due:
        return f"{len(outputs)} of {due} outputs were found; the others may be outside the search"
    return f"BROKEN: {len(outputs)} outputs of {due}; run hapax audit"

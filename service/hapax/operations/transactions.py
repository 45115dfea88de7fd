"""``hapax transactions``: what the transactional ids of a pipeline have open, and ending it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.cluster.transaction_states import (
    OFFSETS,
    Decision,
    Holder,
    TransactionState,
    blamed,
    decisions,
    explained,
    ours,
    state_of,
)
from hapax.core.errors import ConfigurationError, HapaxError, PreflightError, ProducerDeadError
from hapax.kafka.admin.second_client import RequestError, producers, write_marker
from hapax.kafka.admin.topics import members
from hapax.kafka.connection import addressed
from hapax.kafka.produce.standalone import fence
from hapax.operations.reading import Operation, read_ranges, undecided

if TYPE_CHECKING:
    from hapax.core.records import TopicPartition
    from hapax.operations.reading import Undecided
    from hapax.settings import Settings

LOG = "__transaction_state"


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose end readers cannot reach.

    blamed   the transactional ids that are known to have a transaction open in it
    holders  the producers that have one open in it, of any program, the first offset first; None:
             its leader does not report them. In ``__consumer_offsets``, which all groups share,
             only those of the pipeline that hang
    """

    topic: str
    partition: int
    stable: int
    high: int
    blamed: list[str]
    holders: list[Holder] | None = None

    @property
    def of_offsets(self) -> bool:
        return self.topic == OFFSETS


class _Told(NamedTuple):
    """What coordinators wrote down: the last of each id, and what they decided."""

    states: dict[str, TransactionState]
    decided: dict[tuple[int, TopicPartition], Decision]


class Open(msgspec.Struct, kw_only=True):
    """What was found.

    states  of the ids that can be the pipeline's; None when the coordinators' log may not be read
    reason  why it may not
    untold  why leaders do not report the producers in their partitions; empty: they do
    live    transactional ids of the group's members, each with its host; None: not known
    gaps    partitions of inputs, outputs and dead letters with undecided records, and those where
            a hanging transaction of the pipeline holds back offsets
    unseen  what was not examined, and why
    """

    states: list[TransactionState] | None
    reason: str
    untold: str
    live: dict[str, str] | None
    gaps: list[Gap]
    unseen: list[str]


class Transactions(Operation):
    """The transactions of one pipeline."""

    def look(self) -> Open:
        """Return what is open, and who lives. Raises PreflightError without brokers."""
        gaps, unseen = self._gaps()
        holders, untold = self._holders(list(gaps))
        offsets, committers, dark = self._held_offsets()
        live = members(self._settings)
        try:
            told, reason = self._states(), ""
        except PreflightError as error:
            told, reason = None, "; ".join(error.problems)
        holders, committers = self._still(gaps, holders), self._still(offsets, committers)
        if dark or reason:
            unseen.append(f"{OFFSETS}, for offsets that are held back: {dark or reason}")
        found = [_gap(where, ends, holders, told) for where, ends in gaps.items()]
        held = [_gap(where, ends, committers, told) for where, ends in offsets.items()]
        return Open(
            states=None
            if told is None
            else sorted(
                (one for name, one in told.states.items() if ours(name, self._settings.app)),
                key=lambda one: (not one.undecided, one.transactional_id),
            ),
            reason=reason,
            untold=untold,
            live=live,
            gaps=found + [mine for gap in held if (mine := self._hung(gap)) is not None],
            unseen=unseen,
        )

    def _hung(self, gap: Gap) -> Gap | None:
        """Return the gap with the pipeline's hanging producers alone; None: it has none there."""
        app = self._settings.app
        mine = [
            one
            for one in gap.holders or ()
            if one.hanging and ours(one.transactional_id or "", app)
        ]
        names = [one.transactional_id for one in mine if one.transactional_id]
        return msgspec.structs.replace(gap, holders=mine, blamed=names) if mine else None

    def state(self, transactional_id: str, *, foreign: bool = False) -> TransactionState | None:
        """Raise ConfigurationError for a foreign id unless ``foreign``, HapaxError if unknown."""
        app = self._settings.app
        if not foreign and not ours(transactional_id, app):
            raise ConfigurationError(
                f"{transactional_id} is no transactional id of {app}: its ids begin with {app}- or"
                f" {app}/; see hapax transactions list. --foreign ends that of another program"
            )
        try:
            states = self._states().states
        except PreflightError:
            return None
        if transactional_id not in states:
            raise HapaxError(f"the brokers know no transactional id {transactional_id}")
        return states[transactional_id]

    def abort(self, transactional_id: str) -> list[Gap]:
        """End what the id has open; return what is still undecided in the pipeline's partitions."""
        try:
            fence(self._settings, transactional_id)
        except ProducerDeadError as error:
            raise HapaxError(f"{transactional_id} could not be fenced: {error}") from error
        return self.look().gaps

    def hanging(self, where: TopicPartition, producer_id: int) -> Holder:
        """Raise HapaxError if a coordinator knows it: a marker would tear its transaction."""
        place = f"{where[0]}/{where[1]}"
        found = self.look()
        gap = next((one for one in found.gaps if (one.topic, one.partition) == where), None)
        if gap is None:
            unseen = "".join(f"; not examined: {one}" for one in found.unseen)
            raise HapaxError(
                f"{place}: it has no open transaction, or it is not a topic of this pipeline, or,"
                f" in {OFFSETS}, no transaction of this pipeline hangs there{unseen}"
            )
        if gap.holders is None:
            where_from = f"abort --start-offset {gap.stable}"
            raise HapaxError(
                f"{place}: its producers are not known: {found.untold}; Kafka's own tool rolls back"
                f" the first transaction there: {kafka_tool(self._settings, gap, where_from)}"
            )
        mine = [one for one in gap.holders if one.producer_id == producer_id]
        if not mine:
            others = ", ".join(str(one.producer_id) for one in gap.holders) or "none"
            raise HapaxError(
                f"{place}: its open transactions are of producers {others}, not {producer_id}"
            )
        if mine[0].hanging is None:
            raise HapaxError(f"whether producer {producer_id} hangs is not known: {found.reason}")
        if not mine[0].hanging:
            raise HapaxError(
                f"the transaction of producer {producer_id} is known to its coordinator, and is"
                f" ended there: hapax transactions abort {mine[0].transactional_id}"
            )
        return mine[0]

    def end_hanging(self, one: Holder, *, commit: bool) -> list[Gap]:
        """End a hanging transaction by a marker; return what is still undecided."""
        where = (one.topic, one.partition)
        epochs = {
            (holder.producer_id, holder.start): epoch
            for holder, epoch in producers(self._settings, [where])
        }
        if (one.producer_id, one.start) not in epochs:
            raise HapaxError(f"{where[0]}/{where[1]}: the transaction has just ended by itself")
        epoch = epochs[one.producer_id, one.start]
        write_marker(self._settings, one, epoch, commit=commit)
        return self.look().gaps

    def _holders(self, places: list[TopicPartition]) -> tuple[list[Holder] | None, str]:
        try:
            return [one for one, _ in producers(self._settings, places)] if places else [], ""
        except RequestError as error:
            return None, str(error)

    def _still(self, places: Undecided, holders: list[Holder] | None) -> list[Holder] | None:
        """Leave out who is gone by now: its transaction ended while the states were read."""
        if not holders:
            return holders
        still = {(one.producer_id, one.start) for one in self._holders(list(places))[0] or []}
        return [one for one in holders if (one.producer_id, one.start) in still]

    def _gaps(self) -> tuple[Undecided, list[str]]:
        settings = self._settings
        named = [*settings.input.topics, settings.output.topic, settings.dead_letter.topic]
        topics = dict.fromkeys(filter(None, named))
        absent = self._client.absent(topics)
        # Inputs and outputs may be on two clusters; of one without any the client says why.
        there = [one for one in topics if one not in absent] or topics
        unseen = [f"{one}: it does not exist here or may not be read" for one in sorted(absent)]
        return undecided(self._client, self._client.partitions(there)), unseen

    def _held_offsets(self) -> tuple[Undecided, list[Holder] | None, str]:
        """Return where offsets of any group are undecided, by whom, and why that is not known."""
        try:
            places = undecided(self._client, self._client.partitions([OFFSETS]))
        except PreflightError as error:
            return {}, None, "; ".join(error.problems)
        return places, *self._holders(list(places))

    def _states(self) -> _Told:
        """Read the coordinators' log, which holds a few records for each id and the recent ones."""
        places = self._client.partitions([LOG])
        lows, ends = self._client.log_starts(places), self._client.high_watermarks(places)
        spans = {where: (lows[where], ends[where]) for where in places}
        told = _Told({}, {})
        found = read_ranges(self._settings, spans, self._tell, f"reading {LOG}", "read_uncommitted")
        for chunk in found:
            for seen in chunk:
                state = state_of(seen.record.key, seen.record.value)
                if isinstance(state, str):
                    told.states.pop(state, None)
                elif state is not None:
                    told.states[state.transactional_id] = state
                    told.decided.update(decisions(state))
        return told


def _gap(
    where: TopicPartition, ends: tuple[int, int], holders: list[Holder] | None, told: _Told | None
) -> Gap:
    known = told or _Told({}, {})
    states = list(known.states.values())
    here = [one for one in holders or () if (one.topic, one.partition) == where]
    if told is not None:
        here = [explained(one, states, told.decided) for one in here]
    return Gap(
        topic=where[0],
        partition=where[1],
        stable=ends[0],
        high=ends[1],
        blamed=blamed(where, states),
        holders=None if holders is None else sorted(here, key=lambda one: one.start),
    )


def kafka_tool(settings: Settings, gap: Gap, action: str) -> str:
    """Name a partition by its last stable offset: there the first open transaction begins."""
    name, *more = action.split(" ", 1)
    place = f"--topic {gap.topic} --partition {gap.partition}"
    return addressed(" ".join(["kafka-transactions.sh", name, place, *more]), settings)

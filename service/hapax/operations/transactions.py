"""``hapax transactions``: what the transactional ids of a pipeline have open, and ending it."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError, PreflightError
from hapax.core.transaction_states import (
    Holder,
    TransactionState,
    blamed,
    explained,
    ours,
    state_of,
)
from hapax.kafka.admin.group import members
from hapax.kafka.admin.requests import producers, wire_properties, write_marker
from hapax.kafka.admin.wire import WireError
from hapax.kafka.produce.standalone import fence
from hapax.kafka.read.offset_client import OffsetClient
from hapax.operations.reading import read_ranges, undecided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.core.records import TopicPartition
    from hapax.operations.reading import Tell, Undecided
    from hapax.settings import Settings

LOG = "__transaction_state"


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose end readers cannot reach.

    blamed   the transactional ids that are known to have a transaction open in it
    holders  the producers that have one open in it, whoever they are, the first offset first; None:
             its leader does not report them
    """

    topic: str
    partition: int
    stable: int
    high: int
    blamed: list[str]
    holders: list[Holder] | None = None


class Open(msgspec.Struct, kw_only=True):
    """What was found.

    states  of the ids that can be the pipeline's; None when the coordinators' log may not be read
    reason  why it may not
    untold  why leaders do not report the producers in their partitions; empty: they do
    live    transactional ids of the group's members, each with its host; None: not known
    gaps    partitions of inputs, outputs and dead letters with undecided records
    """

    states: list[TransactionState] | None
    reason: str
    untold: str
    live: dict[str, str] | None
    gaps: list[Gap]


class Transactions:
    """The transactions of one pipeline."""

    def __init__(self, settings: Settings, client: OffsetClient, tell: Tell) -> None:
        self._settings = settings
        self._client = client
        self._tell = tell

    def look(self) -> Open:
        """Return what is open, and who lives. Raises PreflightError without brokers."""
        gaps = self._gaps()
        holders, untold = self._holders(list(gaps))
        live = members(self._settings)
        try:
            known, reason = self._states(), ""
        except PreflightError as error:
            known, reason = None, "; ".join(error.problems)
        states = known or {}
        if holders:
            # Whoever is gone by now has ended its transaction while the states were read.
            still = {(one.producer_id, one.start) for one in self._holders(list(gaps))[0] or []}
            holders = [one for one in holders if (one.producer_id, one.start) in still]
        return Open(
            states=None
            if known is None
            else sorted(
                (one for name, one in states.items() if ours(name, self._settings.app)),
                key=lambda one: (not one.undecided, one.transactional_id),
            ),
            reason=reason,
            untold=untold,
            live=live,
            gaps=[
                Gap(
                    topic=where[0],
                    partition=where[1],
                    stable=stable,
                    high=high,
                    blamed=blamed(where, list(states.values())),
                    holders=None
                    if holders is None
                    else _of(where, holders, None if known is None else list(states.values())),
                )
                for where, (stable, high) in gaps.items()
            ],
        )

    def state(self, transactional_id: str, *, foreign: bool = False) -> TransactionState | None:
        """Return what its coordinator wrote down; None when that may not be read.

        Raises ConfigurationError for an id of another program unless ``foreign`` allows it,
        HapaxError for one that is unknown.
        """
        app = self._settings.app
        if not foreign and not ours(transactional_id, app):
            problem = (
                f"{transactional_id} is no transactional id of {app}: its ids begin with {app}- "
                f"or {app}/;"
                " see hapax transactions list. --foreign ends that of another program"
            )
            raise ConfigurationError([problem])
        try:
            states = self._states()
        except PreflightError:
            return None
        if transactional_id not in states:
            raise HapaxError(f"the brokers know no transactional id {transactional_id}")
        return states[transactional_id]

    def abort(self, transactional_id: str) -> list[Gap]:
        """End what the id has open; return what is still undecided in the pipeline's partitions."""
        fence(self._settings, transactional_id, time)
        return self.look().gaps

    def hanging(self, where: TopicPartition, producer_id: int) -> Holder:
        """Return a producer whose transaction nothing else will end.

        Raises HapaxError for one whose coordinator knows of it: a marker in one partition would
        tear its transaction.
        """
        place = f"{where[0]}/{where[1]}"
        found = self.look()
        gap = next((one for one in found.gaps if (one.topic, one.partition) == where), None)
        if gap is None:
            raise HapaxError(
                f"{place}: it has no open transaction, or it is not a topic of this pipeline"
            )
        if gap.holders is None:
            raise HapaxError(f"{place}: its producers are not known: {found.untold}")
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
        leader, properties = self._client.leaders()[where], wire_properties(self._settings)
        epochs = {
            (holder.producer_id, holder.start): epoch
            for holder, epoch in producers(properties, leader, [where])
        }
        if (one.producer_id, one.start) not in epochs:
            raise HapaxError(f"{where[0]}/{where[1]}: the transaction has just ended by itself")
        epoch = epochs[one.producer_id, one.start]
        write_marker(properties, leader, one, epoch, commit=commit)
        return self.look().gaps

    def _holders(self, places: list[TopicPartition]) -> tuple[list[Holder] | None, str]:
        """Ask the leaders who has transactions open; None and why when they do not answer."""
        found: list[Holder] = []
        by_leader: dict[tuple[str, int], list[TopicPartition]] = {}
        leaders = self._client.leaders() if places else {}
        for where in places:
            if where in leaders:
                by_leader.setdefault(leaders[where], []).append(where)
        try:
            for leader, wanted in by_leader.items():
                properties = wire_properties(self._settings)
                found += [one for one, _ in producers(properties, leader, wanted)]
        except WireError as error:
            return None, str(error)
        return found, ""

    def _gaps(self) -> Undecided:
        settings = self._settings
        topics = [*settings.input.topics, settings.output.topic]
        if settings.dead_letter.topic:
            topics.append(settings.dead_letter.topic)
        places = self._client.partitions(dict.fromkeys(topics))
        return undecided(self._client, places)

    def _states(self) -> dict[str, TransactionState]:
        """Read the coordinators' log, which holds a few records for each id and the recent ones."""
        places = self._client.partitions([LOG])
        lows, ends = self._client.log_starts(places), self._client.high_watermarks(places)
        spans = {where: (lows[where], ends[where]) for where in places}
        states: dict[str, TransactionState] = {}
        found = read_ranges(self._settings, spans, self._tell, f"reading {LOG}", "read_uncommitted")
        for chunk in found:
            for seen in chunk:
                state = state_of(seen.record.key, seen.record.value)
                if isinstance(state, str):
                    states.pop(state, None)
                elif state is not None:
                    states[state.transactional_id] = state
        return states


def _of(
    where: TopicPartition, holders: list[Holder], states: list[TransactionState] | None
) -> list[Holder]:
    here = [one for one in holders if (one.topic, one.partition) == where]
    return sorted((explained(one, states) for one in here), key=lambda one: one.start)


@contextmanager
def transactions(settings: Settings, tell: Tell) -> Iterator[Transactions]:
    """Open them for the block; close the connections afterwards."""
    with closing(OffsetClient(settings)) as client:
        yield Transactions(settings, client, tell)

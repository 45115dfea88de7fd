"""Composition of ``hapax transactions``: what our transactional ids have open, and ending it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from service.adapters.kafka_marks import Marks
from service.adapters.kafka_members import members
from service.adapters.kafka_replay import fence
from service.adapters.kafka_spans import Spans
from service.core.errors import ConfigurationError, HapaxError, PreflightError
from service.core.transaction_states import TransactionState, blamed, ours, state_of
from service.wiring.parts import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from service.core.records import TopicPartition
    from service.settings import Settings

    Tell = Callable[[str], None]

LOG = "__transaction_state"


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose end readers cannot reach.

    blamed  the transactional ids that are known to have a transaction open in it
    """

    topic: str
    partition: int
    stable: int
    high: int
    blamed: list[str]


class Open(msgspec.Struct, kw_only=True):
    """What was found.

    states  of the ids that can be ours; None when the coordinators' log may not be read
    reason  why it may not
    live    transactional ids of the group's members, each with its host; None: not told
    gaps    partitions of inputs, outputs and dead letters with undecided records
    """

    states: list[TransactionState] | None
    reason: str
    live: dict[str, str] | None
    gaps: list[Gap]


class Transactions:
    """The transactions of one pipeline."""

    def __init__(self, settings: Settings, marks: Marks, tell: Tell) -> None:
        self._settings = settings
        self._marks = marks
        self._tell = tell

    def look(self) -> Open:
        """Return what is open, and who lives. Raises PreflightError without brokers."""
        gaps = self._gaps()
        live = members(self._settings)
        try:
            known, reason = self._states(), ""
        except PreflightError as error:
            known, reason = None, "; ".join(error.problems)
        states = known or {}
        return Open(
            states=None
            if known is None
            else sorted(
                (one for name, one in states.items() if ours(name, self._settings.app)),
                key=lambda one: (not one.undecided, one.transactional_id),
            ),
            reason=reason,
            live=live,
            gaps=[
                Gap(
                    topic=where[0],
                    partition=where[1],
                    stable=stable,
                    high=high,
                    blamed=blamed(where, list(states.values())),
                )
                for where, (stable, high) in gaps.items()
            ],
        )

    def state(self, transactional_id: str) -> TransactionState | None:
        """Return what its coordinator wrote down; None when that may not be read.

        Raises ConfigurationError for an id that is not ours, HapaxError for one that is unknown.
        """
        app = self._settings.app
        if not ours(transactional_id, app):
            problem = (
                f"{transactional_id} is no transactional id of {app}: those begin {app}- or {app}/;"
                " see hapax transactions list"
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
        """End what the id has open; return what is still undecided in our partitions."""
        fence(self._settings, transactional_id, SystemClock())
        return self.look().gaps

    def _gaps(self) -> dict[TopicPartition, tuple[int, int]]:
        settings = self._settings
        topics = [*settings.input.topics, settings.output.topic]
        if settings.dead_letter.topic:
            topics.append(settings.dead_letter.topic)
        places = self._marks.partitions(dict.fromkeys(topics))
        highs = self._marks.highs(places)
        # Later than the ends: what a stable offset has passed meanwhile is decided.
        stable = self._marks.stable_ends(places)
        return {
            where: (stable[where], highs[where]) for where in places if stable[where] < highs[where]
        }

    def _states(self) -> dict[str, TransactionState]:
        """Read the coordinators' log, which holds a few records for each id and the recent ones."""
        places = self._marks.partitions([LOG])
        lows, ends = self._marks.lows(places), self._marks.highs(places)
        spans = {where: (lows[where], ends[where]) for where in places}
        total = sum(end - start for start, end in spans.values())
        states: dict[str, TransactionState] = {}
        read = 0
        for chunk in Spans(self._settings, "read_uncommitted").read(spans):
            read += len(chunk)
            self._tell(f"reading {LOG}: {read:,} of at most {total:,}")
            for seen in chunk:
                state = state_of(seen.record.key, seen.record.value)
                if isinstance(state, str):
                    states.pop(state, None)
                elif state is not None:
                    states[state.transactional_id] = state
        return states


@contextmanager
def transactions(settings: Settings, tell: Tell) -> Iterator[Transactions]:
    """Give the one who looks; close its connections afterwards."""
    with closing(Marks(settings)) as marks:
        yield Transactions(settings, marks, tell)

"""Brings the state of partitions to where the group is, while others are worked on.

The producer is registered by then, so that no transaction of a process before this one is open for
long. A partition is read from where its row ends, or from the start of the changelog where the row
is of something else: another cluster, an input that was recreated, or what compaction forgot.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hapax.core.errors import (
    BatchAbortedError,
    PositionLostError,
    PreflightError,
    StateUnreadError,
    StopError,
)
from hapax.core.ports import silent
from hapax.processing.state import AGAIN, ChangelogPiece
from hapax.state_store import StatePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from hapax.core.ports import Source
    from hapax.core.records import Progress, TopicPartition
    from hapax.engines.lifecycle import Process
    from hapax.processing.keyed_state import KeyedState
    from hapax.processing.state import Spans
    from hapax.state_store import LmdbStore

AGAIN_S: Final = 1.0
LOOK_S: Final = 60.0
CLOSE_S: Final = 5.0
MEASURE_S: Final = 1.0
AT_ONCE: Final = 500_000
"""Offsets that are read by one client, of as many partitions as have no more than that."""


class ChangelogReader(Protocol):
    """Raises PreflightError where no broker answers.

    kept_s  how old a store may be: Kafka forgets deleted entries after as long again
    """

    kept_s: float

    def ids(self) -> tuple[str, ...]:
        """Return those of cluster, inputs and changelog, as a store has them."""

    def spans(self, partitions: Collection[int]) -> Spans:
        """Return where those begin and end that answer. StopError: there is no such partition."""

    def read(self, topic: str, spans: Spans) -> Iterator[Mapping[int, ChangelogPiece]]:
        """Yield what committed transactions have changed; the last piece of each ends its span.

        ``topic``: of the input.
        """


class RestoreRequest(NamedTuple):
    """A partition, the offset of the input at which its state must be, and which request it is.

    siblings  the same of the inputs that share its state
    """

    where: TopicPartition
    at: int
    number: int = 0
    siblings: tuple[tuple[TopicPartition, int], ...] = ()

    @property
    def places(self) -> Progress:
        return {self.where: self.at, **dict(self.siblings)}


class Keyed(NamedTuple):
    """State, and what holds partitions until theirs has come."""

    state: KeyedState
    hold: StateHold


class GroupMovedBackError(PositionLostError):
    """The changelog has changes of records that the group has not committed."""

    def __init__(self, where: TopicPartition, at: int, source: int) -> None:
        self.where, self.source = where, source
        super().__init__(
            f"{where[0]}/{where[1]}: the group is at {at}, and the state has"
            f" changes of record {source}: the group was moved back or began again, and the same"
            " records would change it twice. hapax offsets rewind --to earliest --drop-state begins"
            " without state; or take another HAPAX_APP"
        )


class ChangelogLostError(PositionLostError):
    """The changelog was recreated or cut: it lacks changes of records that were committed."""

    def __init__(self, where: TopicPartition, at: int) -> None:
        super().__init__(
            f"{where[0]}/{where[1]}: the changelog was deleted and recreated, or has lost its end"
            f" in an unclean election, and lacks what records below {at} have changed: {AGAIN};"
            f" hapax offsets set {where[0]} latest --drop-state begins at the end with nothing"
        )


Came = int | GroupMovedBackError | PreflightError
"""How many changes were read, or why the state has not come: it can never, or not now."""


class _Tail:
    """What a partition lacks, from its rows to ``end``. ``changes``: how many were read.

    What is read from the oldest of the rows on replaces newer entries only until the end is read.
    """

    def __init__(
        self, wanted: RestoreRequest, rows: dict[TopicPartition, StatePosition], end: int
    ) -> None:
        self.wanted, self.rows, self.end = wanted, rows, end
        self.begin = min(row.changelog for row in rows.values())
        self.changes, self.lacks = 0, end - self.begin

    def take(self, store: LmdbStore, piece: ChangelogPiece) -> Came | None:
        """Put a piece into the store; return what has come where it is the last one."""
        self.changes += len(piece.changes)
        done, own = piece.next >= self.end, self.wanted.where
        found = {own: piece.source} | {(at, own[1]): one for at, one in piece.others.items()}
        sources = {at: max(row.source, found.get(at, -1)) for at, row in self.rows.items()}
        places = self.wanted.places
        ahead = [where for where, at in places.items() if sources[where] >= at]
        for where, row in self.rows.items():
            at, seen_s = (None, row.seen_s) if ahead or not done else (places[where], time.time())
            self.rows[where] = StatePosition(store.of, at, piece.next, sources[where], seen_s)
        store.restore(piece.changes, self.rows)
        if not done:
            return None
        if not ahead:
            return self.changes
        return GroupMovedBackError(ahead[0], places[ahead[0]], sources[ahead[0]])


def restore(
    store: LmdbStore,
    changelog: ChangelogReader,
    requests: Collection[RestoreRequest],
    closing: Callable[[], bool] = bool,
    hurry: Callable[[], bool] = bool,
    *,
    tell: Callable[[TopicPartition, int, int], object] = silent,
) -> Iterator[tuple[RestoreRequest, Came]]:
    """Bring partitions of one topic there; yield each when it is, those that lack least first.

    Raises, between two pieces, InterruptedError when ``closing`` says so. ``hurry``: others wait,
    so what is not begun is left out. ``tell`` hears how many offsets of a partition are read, and
    of how many.
    """
    spans = changelog.spans([one.where[1] for one in requests])
    due: list[_Tail] = []
    for wanted in requests:
        if span := spans.get(wanted.where[1]):
            due.append(_Tail(wanted, _rows(store, changelog, wanted, span), span[1]))
            tell(wanted.where, 0, due[-1].lacks)
        else:
            yield wanted, PreflightError(["the leader of the changelog does not answer"])
    due.sort(key=lambda tail: tail.lacks)
    while due:
        group = _group(due)
        topic = next(iter(group.values())).wanted.where[0]
        lacking = {at: (one.begin, one.end) for at, one in group.items() if one.lacks > 0}
        have = {at: one for at, one in group.items() if at not in lacking}
        read = changelog.read(topic, lacking) if lacking else ()
        for pieces in chain(_ended(have), read, _ended(group)):
            if closing():
                raise InterruptedError
            for number, piece in pieces.items():
                tail = group[number]
                came = tail.take(store, piece)
                tell(tail.wanted.where, piece.next - tail.begin, tail.end - tail.begin)
                if came is not None:
                    yield group.pop(number).wanted, came
        if hurry():
            return


def _ended(group: Mapping[int, _Tail]) -> Iterator[Mapping[int, ChangelogPiece]]:
    """Yield what ends those that lack nothing, or of which no piece did when all is read."""
    yield {number: ChangelogPiece({}, tail.end) for number, tail in group.items()}


def _group(due: list[_Tail]) -> dict[int, _Tail]:
    """Take what is read at once: many short ones, or a long one alone."""
    left, group = AT_ONCE, dict[int, _Tail]()
    while due and (not group or due[0].lacks <= left):
        tail = due.pop(0)
        left -= tail.lacks
        group[tail.wanted.where[1]] = tail
    return group


def _rows(
    store: LmdbStore, changelog: ChangelogReader, wanted: RestoreRequest, span: tuple[int, int]
) -> dict[TopicPartition, StatePosition]:
    """Return the rows, where all are a part of the changelog that only has to be read on.

    Otherwise nothing of them is kept, and the rows are where the changelog begins.
    """
    rows = {}
    for where, at in wanted.places.items():
        row = store.row(where)
        if row is not None and -1 < row.source < at and _lost(row, store.of, span):
            raise ChangelogLostError(where, at)
        if row is None or not _usable(row, store, changelog, span, at):
            store.drop(wanted.where)
            new = StatePosition(store.of, None, span[0], -1, time.time())
            return dict.fromkeys(wanted.places, new)
        rows[where] = row
    return rows


def another_changelog(was: tuple[str, ...], now: tuple[str, ...]) -> bool:
    """Whether ids are of the same cluster and inputs, and of a changelog that was recreated."""
    known = "None" not in (was[-1], now[-1])
    return known and was[:-1] == now[:-1] and was[-1] != now[-1]


def _lost(row: StatePosition, of: tuple[str, ...], span: tuple[int, int]) -> bool:
    return another_changelog(row.of, of) or (row.of == of and row.changelog > span[1])


def _usable(
    row: StatePosition, store: LmdbStore, changelog: ChangelogReader, span: tuple[int, int], at: int
) -> bool:
    """Whether the row is a part of the changelog that only has to be read on."""
    young = 0 <= time.time() - row.seen_s < changelog.kept_s
    return row.of == store.of and young and span[0] <= row.changelog <= span[1] and row.source < at


class StateHold:
    """Holds the partitions whose state is being read, and releases each when it has come."""

    def __init__(
        self, process: Process, state: KeyedState, store: LmdbStore, changelog: ChangelogReader
    ) -> None:
        self._process = process
        self._state = state
        self._store = store
        self._changelog = changelog
        self._waiting: dict[TopicPartition, RestoreRequest] = {}
        self._unseen: set[TopicPartition] = set()
        """What was assigned, and of which it is not known where the group is."""
        self._held: set[TopicPartition] = set()
        self._split: set[TopicPartition] = set()
        """Assigned while another member has one that shares their state."""
        self._number = 0
        self._wanted: SimpleQueue[RestoreRequest] = SimpleQueue()
        self._done: SimpleQueue[tuple[RestoreRequest, tuple[int, float] | StopError]] = (
            SimpleQueue()
        )
        self._read: dict[TopicPartition, tuple[int, int]] = {}
        """How many offsets are read, and of how many, where that has begun."""
        self._measure_s = 0.0
        self._closing = threading.Event()
        self._lost: StopError | None = None
        self._alone = state.together([("", 0)]) == {("", 0)}
        """There is one input."""
        self._thread: threading.Thread | None = None

    def add(self, error: Exception) -> None:
        """Let the partitions of the error wait; they are held by ``attend``."""
        if isinstance(error, StateUnreadError):
            (self._want if self._alone else self.forget)(dict(error.places))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Look again where these are: another member may have come further meanwhile."""
        partitions = self._state.together(partitions)
        self._state.forget(partitions)
        self._unseen.update(partitions)
        for where in partitions:
            self._waiting.pop(where, None)

    def attend(self, source: Source) -> None:
        """Hold again each time: partitions leave and come back. Raises StopError."""
        self._measure()
        while self._waiting and not self._done.empty():
            wanted, came = self._done.get()
            if self._waiting.get(wanted.where) != wanted:
                continue  # it has left since, or is wanted elsewhere
            if isinstance(came, GroupMovedBackError):
                try:
                    self._judge(source, wanted, came)
                except BatchAbortedError:  # no stable answer now: it is judged again
                    self._done.put((wanted, came))
                    raise
            elif isinstance(came, StopError):
                raise came
            else:
                self._release(source, wanted, came)
        if self._unseen:
            self._look(source)
        waiting = self._state.together(self._waiting) | self._split
        for where in sorted(self._held - waiting):  # forgotten while it waited
            source.hold(where, "state", held=False)
        for where in waiting:
            source.hold(where, "state", held=True)
        self._held = waiting
        if self._waiting:
            self._store.refresh()  # or pages that are free would not be used again

    def _measure(self) -> None:
        if self._lost is not None:
            raise self._lost
        now_s = self._process.clock.monotonic()
        if now_s >= self._measure_s:
            self._measure_s = now_s + MEASURE_S
            waiting = self._waiting.keys() | self._split
            restoring = {where: self._read.get(where, (0, None)) for where in waiting}
            self._process.events.state_measured(self._store.figures(restoring))

    def close(self) -> bool:
        """End what is being read; return whether nothing writes to the store any more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        return self._thread is None or not self._thread.is_alive()

    def _look(self, source: Source) -> None:
        """Want the state of what was assigned before its first record comes."""
        self._unseen &= source.assignment()
        places = (self._places if self._alone else self._places_of_all)(source)
        for where, at in places.items():
            was = (source.beside(where).changelog_id or "None",)
            if at and another_changelog(was, self._store.of[-1:]):
                raise ChangelogLostError(where, at)
        self._want(self._state.unread(places))

    def _places(self, source: Source) -> Progress:
        known = source.processed()
        if missing := self._unseen - known.keys():
            committed = source.committed(missing)
            known |= {where: at for where, at in committed.items() if at is not None}
        unseen, self._unseen = self._unseen, set()
        return {where: known[where] for where in sorted(unseen) if where in known}

    def _places_of_all(self, source: Source) -> Progress:
        """Return those that are assigned with all that share their state; hold what lacks some.

        Of an input in which the group has no offset, no record can have changed anything.
        """
        ours = source.assignment()
        split = {at for at in self._unseen if not self._state.together([at]) <= ours}
        whole = self._state.together(self._unseen - split)
        committed = source.committed(whole)
        if new := split - self._split:
            self._process.events.state_awaited(new)
        self._unseen = self._split = split
        return {at: committed[at] or 0 for at in whole}

    def _want(self, places: Progress) -> None:
        new: dict[TopicPartition, Progress] = {}
        for where in sorted(places):
            group = self._state.together([where])
            new.setdefault(min(group), {at: places[at] for at in group})
        known = self._waiting
        new = {at: to for at, to in new.items() if at not in known or known[at].places != to}
        if not new:
            return
        for where, ats in new.items():
            self._number += 1
            siblings = tuple((at, to) for at, to in sorted(ats.items()) if at != where)
            self._waiting[where] = request = RestoreRequest(
                where, ats[where], self._number, siblings
            )
            self._read.pop(where, None)
            self._wanted.put(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="state", daemon=True)
            self._thread.start()
        self._process.events.state_awaited(new.keys())
        self._measure_s = 0.0

    def _judge(self, source: Source, wanted: RestoreRequest, error: GroupMovedBackError) -> None:
        """Raise the error, unless the group has come further meanwhile."""
        at = source.committed([error.where])[error.where]
        if at is None or at <= error.source:
            raise error
        (self._want if self._alone else self.forget)({wanted.where: at})

    def _release(self, source: Source, wanted: RestoreRequest, came: tuple[int, float]) -> None:
        self._process.events.state_restored(wanted.where, *came)
        self._store.refresh()
        self._state.unread(wanted.places)  # from here on it is sure
        for where in wanted.places:
            source.hold(where, "state", held=False)
        del self._waiting[wanted.where]
        self._measure_s = 0.0

    # -- on a thread of its own -------------------------------------------------------------

    def _serve(self) -> None:
        look_s = self._process.clock.monotonic() + LOOK_S
        while not self._closing.is_set():
            if self._process.clock.monotonic() > look_s:
                look_s += LOOK_S
                with suppress(Exception):  # brokers that are away say nothing of it
                    self._look_at_changelog()
            with suppress(Empty):
                found = [self._wanted.get(timeout=AGAIN_S)]
                while not self._wanted.empty():
                    found.append(self._wanted.get())
                wanted = [one for one in found if self._waiting.get(one.where) == one]
                if wanted:
                    self._restore(wanted)

    def _look_at_changelog(self) -> None:
        if another_changelog(self._store.of, self._changelog.ids()):
            self._lost = StopError(f"the changelog was deleted and recreated: {AGAIN}")

    def _restore(self, wanted: Collection[RestoreRequest]) -> None:
        clock, unread = self._process.clock, dict[RestoreRequest, Exception]()
        began_s, left = clock.monotonic(), dict.fromkeys(wanted)
        try:
            for one, came in restore(
                self._store,
                self._changelog,
                wanted,
                self._closing.is_set,
                lambda: not self._wanted.empty(),
                tell=lambda where, *read: self._read.update({where: read}),
            ):
                if isinstance(came, PreflightError):
                    unread[one] = came
                    continue
                del left[one]
                lasted_s = clock.monotonic() - began_s
                done = came if isinstance(came, StopError) else (came, lasted_s)
                self._done.put((one, done))
        except InterruptedError:
            return
        except Exception as error:  # or the partitions would wait without a word
            if isinstance(error, StopError) and not isinstance(error, PreflightError):
                for one in left:
                    self._done.put((one, error))
                return
            unread |= dict.fromkeys(left, error)
        self._again(unread)
        for one in left:
            self._wanted.put(one)

    def _again(self, unread: Mapping[RestoreRequest, Exception]) -> None:
        """Let the others have their turn first."""
        for wanted, error in unread.items():
            self._process.events.state_unread(wanted.where, str(error) or repr(error))
        if unread:
            self._closing.wait(AGAIN_S)

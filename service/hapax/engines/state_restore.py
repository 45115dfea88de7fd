"""Brings the state of partitions to where the group is, while others are worked on.

The producer is registered by then, so that no transaction of a process before this one is open for
long. A partition is read from where its row ends, or from the start of the changelog where the row
is of something else: another cluster, a topic that was recreated, a log that was cut, or a folder
that is older than what compaction keeps of deleted entries.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hapax.core.errors import PositionLostError, PreflightError, StateUnreadError, StopError
from hapax.state.lmdb_store import StatePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from hapax.core.keyed_state import KeyedState
    from hapax.core.ports import Source
    from hapax.core.records import Progress, TopicPartition
    from hapax.core.state import ChangelogPiece
    from hapax.engines.lifecycle import Process
    from hapax.state.lmdb_store import LmdbStore

AGAIN_S: Final = 1.0
CLOSE_S: Final = 5.0


class ChangelogReader(Protocol):
    """Raises PreflightError where no broker answers.

    kept_s  how old a store may be: Kafka forgets deleted entries after as long again
    """

    kept_s: float

    def span(self, partition: int) -> tuple[int, int]:
        """Return where a partition begins and ends. StopError: there is no such partition."""

    def read(self, where: TopicPartition, start: int, end: int) -> Iterator[ChangelogPiece]:
        """Yield what committed transactions have changed."""


class RestoreRequest(NamedTuple):
    """A partition, the offset of the input at which its state must be, and which request it is."""

    where: TopicPartition
    at: int
    number: int = 0


class Restored(NamedTuple):
    """How many changes were read, and how long it took."""

    changes: int
    lasted_s: float


class Keyed(NamedTuple):
    """State, and what holds partitions until theirs has come."""

    state: KeyedState
    hold: StateHold


class GroupMovedBackError(PositionLostError):
    """The changelog has changes of records that the group has not committed."""

    def __init__(self, wanted: RestoreRequest, source: int) -> None:
        self.source = source
        super().__init__(
            f"{wanted.where[0]}/{wanted.where[1]}: the group is at {wanted.at}, and the state has"
            f" changes of record {source}: the group was moved back or began again, and the same"
            " records would change it twice. hapax offsets set TOPIC earliest --drop-state begins"
            " without state; or take another HAPAX_APP"
        )


def restore(
    store: LmdbStore,
    changelog: ChangelogReader,
    wanted: RestoreRequest,
    closing: Callable[[], bool] = bool,
) -> int:
    """Bring one partition there; return how many changes were read.

    Raises GroupMovedBackError: what later records have changed cannot be taken back; and, between
    two pieces, InterruptedError when ``closing`` says so.
    """
    where, at, _number = wanted
    start, end = changelog.span(where[1])
    row = store.row(where)
    if row is None or not _usable(row, store, changelog, (start, end), at):
        store.drop(where)
        row = StatePosition(store.of, None, start, -1, time.time())
    count = 0
    for piece in changelog.read(where, row.changelog, end):
        if closing():
            raise InterruptedError
        count += len(piece.changes)
        source = max(row.source, piece.source)
        row = StatePosition(store.of, None, piece.next, source, row.seen_s)
        store.restore(where, piece.changes, row)
    if row.source >= at:
        raise GroupMovedBackError(wanted, row.source)
    at_end = max(row.changelog, end)
    store.restore(where, {}, StatePosition(store.of, at, at_end, row.source, time.time()))
    return count


def _usable(
    row: StatePosition,
    store: LmdbStore,
    changelog: ChangelogReader,
    span: tuple[int, int],
    at: int,
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
        self._number = 0
        self._wanted: SimpleQueue[RestoreRequest] = SimpleQueue()
        self._done: SimpleQueue[tuple[RestoreRequest, Restored | StopError]] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, error: Exception) -> None:
        """Let the partitions of the error wait; they are held by ``attend``."""
        if isinstance(error, StateUnreadError):
            self._want(dict(error.places))

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Look again where these are: another member may have come further meanwhile."""
        self._state.forget(partitions)
        self._unseen.update(partitions)
        for where in partitions:
            self._waiting.pop(where, None)

    def attend(self, source: Source) -> None:
        """Hold again each time: partitions leave and come back. Raises StopError."""
        if self._unseen:
            self._look(source)
        if not self._waiting:
            return
        while not self._done.empty():
            wanted, came = self._done.get()
            if self._waiting.get(wanted.where) != wanted:
                continue  # it has left since, or is wanted elsewhere
            if isinstance(came, GroupMovedBackError):
                self._judge(source, wanted, came)
            elif isinstance(came, StopError):
                raise came
            else:
                self._release(source, wanted, came)
        for where in self._waiting:
            source.hold(where, "state", held=True)
        self._store.refresh()  # or pages that are free would not be used again

    def close(self) -> bool:
        """End what is being read; return whether nothing writes to the store any more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        return self._thread is None or not self._thread.is_alive()

    def _look(self, source: Source) -> None:
        """Want the state of what was assigned before its first record comes."""
        self._unseen &= source.assignment()
        known = source.processed()
        if missing := self._unseen - known.keys():
            committed = source.committed(missing)
            known |= {where: at for where, at in committed.items() if at is not None}
        placed = {where: known[where] for where in self._unseen if where in known}
        self._unseen.clear()
        self._want(self._state.unread(placed))

    def _want(self, places: Progress) -> None:
        known = self._waiting
        new = {at: to for at, to in places.items() if at not in known or known[at].at != to}
        if not new:
            return
        for where, at in new.items():
            self._number += 1
            self._waiting[where] = request = RestoreRequest(where, at, self._number)
            self._wanted.put(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="state", daemon=True)
            self._thread.start()
        self._process.events.state_awaited(new.keys())

    def _judge(self, source: Source, wanted: RestoreRequest, error: GroupMovedBackError) -> None:
        """Raise the error, unless the group has come further meanwhile."""
        at = source.committed([wanted.where])[wanted.where]
        if at is None or at <= error.source:
            raise error
        self._want({wanted.where: at})

    def _release(self, source: Source, wanted: RestoreRequest, came: Restored) -> None:
        self._process.events.state_restored(wanted.where, *came)
        self._store.refresh()
        self._state.unread({wanted.where: wanted.at})  # from here on it is sure
        source.hold(wanted.where, "state", held=False)
        del self._waiting[wanted.where]

    # -- on a thread of its own -------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                wanted = self._wanted.get(timeout=AGAIN_S)
            except Empty:
                continue
            if self._waiting.get(wanted.where) == wanted:
                self._restore(wanted)

    def _restore(self, wanted: RestoreRequest) -> None:
        began_s = self._process.clock.monotonic()
        try:
            changes = restore(self._store, self._changelog, wanted, self._closing.is_set)
        except InterruptedError:
            return
        except PreflightError as error:
            self._again(wanted, error)
        except StopError as error:
            self._done.put((wanted, error))
        except Exception as error:  # or the partition would wait without a word
            self._again(wanted, error)
        else:
            lasted_s = self._process.clock.monotonic() - began_s
            self._done.put((wanted, Restored(changes, lasted_s)))

    def _again(self, wanted: RestoreRequest, error: Exception) -> None:
        """Let the others have their turn first."""
        self._process.events.state_unread(wanted.where, str(error) or repr(error))
        self._closing.wait(AGAIN_S)
        self._wanted.put(wanted)

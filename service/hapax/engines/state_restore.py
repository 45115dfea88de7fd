"""Brings the state of partitions to where the group is, while others are worked on.

The producer is registered by then, so that no transaction of a process before this one is open for
long. A partition is read from where its row ends, or from the start of the changelog where the row
is of something else: another cluster, a topic that was made again, a folder that is older than what
compaction keeps of deleted entries.
"""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hapax.core.errors import PositionLostError, PreflightError, StateBehindError, StopError
from hapax.state.lmdb_store import Row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hapax.core.keyed_state import KeyedState
    from hapax.core.ports import Source
    from hapax.core.records import Progress, TopicPartition
    from hapax.core.state import Changes
    from hapax.engines.lifecycle import Process
    from hapax.state.lmdb_store import LmdbStore

OLD_S: Final = 12 * 3600.0
"""Half of Kafka's default of delete.retention.ms, for which a deleted entry stays in the log."""
AGAIN_S: Final = 1.0


class Found(Protocol):
    """A piece of the changelog."""

    @property
    def changes(self) -> Changes: ...
    @property
    def next(self) -> int: ...
    @property
    def source(self) -> int: ...


class ChangelogReader(Protocol):
    """Raises PreflightError where no broker answers."""

    def ids(self, topic: str) -> tuple[str, ...]:
        """Return what names the logs."""

    def span(self, partition: int) -> tuple[int, int]:
        """Return where a partition begins and ends."""

    def read(self, partition: int, start: int, end: int) -> Iterator[Found]:
        """Yield committed changes."""


class Wanted(NamedTuple):
    """A partition, and the offset of the input at which its state must be."""

    where: TopicPartition
    at: int


class Restored(NamedTuple):
    """How many changes were read, and how long it took."""

    changes: int
    lasted_s: float


def restore(store: LmdbStore, changelog: ChangelogReader, wanted: Wanted) -> int:
    """Bring one partition there; return how many changes were read.

    Raises PositionLostError when the changelog has changes of later records than the group has
    committed: it was moved back, and what they have changed cannot be taken back.
    """
    where, at = wanted
    of = changelog.ids(where[0])
    start, end = changelog.span(where[1])
    row = store.row(where)
    kept = row is not None and row.of == of and time.time() - row.seen_s < OLD_S
    if row is None or not kept or row.changelog < start or (row.input or 0) > at:
        store.drop(where)
        row = Row(of, None, start, -1, 0.0)
    count = 0
    for piece in changelog.read(where[1], row.changelog, end):
        count += len(piece.changes)
        source = max(row.source, piece.source)
        row = Row(of, None, piece.next, source, time.time())
        store.restore(where, piece.changes, row)
    if row.source >= at:
        store.drop(where)
        place = f"{where[0]}/{where[1]}"
        raise PositionLostError(
            f"{place}: the group is at {at}, and the state has changes of record {row.source}: the"
            " group was moved back or began again, and the same records would change it twice."
            " Take another HAPAX_APP, or delete the changelog to begin without state"
        )
    store.restore(where, {}, Row(of, at, max(row.changelog, end), row.source, time.time()))
    return count


class StateHold:
    """Holds the partitions whose state is being read, and releases each when it has come."""

    def __init__(
        self, process: Process, state: KeyedState, store: LmdbStore, changelog: ChangelogReader
    ) -> None:
        self._process = process
        self._state = state
        self._store = store
        self._changelog = changelog
        self._waiting: Progress = {}
        self._unseen: set[TopicPartition] = set()
        """What was assigned, and of which it is not known where the group is."""
        self._wanted: SimpleQueue[Wanted] = SimpleQueue()
        self._done: SimpleQueue[tuple[Wanted, Restored | StopError]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, error: Exception) -> None:
        """Let the partitions of the error wait; they are held by ``attend``."""
        if isinstance(error, StateBehindError):
            self._want(dict(error.places))

    def _want(self, places: Progress) -> None:
        new = {where: at for where, at in places.items() if self._waiting.get(where) != at}
        if not new:
            return
        self._waiting |= new
        for where, at in new.items():
            self._wanted.put(Wanted(where, at))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="state", daemon=True)
            self._thread.start()
        self._process.events.state_awaited(new.keys())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Look again where these are: another member may have come further meanwhile."""
        self._state.forget(partitions)
        self._unseen.update(partitions)

    def _look(self, source: Source) -> None:
        """Want the state of what was assigned before its first record comes."""
        self._unseen &= source.assignment()
        known = source.processed()
        placed = {where: known[where] for where in self._unseen if where in known}
        self._unseen -= placed.keys()
        self._want(self._state.behind(placed))

    def attend(self, source: Source) -> None:
        """Hold again each time: partitions leave and come back. Raises StopError."""
        if self._unseen:
            self._look(source)
        if not self._waiting:
            return
        while not self._done.empty():
            wanted, came = self._done.get()
            if isinstance(came, StopError):
                raise came
            self._process.events.state_restored(wanted.where, *came)
            if self._waiting.get(wanted.where) == wanted.at:
                del self._waiting[wanted.where]
                source.hold(wanted.where, "state", held=False)
                self._store.refresh()
        for where in self._waiting:
            source.hold(where, "state", held=True)

    # -- on a thread of its own -------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            wanted = self._wanted.get()
            self._done.put((wanted, self._restored(wanted)))

    def _restored(self, wanted: Wanted) -> Restored | StopError:
        began_s = self._process.clock.monotonic()
        while True:
            try:
                changes = restore(self._store, self._changelog, wanted)
                return Restored(changes, self._process.clock.monotonic() - began_s)
            except PreflightError as error:
                self._process.events.state_unread(wanted.where, str(error))
                time.sleep(AGAIN_S)
            except StopError as error:
                return error
            except Exception as error:  # noqa: BLE001 - or the partition would wait without a word
                return StopError(f"the state of {wanted.where} cannot be read: {error!r}")

"""Where each record went: known once its transaction is committed.

What is kept of a call is kept by its receipts: when the caller has dropped them all, and there is
no callback and no future, nothing is remembered and no delivery report is asked for.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from functools import partial
from itertools import takewhile
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from hapax.publish.stored import message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.errors import HapaxError


class Placement(NamedTuple):
    """Where a record is in Kafka."""

    topic: str
    partition: int
    offset: int


class PlacementFuture(Future[Placement]):
    """Resolves when the transaction is committed. Keeps its call alive, which resolves it."""

    call: PublishCall


class PublishCall:
    """The records of one call. ``first``: sequence of the first one, when it is accepted."""

    def __init__(
        self, spool: str, ids: Sequence[bytes | None], callback: Callable[[Receipt], None] | None
    ) -> None:
        self.spool = spool
        self.ids = ids
        self.first = 0
        self.callback = callback
        self.error: HapaxError | None = None
        self.placements: dict[int, Placement] = {}
        self._futures: dict[int, PlacementFuture] = {}
        self._lock = threading.Lock()

    @property
    def after(self) -> int:
        """The sequence that follows its last record."""
        return self.first + len(self.ids)

    def future(self, index: int) -> PlacementFuture:
        with self._lock:
            future = self._futures.get(index)
            if future is None:
                future = self._futures[index] = PlacementFuture()
                future.set_running_or_notify_cancel()  # who gives up cancels nothing
                future.call = self
                if index in self.placements:
                    future.set_result(self.placements[index])
                elif self.error is not None:
                    future.set_exception(self.error)
            return future

    def place(self, placements: Mapping[int, Placement]) -> list[Callable[[], object]]:
        """Take note of where its records are, by sequence; return what informs the caller."""
        here = {
            index: placements[sequence]
            for index, sequence in enumerate(range(self.first, self.after))
            if sequence in placements
        }
        with self._lock:
            self.placements.update(here)
            calls_back: list[Callable[[], object]] = [
                partial(future.set_result, here[index])
                for index, future in self._futures.items()
                if index in here
            ]
        if self.callback is not None:
            calls_back += [partial(self.callback, Receipt(self, index)) for index in here]
        return calls_back

    def fail(self, error: HapaxError) -> list[Callable[[], object]]:
        """Return what wakes those that wait: this process will not know where its records are."""
        with self._lock:
            self.error = error
            return [
                partial(future.set_exception, error)
                for index, future in self._futures.items()
                if index not in self.placements
            ]


class Receipt:
    """An accepted record."""

    __slots__ = ("_call", "_index")

    def __init__(self, call: PublishCall, index: int) -> None:
        self._call = call
        self._index = index

    @property
    def sequence(self) -> int:
        """Its number in the spool, from 1 on."""
        return self._call.first + self._index

    @property
    def message_id(self) -> str:
        """What its header ``message-id`` carries: the caller's id, or ``<spool>/<sequence>``."""
        given = self._call.ids[self._index]
        if given is None:
            given = message_id(self._call.spool, self.sequence)
        return given.decode("utf-8", "backslashreplace")

    @property
    def future(self) -> Future[Placement]:
        """Resolves to topic, partition and offset when its transaction is committed.

        Fails when the publisher ends before: then the record is still in the spool, and a later
        process publishes it.
        """
        return self._call.future(self._index)

    @property
    def placement(self) -> Placement | None:
        """Where it is; None while it is not known to be in Kafka."""
        return self._call.placements.get(self._index)


class Receipts:
    """The calls whose callers still want to know, by the sequence of their first records.

    Callbacks run on a thread of their own, one by one. What they raise is logged.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        # Not of a pool: those are waited for when the interpreter ends, however long one blocks.
        self._thread = threading.Thread(target=self._tell, name="hapax-receipts", daemon=True)
        self._lock = threading.Lock()
        self._calls: WeakValueDictionary[int, PublishCall] = WeakValueDictionary()
        self._called_back: dict[int, PublishCall] = {}

    def add(self, call: PublishCall) -> None:
        """Remember an accepted call. From one thread, in order."""
        with self._lock:
            self._calls[call.first] = call
            if call.callback is not None:
                self._called_back[call.first] = call

    def wanted(self, first: int, until: int) -> list[PublishCall]:
        """Return the calls with records from ``first`` on; forget those with none left."""
        with self._lock:
            calls = [*takewhile(lambda call: call.first < until, self._calls.values())]
            for call in calls:
                if call.after <= first:
                    del self._calls[call.first]
                    self._called_back.pop(call.first, None)
        return [call for call in calls if call.after > first]

    def place(self, calls: Sequence[PublishCall], placements: Mapping[int, Placement]) -> None:
        """Take note of where records of these calls are, and inform their callers."""
        for call in calls:
            self._put(call.place(placements))

    def end(self, error: HapaxError, timeout_s: float) -> None:
        """Wake all that wait: nothing will come. Return when they are, or after this time."""
        with self._lock:
            calls = [*self._calls.values()]
            self._calls.clear()
            self._called_back.clear()
        for call in calls:
            self._put(call.fail(error))
        self._queue.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _put(self, calls_back: Sequence[Callable[[], object]]) -> None:
        with self._lock:
            if calls_back and self._thread.ident is None:
                self._thread.start()
        for each in calls_back:
            self._queue.put(each)

    def _tell(self) -> None:
        while (calls_back := self._queue.get()) is not None:
            try:
                calls_back()
            except BaseException:
                logging.getLogger("hapax.publish").exception("a caller's callback has failed")
            del calls_back

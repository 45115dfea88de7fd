"""From the spool to Kafka: each transaction carries records and how far they reach.

The order at the start is what makes it exact: lock and recover the folder, register the producer,
which ends what a predecessor left and refuses whatever it still sends, read the marker, compare it
with the folder, continue from it. After every doubt the same again: an unknown commit is never
aborted, its marker says what became of it.

The marker is a committed offset (micro_batch.py). Its number is the sequence of the next
record; its metadata names the spool, and the nonce of the open that wrote the record before. Of
two copies of a spool that both continue, each has nonces of its own: the one whose records are not
those in Kafka finds another nonce there than its own.

What is kept of a call is kept by its receipts: when the caller has dropped them all, and there is
no callback and no future, nothing is remembered and no delivery report is asked for.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from itertools import count, islice, takewhile
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from hapax.core import errors
from hapax.core.errors import HapaxError, ProducerDeadError, StopError
from hapax.kafka.produce.micro_batch import MarkedTransaction, TransactionTooLongError, spool_names
from hapax.publish.stored import ReadAhead, message_id, messages
from hapax.spool.folder import SpoolDisagreesError, SpoolFullError
from hapax.spool.spool import FIRST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from hapax.core.errors import HapaxError
    from hapax.core.records import Message
    from hapax.publish.stored import Upcoming
    from hapax.settings import Settings
    from hapax.spool.spool import SpoolStore


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


KEEP_ALIVE_S = 12 * 3600.0
"""Brokers forget offsets of a group that commits nothing for a week (offsets.retention.minutes)."""
REST_MIN_S, REST_MAX_S = 0.1, 2.0
FENCED_MAX = 2
SLOW_S = 1.0
_DOUBTS = (errors.BatchAbortedError, ProducerDeadError, SpoolFullError, TransactionTooLongError)
_log = logging.getLogger("hapax.publish")
_FORM = "hapax-spool1"
_NONE = "-"
_WORDS = 3
WHAT_TO_DO = "Nothing was published. docs/publish.md, section Stops, describes how to continue"


class SpoolMarker(NamedTuple):
    """Everything below ``next`` is in Kafka."""

    next: int
    spool: str
    nonce: bytes

    @property
    def metadata(self) -> str:
        return f"{_FORM} {self.spool} {self.nonce.hex() or _NONE}"

    @classmethod
    def parse(cls, number: int, metadata: str) -> SpoolMarker:
        """Read what was committed; raise SpoolDisagreesError when another program wrote it."""
        words = metadata.split(" ")
        if len(words) != _WORDS or words[0] != _FORM:
            raise SpoolDisagreesError(
                f"the spool's marker was overwritten: it says {number}, {metadata!r}. {WHAT_TO_DO}"
            )
        return cls(number, words[1], b"" if words[2] == _NONE else bytes.fromhex(words[2]))


class Drainer:
    """One thread that publishes what the spool has acknowledged, until it is to end.

    state    ``starting``, ``publishing``, ``waiting`` (for brokers, see ``reason``), ``stopped``
    next     everything below it is in Kafka; 0: not known yet
    problem  what stopped it; nothing is published any more
    """

    def __init__(
        self,
        spool: SpoolStore,
        settings: Settings,
        *,
        id_header: str,
        linger_s: float,
        drained: Callable[[], None],
        resume_at: int | None = None,
        skip_at: Collection[int] = (),
    ) -> None:
        """``drained``: called after each transaction, and when it stops."""
        self._resume_at = resume_at
        self._skip_at = sorted(skip_at)
        self.skipped = 0
        self._spool = spool
        self._settings = settings
        self._ahead = ReadAhead(spool, settings, id_header)
        self._linger_s = linger_s
        self._drained = drained
        self.receipts = Receipts()
        self.state, self.reason = "starting", ""
        self.next = 0
        self.problem: StopError | None = None
        self.checked = threading.Event()
        """Set once folder and marker are compared, or cannot be for now."""
        self._marked: MarkedTransaction | None = None
        self._placed: dict[int, Placement] = {}
        self._left_out: dict[int, str] = {}
        self._reports: dict[int, Callable[[Any, Any], None]] = {}
        self._committed_s = float("-inf")  # a start renews the marker
        self._timeout_s = settings.transaction.timeout_ms / 1000
        self._under_way = 0  # records of a transaction without an outcome
        self._fenced = 0
        self._wake = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="hapax-drainer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def end(self, timeout_s: float) -> None:
        with self._wake:
            self._ending = True
            self._wake.notify_all()
        self._thread.join(timeout_s)

    # -- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        rest_s = REST_MIN_S
        try:
            while not self._ending:
                try:
                    self._publish_all()
                except _DOUBTS as error:
                    reason = self._doubt(error)
                    again_s = min(rest_s * 2, REST_MAX_S)
                    rest_s = REST_MIN_S if self.state == "publishing" else again_s
                    self.state, self.reason = "waiting", reason
                    self.checked.set()
                    with self._wake:
                        if not self._ending:
                            self._wake.wait(rest_s)
        except StopError as error:
            self._stop(error)
        except Exception as error:
            self._stop(StopError(f"the publisher's thread has ended: {error!r}"))
            raise
        finally:
            self._ahead.close()
            if self._marked is not None:
                self._marked.close()
            self.checked.set()
            self._drained()

    def _stop(self, error: StopError) -> None:
        self.state, self.reason, self.problem = "stopped", str(error), error

    def _doubt(self, error: HapaxError) -> str:
        """Return why nothing is published for now; raise what does not pass by itself."""
        size, self._under_way = self._under_way, 0
        transaction = self._marked and self._marked.transaction
        if refusal := transaction and transaction.refusal():
            raise _refused(self._sent_at(self.next, refusal[0]), refusal[1]) from error
        age_s = transaction.age_s if transaction and size else 0.0
        late = age_s >= self._timeout_s  # then brokers end it, and fence its producer
        self._fenced += isinstance(error, ProducerDeadError) and error.fenced and not late
        if self._fenced >= FENCED_MAX:
            raise errors.DuplicateInstanceError(
                f"another process publishes from a copy of spool {self._spool.path}: stop it"
            ) from error
        smaller = self._ahead.pace.fail(size, age_s)
        if not (smaller or late):
            return str(error)
        what = f"the next one holds {self._ahead.pace.records:,}" if smaller else "raise it"
        most = f"of its {self._timeout_s:g} s (HAPAX_TRANSACTION__TIMEOUT)"
        return (
            f"a transaction of {size:,} records failed after {age_s:.1f} s {most}, {what}: {error}"
        )

    def _publish_all(self) -> None:
        topic = self._marker_topic()
        if topic is None:
            return
        self._ahead.forget()
        self._go_on(self._opened(topic))
        self.state, self.reason = "publishing", ""
        self.checked.set()
        while not self._ending:
            self._await_records()
            taken = self._ahead.take(self.next)
            if taken.size or self._due:
                self._publish(taken)

    def _sent_at(self, first: int, index: int = 0) -> int:
        sent = (each for each in count(first) if each not in self._skip_at)
        return next(islice(sent, index, None))

    def _marker_topic(self) -> str | None:
        spool = self._spool
        if spool.meta.topic:
            return spool.meta.topic
        while not self._ending:
            first = self._sent_at(spool.first)
            if rows := spool.read(first, 1, 1):
                return messages(rows[0], "", "")[first - rows[0].first].topic
            self.checked.set()  # a new spool: there is nothing to compare
            with self._wake:
                if spool.next <= first and not self._ending:
                    self._wake.wait()
        return None

    def _opened(self, topic: str) -> MarkedTransaction:
        if self._marked is None:
            output = self._settings.output.model_copy(update={"topic": topic})
            self._marked = MarkedTransaction(
                self._settings.model_copy(update={"output": output}),
                spool_names(self._settings.app, self._spool.meta.id),
                clock=time,
                forward=lambda *_line: None,
                logger=_log,
                watch=lambda _call: nullcontext(),
                placed=self._reports,
            )
        return self._marked

    def _go_on(self, marked: MarkedTransaction) -> None:
        known = self._spool.meta.cluster
        cluster = marked.cluster_id()
        if known is not None and cluster != known:
            raise errors.OtherClusterError(
                f"spool {self._spool.path} publishes to Kafka cluster {known}, and the brokers are"
                f" those of cluster {cluster}. {WHAT_TO_DO}"
            )
        found = marked.opened()
        if found is None:
            self._begin(marked, known)
        else:
            marker = SpoolMarker.parse(*found)
            agree(marker, self._spool)
            self.next = marker.next
        self._resume_at = None
        self._leave_out()
        # It has no name at an end that has just been asked for: the next start settles it.
        if not self._spool.meta.topic and (topic := self._marker_topic()):
            self._spool.settle(cluster or "", topic)
        self._settle()

    def _begin(self, marked: MarkedTransaction, cluster: str | None) -> None:
        """Set it before any record; raise SpoolDisagreesError when it must exist already."""
        if cluster is not None and self._resume_at is None:
            raise SpoolDisagreesError(
                f"the marker of spool {self._spool.path} is gone: it expired while nothing was"
                " published (offsets.retention.minutes of the brokers), or topic"
                f" {self._spool.meta.topic} was recreated. {WHAT_TO_DO}"
            )
        first, spool = FIRST if cluster is None else self._resume_at or FIRST, self._spool
        nonce = spool.nonce_before(first)
        if nonce is None:
            raise SpoolDisagreesError(
                f"resume_at={first}: the spool has records {spool.first} to {spool.next - 1}"
            )
        if cluster is None and (topic := self._marker_topic()) and marked.lacks(topic):
            raise _refused(self._sent_at(first), f"topic {topic} does not exist: create it")
        marked.send(())
        marked.commit(first, SpoolMarker(first, spool.meta.id, nonce).metadata)
        self.next, self._committed_s = first, time.monotonic()

    def _publish(self, taken: Upcoming) -> None:
        assert self._marked is not None
        following = taken.following
        calls = self.receipts.wanted(taken.first, following)
        self._placed.clear()
        wanted = [
            sequence
            for call in calls
            for sequence in range(max(call.first, taken.first), min(call.after, following))
        ]
        nonce = self._spool.nonce_before(following)
        assert nonce is not None
        marker = SpoolMarker(following, self._spool.meta.id, nonce)
        self._under_way, began_s = taken.size, time.monotonic()
        self._marked.send(self._pieces(taken, wanted))
        self._ahead.begin(following)
        self._marked.commit(marker.next, marker.metadata)
        self.receipts.place(calls, self._placed)
        self.next, self._committed_s = following, time.monotonic()
        self._under_way = self._fenced = 0
        self._leave_out()
        taken_s = self._committed_s - began_s
        self._ahead.record_commit(taken, taken_s)
        self.state, self.reason = "publishing", ""
        if taken_s > SLOW_S and following < self._spool.next:
            self.reason = f"a transaction of {taken.size:,} records took {taken_s:.1f} s"
        self._settle()

    def _pieces(self, taken: Upcoming, wanted: list[int]) -> Iterator[list[Message]]:
        """Yield the messages some at a time, and set which of them get a report."""
        begin = taken.first
        for piece in taken.pieces:
            end = begin + len(piece)
            here = wanted[bisect_left(wanted, begin) : bisect_left(wanted, end)]
            self._reports.clear()
            self._reports.update((each - begin, partial(self._delivered, each)) for each in here)
            for skipped in reversed(self._skip_at):  # no record of this process: none has a report
                if begin <= skipped < end:
                    gone = piece.pop(skipped - begin)
                    where = f"topic {gone.topic}, partition {gone.partition}, key {gone.key!r}"
                    self._left_out[skipped] = f"is left out (skip_at): {where}"
            yield piece
            begin = end

    def _leave_out(self) -> None:
        """Say what became of records to be left out, once their place is passed."""
        for sequence in [each for each in self._skip_at if each < self.next]:
            self._skip_at.remove(sequence)
            self.skipped += sequence in self._left_out
            what = self._left_out.pop(sequence, "was passed before: nothing is left out")
            _log.warning("record %d of the spool %s", sequence, what)

    def _settle(self) -> None:
        if not self._ending:  # from then on the folder may be another process's
            self._spool.delete_below(self.next)
        self._drained()

    def _delivered(self, sequence: int, error: object, message: Any) -> None:
        if error is None:
            place = (message.topic(), message.partition(), message.offset())
            self._placed[sequence] = Placement(*place)

    @property
    def _due(self) -> bool:
        """Whether the marker is to be committed again, so that it does not expire."""
        return time.monotonic() - self._committed_s > KEEP_ALIVE_S

    def _await_records(self) -> None:
        with self._wake:
            if not (self._ending or self._due) and self._spool.next <= self.next:
                self._wake.wait(KEEP_ALIVE_S / 10)
            until_s = time.monotonic() + self._linger_s
            while not self._ending and (left_s := until_s - time.monotonic()) > 0:
                self._wake.wait(left_s)


def _refused(sequence: int, why: str) -> StopError:
    return StopError(
        f"record {sequence} of the spool was refused by the brokers: {why}. It and those after it"
        " are safe in the spool: let the topic take it, then open the publisher again; or leave it"
        f" out for good: hapax publish --skip {sequence}, Publisher(…, skip_at={sequence})"
        " (docs/publish.md, section Stops)"
    )


def agree(marker: SpoolMarker, spool: SpoolStore) -> None:
    """Raise SpoolDisagreesError unless the marker can be that of this very spool."""
    why, sent = "", f"records up to {marker.next - 1} are in Kafka"
    if marker.spool != spool.meta.id:
        why = f"the marker is that of spool {marker.spool}, and the folder is {spool.meta.id}"
    elif marker.next > spool.next:
        why = f"{sent}, and the spool ends with {spool.next - 1}: the folder is an old copy"
    elif marker.next < spool.first:
        gone = "the records between are gone, or the marker was moved back"
        why = f"{sent}, and the spool begins with {spool.first}: {gone}"
    elif spool.nonce_before(marker.next) != marker.nonce:
        other = "another copy of the spool has published"
        why = f"record {marker.next - 1} in Kafka is not the one in this folder: {other}"
    if why:
        raise SpoolDisagreesError(f"{why}. {WHAT_TO_DO}")

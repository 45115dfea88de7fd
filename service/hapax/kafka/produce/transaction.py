"""Outputs and offsets in one Kafka transaction: the Transaction port that keeps the promise.

The only caller of the client's transactional methods. Two pieces of state: whether a transaction
is open, and the doubts, which say what made the client send a request twice since begin.

``send_offsets_to_transaction`` ignores its timeout while its group's coordinator is away
(librdkafka #5456, #5511): it was seen to come back with the broker, and not at all. Python cannot
interrupt it, but it need not wait for it: a new producer fences the old one, whatever that does
once its call returns.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, PreflightError, ProducerDeadError, StopError
from hapax.core.ports import IN_DOUBT
from hapax.kafka.errors import (
    CONTENT,
    FORBIDDEN,
    REFUSED,
    Reaction,
    describe,
    is_fenced,
    reaction,
    transactional_error,
)
from hapax.kafka.produce.base import KafkaProducing
from hapax.kafka.properties import SOCKET_TIMEOUT_MS
from hapax.kafka.read.offsets_client import client_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.offset_commit import OffsetCommit
    from hapax.core.record_path import Outputs
    from hapax.kafka.produce.producer import Outbox

HANG_MARGIN_S = 1.0
"""How much longer than its own timeout a call may take before it counts as hanging."""
LOST_S = 1.0
"""How long the offsets may take once a connection was lost, at first; doubled by each that hung.

The client waits for a state change of the coordinator's connection, which a dead broker never makes
(librdkafka #5456, #5511), while a new producer looks the coordinator up. With 6 s for each such
call a killed broker cost 8 to 14 s in 5 of 8 cases, without it 3 to 6 s more than the election.
"""
_LOOK_S = 0.1


class HangingError(Exception):
    """The call did not return in time. Its thread is left to itself, and its client with it."""


class Caller:
    """Makes calls on a thread of its own; one that hangs costs the thread, not the process.

    The thread is a daemon: it may hang in the client and must not keep the process alive.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=_serve, args=(self._calls, self._answers), name="offsets", daemon=True
        )
        self._thread.start()

    def call(
        self,
        method: Callable[..., Any],
        *arguments: object,
        timeout_s: float,
        suspect: Callable[[], bool] = lambda: False,
        suspect_timeout_s: float = 0.0,
    ) -> None:
        """Call and wait; raise what it raises, or HangingError. After that use a new Caller.

        suspect  asked ten times a second while the call runs: once it is true, the call may take
                 another ``suspect_timeout_s`` and no more
        """
        self._calls.put(lambda: method(*arguments))
        began_s = time.monotonic()
        until_s, suspected = began_s + timeout_s, False
        while (left_s := until_s - time.monotonic()) > 0:
            with suppress(queue.Empty):
                error = self._answers.get(timeout=min(_LOOK_S, left_s))
                if error is not None:
                    raise error
                return
            if not suspected and suspect():
                suspected = True
                until_s = min(until_s, time.monotonic() + suspect_timeout_s)
        self.close()
        raise HangingError(f"no return after {time.monotonic() - began_s:.1f} s")

    def close(self) -> None:
        """Let the thread end after the call that it is in."""
        self._calls.put(None)


class OffsetsCaller:
    """Sends a transaction's offsets; a call that hangs leaves its thread to itself."""

    def __init__(self) -> None:
        self._caller: Caller | None = None
        self.hung = 0  # calls that did not return, since the last one that did

    def call(
        self,
        send: Callable[..., Any],
        *arguments: object,
        timeout_s: float,
        lost: Callable[[], bool],
    ) -> None:
        """Call and wait; raise what it raises, or HangingError.

        timeout_s  the last of the arguments, which the client may not keep
        lost       whether a connection was lost: the coordinator may be dead
        """
        self._caller = self._caller or Caller()
        hung, self.hung = self.hung, 0
        try:
            self._caller.call(
                send,
                *arguments,
                timeout_s,
                timeout_s=timeout_s + HANG_MARGIN_S,
                suspect=lost,
                suspect_timeout_s=LOST_S * 2.0**hung,
            )
        except HangingError:
            self._caller, self.hung = None, hung + 1
            raise

    def close(self) -> None:
        if self._caller is not None:
            self._caller.close()


def _serve(
    calls: queue.SimpleQueue[Callable[[], None] | None],
    answers: queue.SimpleQueue[BaseException | None],
) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - passed to the thread that waits
            answers.put(error)
        else:
            answers.put(None)


CALL_TIMEOUT_S = 3.0
"""One blocking call. Resumable ones are repeated until the deadline: so often the clock is read
during a long outage.
"""
ABORT_FLUSH_S = 1.0
RESEND_S = SOCKET_TIMEOUT_MS / 1000 + 1.0
"""A request without an answer is sent again when its time is up; the client looks once a second."""


class KafkaTransaction(KafkaProducing):
    """One transactional producer at a time, rebuilt on demand under the same id."""

    _carries_messages = False

    @cached_property
    def _caller(self) -> OffsetsCaller:
        return OffsetsCaller()

    # -- the producer ---------------------------------------------------------------------

    def open(self) -> Any:
        """Build a producer and fence every older one of this id; return cluster metadata.

        ``init_transactions`` finishes or aborts what the predecessor left, so after this call the
        committed offsets are the truth. Raises ProducerDeadError when brokers do not answer
        within the deadline: call again.
        """
        self._outbox = None  # its destructor sends nothing: the new epoch speaks for the old one
        self.doubts = []
        deadline_s = self._clock.monotonic() + self._deadline_s
        outbox, metadata = self._connect()
        self._meet_cluster(metadata.cluster_id)  # before anything is fenced there
        while (failure := self._init(outbox)) is not None:
            in_time = self._clock.monotonic() < deadline_s and outbox.answered()
            if reaction(failure) is Reaction.AGAIN and in_time:
                continue
            if failure.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise PreflightError(
                    f"HAPAX_TRANSACTION__TIMEOUT={self._properties['transaction.timeout.ms']}ms is"
                    " longer than the brokers' transaction.max.timeout.ms allows: shorten it"
                )
            if failure.code() in REFUSED:
                raise PreflightError(f"the brokers refuse the producer: {describe(failure)}")
            raise ProducerDeadError(
                f"init_transactions: {describe(failure)}", fenced=is_fenced(failure)
            )
        self._outbox = outbox
        return metadata

    def _init(self, outbox: Outbox) -> KafkaError | None:
        with self._watch("init_transactions"):
            try:
                outbox.producer.init_transactions(CALL_TIMEOUT_S)
            except (KafkaException, UnicodeDecodeError) as error:
                return transactional_error(error)
        return None

    def diagnose(self) -> None:
        """Learn before ``open`` which is refused, for a batch that another process saw refused."""
        self._diagnosing = self._sets.alone = self._topics.due = True

    def close(self) -> None:
        """Drop the producer. Nothing is open between batches, so nothing is lost by it."""
        self._caller.close()
        self._outbox = None

    # -- one transaction ------------------------------------------------------------------

    def begin(self) -> None:
        """Refuse in doubt: a late request would be accepted here. ``open`` is the way out."""
        outbox = self._producer()
        if self.doubts:
            raise self._dead(f"begin: {IN_DOUBT} ({self.doubts[0]})")
        outbox.serve()  # lines older than this transaction doubt nothing of it
        outbox.log.begin()
        outbox.begin()
        self._began_s = self._clock.monotonic()
        self._carries_messages = False
        error = self._call(outbox, "begin_transaction")
        if error is not None:
            raise self._dead(f"begin: {describe(error)}", fenced=is_fenced(error))

    def send(self, messages: Outputs) -> None:
        """Hand the outputs over. Not yet durable, not yet visible."""
        outbox = self._producer()
        refusal = self._refusal_of(outbox, messages)
        if refusal is None:
            return
        self._roll_back(outbox)
        if refusal.content:
            raise refusal
        # The producer refuses all since an earlier message of this transaction was refused.
        # Were nothing learned of that one, the batch would come back as it is, without end.
        content, refused = self._learn(outbox, "send", outbox.failures)
        raise BatchAbortedError(str(refusal), refused=refused, content=content) from refusal

    def _refusal_of(self, outbox: Outbox, messages: Outputs) -> BatchAbortedError | None:
        """Hand the outputs over; a refusal is dealt with outside of its handler, see worker.py."""
        try:
            with self._watch("produce"):
                self._carries_messages = self._carries_messages or bool(messages)
                outbox.send(self._topics.admit(messages), reports=self._diagnosing)
        except BatchAbortedError as error:
            return error
        return None

    def send_offsets(self, commit: OffsetCommit) -> None:
        """Add it as its source has just checked it: the broker checks no assignment."""
        outbox = self._producer()
        offsets = list(map(client_offset, commit.offsets))
        deadline_s = self._clock.monotonic() + self._deadline_s
        while True:
            error = self._send_offsets(outbox, offsets, commit.group_metadata)
            if error is None:
                return
            if self._again("send_offsets_to_transaction", error, deadline_s):
                continue
            self._fail(outbox, "send_offsets", error, resolved=True)

    def _send_offsets(
        self, outbox: Outbox, offsets: list[TopicPartition], member: bytes
    ) -> KafkaError | None:
        """Make the one call that may never return, on a thread that can be abandoned."""
        send = outbox.producer.send_offsets_to_transaction
        # A lost request is sent again inside, once the socket's timeout has been noticed; what
        # takes longer sits on a dead coordinator, and a new producer finds the living one.
        timeout_s = min(self._deadline_s, RESEND_S)

        def lost() -> bool:
            outbox.serve()  # the client's lines about connections arrive through poll
            return outbox.log.disconnected or outbox.cut_off()

        def call(*arguments: object) -> None:
            self._caller.call(send, *arguments, timeout_s=timeout_s, lost=lost)

        try:
            return self._try(outbox, "send_offsets_to_transaction", call, offsets, member)
        except HangingError as hanging:
            raise self._dead(f"send_offsets hangs: {hanging}") from hanging

    def commit(self) -> None:
        """Return only when certain; after a timeout repeat the call, or take a new producer."""
        outbox = self._producer()
        deadline_s = self._clock.monotonic() + self._deadline_s
        while True:
            error = self._call(outbox, "commit_transaction", CALL_TIMEOUT_S)
            if error is None:
                break
            if self._again("commit_transaction", error, deadline_s):
                continue
            if reaction(error) is Reaction.AGAIN:
                raise self._dead(f"commit outcome unknown: {describe(error)}")
            self._fail(outbox, "commit", error, resolved=False)
        self.doubts = outbox.log.end()
        if not self._carries_messages:
            return  # offsets alone (ends, marks of suspects) say nothing of refused messages
        self._diagnosing = self._carries_messages = False
        if self._sets.accept():
            self.doubts.append("commit: messages were sent one by one, sets come next")

    def abort(self) -> None:
        """Make none of it visible. Raises ProducerDeadError when that is not certain."""
        outbox = self._producer()
        # An abort right after the first produce can overtake its registration and kill the
        # producer (librdkafka #4849): let what is under way arrive first.
        outbox.await_deliveries(ABORT_FLUSH_S)
        deadline_s = self._clock.monotonic() + self._deadline_s
        while True:
            error = self._call(outbox, "abort_transaction", CALL_TIMEOUT_S)
            if error is None:
                break
            if self._again("abort_transaction", error, deadline_s):
                continue
            raise self._dead(f"abort: {describe(error)}", fenced=is_fenced(error))
        self.doubts = outbox.log.end()

    # -- inside ---------------------------------------------------------------------------

    def _dead(self, reason: str, *, fenced: bool = False) -> ProducerDeadError:
        """Drop the producer, so that nothing can begin under its epoch any more."""
        self._outbox = None
        return ProducerDeadError(reason, fenced=fenced)

    def _call(self, outbox: Outbox, name: str, *arguments: object) -> KafkaError | None:
        return self._try(outbox, name, getattr(outbox.producer, name), *arguments)

    def _try(
        self, outbox: Outbox, name: str, method: Callable[..., object], *arguments: object
    ) -> KafkaError | None:
        failure: KafkaError | None = None
        with self._watch(name):
            try:
                method(*arguments)
            except HangingError:
                raise
            except Exception as error:  # noqa: BLE001 - SystemError may wrap a fatal KafkaError
                failure = transactional_error(error)
            outbox.serve()  # the client's lines about this call arrive through poll
        return failure

    def _again(self, call: str, error: KafkaError, deadline_s: float) -> bool:
        """Whether to repeat a call that failed: it may still succeed. A timeout is a doubt."""
        if error.code() == KafkaError._TIMED_OUT:
            self._producer().log.doubts.append(f"{call}: {describe(error)}")
            if self._producer().cut_off():
                raise self._dead(f"{call}: outcome unknown, brokers answer new clients alone")
        return reaction(error) is Reaction.AGAIN and self._clock.monotonic() < deadline_s

    def _fail(self, outbox: Outbox, step: str, error: KafkaError, *, resolved: bool) -> None:
        """Roll back what the client wants rolled back and raise what happens next."""
        if (outbox.failures | {error.code()}) & FORBIDDEN:
            raise StopError(f"{step}: not allowed: {describe(error)}; grant the right and restart")
        if reaction(error) is Reaction.REBUILD:
            raise self._dead(f"{step}: {describe(error)}", fenced=is_fenced(error))
        self._roll_back(outbox)
        content, refused = self._learn(outbox, step, outbox.failures | {error.code()})
        raise BatchAbortedError(
            f"{step}: {describe(error)}", refused=refused, content=content, resolved=resolved
        )

    def _roll_back(self, outbox: Outbox) -> None:
        """Abort, which brings the reports that were still on their way."""
        self.abort()
        self._check_topics(outbox)

    def _learn(self, outbox: Outbox, step: str, codes: set[int]) -> tuple[bool, Mapping[int, str]]:
        """Return whether it was for what a message holds, and which are surely to blame."""
        self._diagnosing = True
        if not codes & CONTENT:
            return False, {}
        # The refused message left a gap in the sequence numbers, for which the broker would
        # refuse the next transaction as well (measured): a new producer has none.
        self.doubts.append(f"{step}: a message was refused")
        if self._topics.learn(codes):
            return True, {}  # the next attempt judges all of them first
        return True, self._sets.refuse(outbox.refused, alone=outbox.alone)

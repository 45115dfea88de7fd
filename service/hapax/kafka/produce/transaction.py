"""Outputs and offsets in one Kafka transaction: the Transaction port that keeps the promise.

The only caller of the client's transactional methods. Two pieces of state: whether a transaction
is open, and the doubts, which say what made the client send a request twice since begin.
"""

from __future__ import annotations

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
from hapax.kafka.produce.call_timeout import HangingError, OffsetsCaller
from hapax.kafka.properties import SOCKET_TIMEOUT_MS
from hapax.kafka.read.offsets_client import client_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hapax.core.offset_commit import OffsetCommit
    from hapax.core.records import Message
    from hapax.kafka.produce.producer import Outbox

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

    def send(self, messages: Sequence[Message]) -> None:
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

    def _refusal_of(self, outbox: Outbox, messages: Sequence[Message]) -> BatchAbortedError | None:
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

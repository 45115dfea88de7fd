"""The two weaker guarantees in the same port, for flows that choose them knowingly.

at least once  outputs first: flush, then commit the offsets. A crash between doubles.
at most once   offsets first, then outputs. A crash between loses, and so does what brokers refuse
               or do not acknowledge in time: a second try could double it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.errors import BatchAbortedError, ProducerDeadError, StopError
from hapax.core.headers import PART, SOURCE
from hapax.core.record_path import Outputs
from hapax.kafka.errors import CONTENT, FORBIDDEN, LINE_IS_NO_TEXT, describe
from hapax.kafka.produce.base import KafkaProducing, ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.offset_commit import OffsetCommit
    from hapax.core.records import Message
    from hapax.kafka.produce.producer import Outbox


class KafkaAtLeastOnce(KafkaProducing):
    """Outputs are flushed before their offsets commit."""

    _messages = Outputs()
    _offsets: OffsetCommit | None = None

    def __init__(
        self,
        config: ProducerConfig,
        *,
        commit_offsets: Callable[[OffsetCommit], None],
        **around: Any,
    ) -> None:
        """``commit_offsets``: commits outside of any transaction. ``around``: as KafkaProducing."""
        super().__init__(config, **around)
        self._commit_outside = commit_offsets

    def open(self) -> Any:
        self._outbox = None
        self._outbox, metadata = self._connect()
        self._meet_cluster(metadata.cluster_id)
        return metadata

    def close(self) -> None:
        """Drop the producer; everything it took is flushed before its batch ends."""
        self._outbox = None

    def begin(self) -> None:
        """Start; nothing is sent before commit, so an abort has nothing to undo."""
        self._began_s = self._clock.monotonic()
        self._messages, self._offsets = Outputs(), None

    def send(self, messages: Outputs) -> None:
        self._messages = self._topics.admit(messages)

    def send_offsets(self, commit: OffsetCommit) -> None:
        self._offsets = commit

    def commit(self) -> None:
        self._hand_over(self._messages)
        self._await_deliveries()
        self._commit_offsets()

    def abort(self) -> None:
        self._messages, self._offsets = Outputs(), None

    def _hand_over(self, messages: Outputs) -> None:
        outbox = self._producer()
        with self._watch("flush"):
            outbox.begin()
            try:
                outbox.send(messages, reports=self._diagnosing)
            except BatchAbortedError:
                self._check_topics(outbox)
                raise

    def _await_deliveries(self) -> None:
        outbox = self._producer()
        with self._watch("flush"):
            try:
                left = outbox.flush(self._deadline_s)
            except KafkaException as error:
                raise ProducerDeadError(f"flush: {describe(error.args[0])}") from error
            except UnicodeDecodeError as error:
                raise ProducerDeadError(f"flush: {LINE_IS_NO_TEXT}") from error
        if left:
            outbox.producer.purge()
            raise BatchAbortedError(f"{left} outputs were not delivered in time", resolved=False)
        codes = outbox.failures
        self._diagnosing = bool(codes)
        if codes & FORBIDDEN:
            raise StopError(f"not allowed to write: {describe(outbox.failed[0])}")
        self._check_topics(outbox)
        if outbox.failed:
            refused: Mapping[int, str] = {}
            if codes & CONTENT and not self._topics.learn(codes):
                refused = self._sets.refuse(outbox.refused, alone=outbox.alone)
                self._rebuild(outbox)
            raise BatchAbortedError(
                f"outputs were refused: {describe(outbox.failed[0])}",
                refused=refused,
                content=bool(codes & CONTENT),
                resolved=False,
            )
        if self._sets.accept():
            self._rebuild(outbox)

    def _rebuild(self, outbox: Outbox) -> None:
        if outbox.alone is not self._sets.alone:
            self._outbox, _metadata = self._connect()

    def _commit_offsets(self) -> None:
        if self._offsets is not None:
            with self._watch("commit"):
                self._commit_outside(self._offsets)


class KafkaAtMostOnce(KafkaAtLeastOnce):
    """Offsets commit before any output leaves, and no output that may have left is sent again."""

    def __init__(
        self, config: ProducerConfig, *, on_lost: Callable[[int, str], None], **around: Any
    ) -> None:
        """``on_lost``: takes how many outputs of a batch may be lost, and why."""
        super().__init__(config, **around)
        self._on_lost = on_lost
        self._left: set[object] = set()

    def commit(self) -> None:
        """Raise BatchAbortedError with the record of an output that the client refuses."""
        self._producer()  # without one nothing is committed: the batch is taken again
        self._commit_offsets()
        every, left = enumerate(self._messages), self._left
        # One by one: of what the native path has sent nothing is known any more.
        named = [(at, one) for at, one in every if not left or _name(one) not in left]
        messages = [one for _at, one in named]
        try:
            self._hand_over(Outputs(messages))
        except BatchAbortedError as error:
            if error.refused:
                ((at, reason),) = error.refused.items()
                left.update(_name(one) for one in messages[:at])
                error.refused = {named[at][0]: reason}
                raise
            self._on_lost(len(messages), str(error))
        try:
            self._await_deliveries()
        except (BatchAbortedError, ProducerDeadError) as error:
            self._on_lost(len(messages), str(error))
            if isinstance(error, ProducerDeadError):
                self._outbox = None  # the next batch asks for a new one
        if self._messages:  # offsets alone are committed in between, too
            left.clear()


def _name(message: Message) -> object:
    headers = dict(message.headers)
    return message.topic, headers.get(SOURCE), headers.get(PART)

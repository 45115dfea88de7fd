"""The two weaker guarantees behind the same port, for flows that choose them knowingly.

at least once  outputs first: flush, then commit the offsets. A crash between doubles.
at most once   offsets first, then outputs. A crash between loses.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.errors import BatchAbortedError, ProducerDeadError, StopError
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.errors import CONTENT, FORBIDDEN, describe
from hapax.kafka.produce.base import KafkaProducing, offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hapax.core.ports import Message
    from hapax.core.suspicion import Marks
    from hapax.kafka.produce.producer import Outbox


class KafkaAtLeastOnce(KafkaProducing[KafkaSource]):
    """Outputs are flushed before their offsets commit."""

    _progress: Mapping[tuple[str, int], int] = MappingProxyType({})
    _messages: Sequence[Message] = ()
    _marks: Marks | None = None

    def open(self) -> Any:
        """Build a producer; return cluster metadata."""
        self._outbox = None
        self._outbox, metadata = self._connect()
        self._source.meet_cluster(metadata.cluster_id)
        return metadata

    def close(self) -> None:
        """Drop the producer; everything it took is flushed before its batch ends."""
        self._outbox = None

    def begin(self) -> None:
        """Start; nothing is sent before commit, so an abort has nothing to undo."""
        self._began_s = self._clock.monotonic()
        self._messages, self._progress, self._marks = (), {}, None

    def send(self, messages: Sequence[Message]) -> None:
        """Keep the outputs until commit."""
        self._messages = messages

    def send_offsets(
        self, progress: Mapping[tuple[str, int], int], marks: Marks | None = None
    ) -> None:
        """Keep the progress until commit."""
        foreign = progress.keys() - self._source.assignment()
        if foreign:
            raise BatchAbortedError(f"partitions are no longer ours: {sorted(foreign)}")
        self._progress, self._marks = progress, marks

    def commit(self) -> None:
        """Flush the outputs, then commit the offsets."""
        self._flush()
        self._commit_offsets()

    def abort(self) -> None:
        """Forget what was kept."""
        self._messages, self._progress = (), {}

    def _flush(self) -> None:
        outbox = self._producer()
        with self._watch("flush"):
            try:
                outbox.send(self._messages, reports=True)
            except BatchAbortedError:
                self._check_topics(outbox)
                raise
            try:
                left = outbox.producer.flush(self._deadline_s)
            except KafkaException as error:
                raise ProducerDeadError(f"flush: {describe(error.args[0])}") from error
        if left:
            outbox.producer.purge()
            raise BatchAbortedError(f"{left} outputs were not delivered in time", resolved=False)
        codes = {error.code() for error in outbox.failed}
        if codes & FORBIDDEN:
            raise StopError(f"not allowed to write: {describe(outbox.failed[0])}")
        self._check_topics(outbox)
        if outbox.failed:
            refused: Mapping[int, str] = {}
            if codes & CONTENT:
                refused = self._sets.refuse(outbox.refused, alone=outbox.alone)
                self._rebuild(outbox)
            raise BatchAbortedError(
                f"{len(outbox.failed)} outputs were refused: {describe(outbox.failed[0])}",
                refused=refused,
                content=bool(codes & CONTENT),
                resolved=False,
            )
        if self._sets.accept():
            self._rebuild(outbox)

    def _rebuild(self, outbox: Outbox) -> None:
        """Build the producer that the next sets of messages need."""
        if outbox.alone is not self._sets.alone:
            self._outbox, _metadata = self._connect()

    def _commit_offsets(self) -> None:
        with self._watch("commit"):
            self._source.commit(offsets_of(self._source, self._progress, self._marks))


class KafkaAtMostOnce(KafkaAtLeastOnce):
    """Offsets commit before any output leaves."""

    def commit(self) -> None:
        """Commit the offsets, then flush the outputs; what fails now is lost, by choice."""
        self._commit_offsets()
        self._flush()

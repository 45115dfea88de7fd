"""What the producing side of every guarantee has in common: its parts, and how it connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from confluent_kafka import KafkaException

from hapax.core.errors import ProducerDeadError, StopError
from hapax.kafka.errors import describe
from hapax.kafka.produce.output_topics import OutputTopics
from hapax.kafka.produce.producer import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hapax.core.ports import Clock, Watch
    from hapax.kafka.native import NativePath
    from hapax.kafka.produce.doubts import LogLine
    from hapax.kafka.produce.producer import Placed
    from hapax.settings import Settings


SET_BYTES = 1_000_000
"""The client's own default."""
SET_BYTES_MIN = 4096
ALONE = {"batch.num.messages": 1}


class MessageSets:
    """How many messages go into one set, which brokers take or refuse as a whole.

    The client bounds a set by its own ``batch.size``; what a topic takes (``max.message.bytes``)
    it does not know, so outputs that fit one by one may be refused together. After a refusal each
    message is sent in a set of its own, before anybody is blamed: whoever is refused then is
    surely to blame. When none is, the sets were too large, and they stay half as large.
    """

    COMMITS_MAX = 5
    """Transactions without a refusal after which no message is to blame: the first of them may hold
    other records than those that were refused."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._blamed = False
        self._commits = 0
        self.alone = False
        """Whether the next producer sends each message in a set of its own."""

    def properties(self) -> dict[str, int]:
        """Return what a producer has to be built with."""
        return {"batch.size": self._bytes_max} | (ALONE if self.alone else {})

    def refuse(self, refused: Mapping[int, str], *, alone: bool) -> Mapping[int, str]:
        """Take note of a refusal; return those messages of it that are surely to blame.

        ``alone``: whether each message had a set of its own, or was refused before it had any.
        """
        self.alone, self._commits = True, 0
        self._blamed = self._blamed or (alone and bool(refused))
        return refused if alone else {}

    def accept(self) -> bool:
        """Take note of success; return whether a producer that sends sets is to be built."""
        self._commits += 1
        if not self.alone or not (self._blamed or self._commits >= self.COMMITS_MAX):
            return False
        if not self._blamed:
            self._bytes_max = max(SET_BYTES_MIN, self._bytes_max // 2)
        self.alone = self._blamed = False
        return True


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a producing side is built with.

    properties       of the client
    required_topics  those of the settings: one that is gone is no record's fault
    dead_letters     the topic of the dead letters, which are never refused
    round_robin      whether records without a key are spread evenly
    native           the native record path; None: messages are handed over one by one
    deadline_s       longest that one transaction, or one step of it, may take
    placed           delivery reports by index of the message in a call, as they are at that call
    """

    properties: dict[str, Any]
    required_topics: frozenset[str] = frozenset()
    dead_letters: str | None = None
    round_robin: bool = False
    deadline_s: float
    native: NativePath | None = None
    placed: Placed | None = None

    @classmethod
    def of(
        cls, settings: Settings, properties: dict[str, Any], native: NativePath | None = None
    ) -> ProducerConfig:
        """Return that of a pipeline, under these properties."""
        topics = {settings.output.topic, settings.dead_letter.topic or settings.output.topic}
        return cls(
            properties=properties,
            required_topics=frozenset(topics),
            dead_letters=settings.dead_letter.topic,
            round_robin=settings.output.partitioner == "round_robin",
            deadline_s=settings.transaction.timeout_ms / 1000,
            native=native,
        )


def any_cluster(_cluster_id: str | None) -> None:
    """Accept the cluster: there are no positions that could belong to another one."""


class KafkaProducing:
    """One producer at a time, rebuilt on demand."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock,
        forward: LogLine,
        watch: Watch,
        meet_cluster: Callable[[str | None], None] = any_cluster,
    ) -> None:
        """``meet_cluster`` raises when positions belong to another cluster than the producer's."""
        self._properties = config.properties
        self._native = config.native
        self._placed = config.placed
        self._required_topics = config.required_topics
        self._round_robin = config.round_robin
        self._deadline_s = config.deadline_s
        self._clock = clock
        self._forward = forward
        self._watch = watch
        self._meet_cluster = meet_cluster
        self._outbox: Outbox | None = None
        self._topics = OutputTopics(config, clock, watch)
        self._sets = MessageSets(int(config.properties.get("batch.size", SET_BYTES)))
        self._began_s = 0.0
        self.doubts: list[str] = []
        """What may have been sent twice; always empty without transactions, where that is only a
        duplicate."""

    @property
    def age_s(self) -> float:
        """Seconds since the last begin."""
        return self._clock.monotonic() - self._began_s

    @property
    def one_by_one(self) -> bool:
        """Whether it takes messages one by one only: to report on each, judge it, or place it."""
        free = self._native is not None and not self._native.left
        return not free or self._round_robin or self._topics.awake

    def _connect(self) -> tuple[Outbox, Any]:
        """Return a new producer that has a connection, and the cluster's metadata."""
        properties = {**self._properties, **self._sets.properties()}
        outbox = Outbox(
            properties,
            self._forward,
            round_robin=self._round_robin,
            native=self._native,
            placed=self._placed,
        )
        with self._watch("list_topics"):
            try:
                metadata = outbox.connect()
            except KafkaException as error:
                text = f"no broker answered: {describe(error.args[0])}"
                raise ProducerDeadError(text, unanswered=True) from error
        self._topics.meet(metadata.topics)
        return outbox, metadata

    def _producer(self) -> Outbox:
        if self._outbox is None:
            raise ProducerDeadError("no producer")
        return self._outbox

    def _check_topics(self, outbox: Outbox) -> None:
        """Raise StopError when a topic of the settings is gone: no record is to blame for it."""
        gone = sorted(outbox.unknown_topics & self._required_topics)
        if gone:
            raise StopError(f"output topic {', '.join(gone)} no longer exists: recreate it")

"""What the producing side of every guarantee has in common: its parts, and how it connects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from confluent_kafka import KafkaException, TopicPartition

from hapax.core.errors import ProducerDeadError, StopError
from hapax.core.ports import Source
from hapax.core.suspicion import marked
from hapax.kafka.errors import describe
from hapax.kafka.produce.producer import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.ports import Clock, Watch
    from hapax.core.records import TopicPartition as Where
    from hapax.core.suspicion import Mark, Marks
    from hapax.kafka.produce.producer import LogLine


class Placing(Source, Protocol):
    """A source that knows what is to stand beside an offset of its own."""

    def offset(self, where: Where, offset: int) -> TopicPartition:
        """Return an offset to commit."""

    def meet_cluster(self, cluster_id: str | None) -> None:
        """Raise PositionLostError when our positions belong to another cluster than this."""


def offsets_of(
    source: Placing, progress: Mapping[Where, int], marks: Marks | None
) -> list[TopicPartition]:
    """Return offsets to commit, each with what is to stand beside it."""
    offsets = [source.offset(where, offset) for where, offset in progress.items()]
    if not marks:
        return offsets
    return [
        one if (mark := marks.get((one.topic, one.partition))) is None else _marked(one, mark)
        for one in offsets
    ]


def _marked(one: TopicPartition, mark: Mark) -> TopicPartition:
    known = cast("int | None", one.leader_epoch)
    epoch = () if known is None else (known,)  # the client refuses a None
    return TopicPartition(one.topic, one.partition, one.offset, marked(one.metadata, mark), *epoch)


Bringing = TypeVar("Bringing", bound=Source)
"""The weaker guarantees also commit through their source, the transaction never does."""


SET_BYTES = 1_000_000
"""The client's own default."""
SET_BYTES_MIN = 4096
ALONE = {"batch.num.messages": 1}


class MessageSets:
    """How many messages go into one set, which brokers take or refuse as a whole.

    The client bounds a set by its own ``batch.size``; what a topic takes (``max.message.bytes``)
    it does not know, so outputs that fit one by one may be refused together. After a refusal each
    message is sent in a set of its own, before anybody is blamed: whoever is refused then is
    surely to blame. When nobody is, the sets were too large, and they stay half as large.
    """

    COMMITS_MAX = 5
    """Transactions without a refusal after which nobody is to blame: the first of them may hold
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


class KafkaProducing(Generic[Bringing]):
    """One producer at a time, rebuilt on demand."""

    def __init__(  # noqa: PLR0913 - what a transaction needs of the world
        self,
        properties: Mapping[str, Any],
        source: Bringing,
        *,
        required_topics: frozenset[str],
        round_robin: bool,
        deadline_s: float,
        clock: Clock,
        forward: LogLine,
        watch: Watch,
    ) -> None:
        self._properties = properties
        self._source = source
        self._required_topics = required_topics
        self._round_robin = round_robin
        self._deadline_s = deadline_s
        self._clock = clock
        self._forward = forward
        self._watch = watch
        self._outbox: Outbox | None = None
        self._sets = MessageSets(int(properties.get("batch.size", SET_BYTES)))
        self._began_s = 0.0
        self.doubts: list[str] = []
        """What may have been sent twice; always empty without transactions, where that is only a
        duplicate."""

    @property
    def age_s(self) -> float:
        """Seconds since the last begin."""
        return self._clock.monotonic() - self._began_s

    def _connect(self) -> tuple[Outbox, Any]:
        """Return a new producer that has a connection, and the cluster's metadata."""
        properties = {**self._properties, **self._sets.properties()}
        outbox = Outbox(properties, self._forward, round_robin=self._round_robin)
        with self._watch("list_topics"):
            try:
                return outbox, outbox.connect()
            except KafkaException as error:
                text = f"no broker answered: {describe(error.args[0])}"
                raise ProducerDeadError(text, unanswered=True) from error

    def _producer(self) -> Outbox:
        if self._outbox is None:
            raise ProducerDeadError("no producer")
        return self._outbox

    def _check_topics(self, outbox: Outbox) -> None:
        """Raise StopError when a topic of the settings is gone: no record is to blame for it."""
        gone = sorted(outbox.unknown_topics & self._required_topics)
        if gone:
            raise StopError(f"output topic {', '.join(gone)} is gone: create it again")

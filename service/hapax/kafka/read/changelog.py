"""The changelog of keyed state (processing/keyed_state.py), read from an offset to its end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaException

from hapax.core.errors import ConfigurationError, PreflightError, StopError
from hapax.core.headers import APP, SOURCE
from hapax.core.ports import silent
from hapax.kafka.admin.topics import cluster_id, topic_ids, topic_settings
from hapax.kafka.connection import no_broker
from hapax.kafka.errors import NO_TEXT, client_headers
from hapax.kafka.read.offsets_client import (
    EARLIEST,
    LATEST,
    BlockingOffsets,
    OffsetsClient,
    reader_properties,
)
from hapax.kafka.read.range_reader import RangeReader
from hapax.processing.state import ChangelogPiece, changelog_problem, entry_of, unlike

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from confluent_kafka import Message

    from hapax.core.ports import Tell
    from hapax.core.records import TopicPartition
    from hapax.processing.state import Spans
    from hapax.settings import Settings

_DAY_MS, _MESSAGE_BYTES = 86_400_000, 1_048_588
"""Kafka's defaults of delete.retention.ms and max.message.bytes."""
OVERHEAD_BYTES: Final = 500
"""Of a record beyond its key and value, in a set of its own."""
PIECE_BYTES: Final = 16 << 20
"""About what is read before it is put into the store: the more, the fewer pages are copied."""
ENTRY_BYTES: Final = 150
"""What an entry takes in memory beyond its key and value."""
ANSWER_S: Final = 5.0


class Changelog:
    """Reads partitions of one changelog. Methods raise PreflightError when no broker answers.

    kept_s     half of the time for which deleted entries stay in the log
    bytes_max  largest key and value of an entry
    """

    def __init__(self, settings: Settings) -> None:
        """Ask what the topic is; its settings are taken for Kafka's where they may not be read."""
        self._settings = settings
        self.topic = settings.state_topic
        found = topic_settings(reader_properties(settings), {self.topic})
        self._configured = found.get(self.topic, {})
        self.kept_s = self._number("delete.retention.ms", _DAY_MS) / 2000
        self.bytes_max = self._number("max.message.bytes", _MESSAGE_BYTES) - OVERHEAD_BYTES

    def _number(self, name: str, usual: int) -> int:
        return int(self._configured.get(name, usual))

    def required(self) -> Self:
        """Raise PreflightError where it cannot hold the state of the inputs."""
        with closing(BlockingOffsets(self._settings)) as client:
            counts = {at: len(client.partitions([at])) for at in self._settings.input.topics}
            count = 0 if client.absent([self.topic]) else len(client.partitions([self.topic]))
        if problem := unlike(counts):
            why = f"HAPAX_INPUT__TOPICS: {problem}; create them with the same number"
            raise PreflightError([why])
        wanted = next(iter(counts.values()))
        policy = self._configured.get("cleanup.policy")
        if found := changelog_problem(self.topic, count, wanted, policy):
            raise PreflightError([f"HAPAX_TRANSFORM: {': '.join(found)}"])
        return self

    def ids(self) -> tuple[str, ...]:
        """Return Kafka's ids of the cluster, of the input topics and of the changelog."""
        topics = (*sorted(self._settings.input.topics), self.topic)
        found = topic_ids(self._settings, topics)
        return cluster_id(self._settings), *(str(found.get(topic)) for topic in topics)

    def spans(self, partitions: Collection[int]) -> Spans:
        """Return where each log begins, and where it ends now, open transactions included.

        Those are waited for by who reads: what is committed with an offset of the group may be
        visible a moment later than that. A partition whose leader does not answer is left out.
        StopError: there is no such partition.
        """
        wanted = {(self.topic, number) for number in partitions}
        queries = OffsetsClient(reader_properties(self._settings), left_s=lambda: ANSWER_S)
        with closing(queries) as client:
            try:
                there = client.partitions_of(self.topic)
                lows = client.offsets(dict.fromkeys(wanted, EARLIEST))
                highs = client.offsets(dict.fromkeys(wanted, LATEST))
            except KafkaException as error:
                raise no_broker(self._settings, error) from error
        if not there:
            raise PreflightError([f"topic {self.topic} does not exist or may not be read"])
        if missing := sorted(number for _topic, number in wanted.difference(there)):
            raise StopError(
                f"topic {self.topic}, which keeps the state, has no partition {missing[0]}: add"
                " partitions until it has as many as the input"
            )
        return {
            where[1]: (low, high)
            for where, low in lows.items()
            if low is not None and (high := highs.get(where)) is not None
        }

    def whole(self, where: TopicPartition, tell: Tell = silent) -> Iterator[ChangelogPiece]:
        """Yield one partition up to where it ends now; ``tell`` hears of offsets."""
        number = where[1]
        spans = self.spans([number])
        if number not in spans:
            problem = f"{self.topic}/{number}: its leader does not answer; try again"
            raise PreflightError(problem)
        start, end = spans[number]
        for pieces in self.read(where[0], spans):
            for piece in pieces.values():
                tell(f"state of partition {number}", piece.next - start, end - start)
                yield piece

    def read(self, topic: str, spans: Spans) -> Iterator[dict[int, ChangelogPiece]]:
        """Yield what committed transactions have changed, in the order of each partition.

        ``topic``: the input of ``source``. A piece whose ``next`` is the end of its span is the
        last one of its partition. Pieces come now and then, and may be none. ConfigurationError:
        another app writes to it, too.
        """
        logs = {(self.topic, number): span for number, span in spans.items()}
        places = {number: f"{topic}/{number}/".encode() for number in spans}
        pieces: dict[int, ChangelogPiece] = {}
        others = {f"{one}/".encode() for one in self._settings.input.topics} - {
            f"{topic}/".encode()
        }
        size, apps = 0, _Apps(self._settings)
        for messages, done in RangeReader(self._settings).messages(logs):
            size += _gather(messages, pieces, places, others, apps)
            for _topic, number in done:
                pieces.setdefault(number, ChangelogPiece({})).next = spans[number][1]
            if done or size > PIECE_BYTES or not messages:
                yield pieces
                pieces, size = {}, 0
        yield pieces


def _gather(
    messages: list[Message],
    pieces: dict[int, ChangelogPiece],
    places: Mapping[int, bytes],
    others: Collection[bytes],
    apps: _Apps,
) -> int:
    """Add messages to the pieces of their partitions; return about how many bytes they take.

    Every value of a state comes through here, so there is no call that need not be.
    """
    whole, last, place, piece = 0, -1, b"", ChangelogPiece({})
    for message in messages:
        number: Any = message.partition()
        if number != last:
            piece = pieces.setdefault(number, ChangelogPiece({}))
            last, place = number, places[number]
        piece.next = message.offset() + 1  # type: ignore[operator] # RangeFetch has asked for it
        if (key := message.key()) is None:
            continue
        piece.changes[entry := entry_of(number, key)] = value = message.value()
        whole += len(key) + ENTRY_BYTES + (0 if value is None else len(value))
        try:
            headers = client_headers(message)
        except NO_TEXT:  # it is not one of ours
            continue
        for name, said in headers or ():
            if name == SOURCE and said and said.startswith(place) and said[len(place) :].isdigit():
                at = int(said[len(place) :])
                piece.source = max(piece.source, at)
                if value is None:
                    piece.deleted.append((at, entry))
            elif others and name == SOURCE and said:
                _note(said, piece, number, others)
            elif name == APP and said:
                apps.see(message, said)
    return whole


class _Apps:
    """Whose changes a changelog has: of one app, or of one after the other, when it was renamed."""

    def __init__(self, settings: Settings) -> None:
        self._own = settings.app.encode()
        self._inputs = tuple(f"{topic}/".encode() for topic in settings.input.topics)
        self._changed = set[int | None]()

    def see(self, message: Message, app: bytes) -> None:
        """Raise ConfigurationError where another app has other inputs, or came after this one."""
        if app == self._own:
            self._changed.add(message.partition())
            return
        sources = [said for name, said in client_headers(message) or () if name == SOURCE and said]
        ours = any(said.startswith(self._inputs) for said in sources)
        if not ours or message.partition() in self._changed:
            problem = (
                f"HAPAX_STATE__TOPIC={message.topic()} has changes of the app"
                f" {app.decode(errors='replace')}: give each app its own, and compute both states"
                " again by hapax offsets rewind --to earliest --drop-state"
            )
            raise ConfigurationError(problem)


def _note(said: bytes, piece: ChangelogPiece, number: int, others: Collection[bytes]) -> None:
    topic, _number, digits = said.rpartition(b"/%d/" % number)
    if topic + b"/" in others and digits.isdigit():
        name = topic.decode()
        piece.others[name] = max(int(digits), piece.others.get(name, -1))

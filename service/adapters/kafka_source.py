"""Records of the input topics, and positions: the Source port on a Kafka consumer.

Callbacks only record; what they saw is judged after the call that ran them. The client hands a
batch out twice in rare group starts (about 1 in 50: KAFKA facts in docs/non-obvious.md), so
everything below the next offset is dropped here and counted.
"""

from __future__ import annotations

import math
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from service.adapters.kafka_clients import build
from service.adapters.kafka_errors import describe
from service.adapters.kafka_orphans import orphans
from service.adapters.kafka_topics import DEBUG, TopicIds
from service.core.errors import (
    BatchAbortedError,
    MemberFencedError,
    PositionLostError,
    StopError,
)
from service.core.ports import Batch, Changes
from service.core.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from service.core.ports import Clock, Watch
    from service.core.records import Progress
    from service.core.records import TopicPartition as Where

ANSWER_TIMEOUT_S = 5.0
ELECTION_S = 10.0


class TroubleLog:
    """Passes a consumer's lines on; remembers when connections last broke, and ids of topics."""

    SIGNS = frozenset({"FAIL", "REQTMOUT", "SESSTMOUT", "ERROR"})
    MEMORY_S = 15.0

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._last_s = -math.inf
        self.topics = TopicIds()

    def log(self, level: int, form: str, *parts: object) -> None:
        """Take one line of the client."""
        if parts and parts[0] in self.SIGNS:
            self._last_s = self._clock.monotonic()
        if parts:
            self.topics.hear(str(parts[-1]))
        self._logger.log(level, form, *parts)

    @property
    def troubled(self) -> bool:
        """Whether connections broke lately."""
        return self._clock.monotonic() - self._last_s < self.MEMORY_S


class KafkaSource:
    """Brings records of a consumer group's partitions. One thread only."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        start: str,
        logger: object,
        clock: Clock,
        watch: Watch,
    ) -> None:
        self._properties = dict(properties)
        self._log = TroubleLog(logger, clock)
        self._ids = self._log.topics
        self._consumer = self._built()
        self._watch = watch
        self._topics = list(topics)
        self._start = start
        self._group = str(properties["group.id"])
        self._next: Progress = {}
        self._settled: Progress = {}
        self._ends: Progress = {}
        self._met_ends: Progress = {}
        self._words: dict[Where, str] = {}
        self._stash: list[Message] = []
        self._changes = Changes()
        self._touched: set[Where] = set()
        self._unplaced: set[Where] = set()
        self._missing_since_s: dict[Where, float] = {}
        self._paused: set[Where] = set()
        self._pausing = False
        self._clock = clock

    def _built(self) -> Consumer:
        return build(Consumer, {**self._properties, "debug": DEBUG}, self._log)

    # -- positions ------------------------------------------------------------------------

    def subscribe(self) -> None:
        """Join the group; partitions arrive with later calls of take or attend."""
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def reopen(self) -> None:
        """Join the group anew: a new member under the same name, at the committed offsets."""
        gone = list(self._next)
        # Its destructor does not close the dead member: there is nothing to leave.
        self._ids.forget()
        self._consumer = self._built()
        self._next, self._settled, self._ends, self._stash = {}, {}, {}, []
        self._met_ends = {}
        self._words.clear()
        self._touched.clear()
        self._unplaced.clear()
        self._paused.clear()
        self._changes.lost += gone
        self.subscribe()

    def list_topics(self, timeout_s: float) -> Any:
        """Return the cluster's metadata; raises KafkaException when no broker answers."""
        return self._consumer.list_topics(timeout=timeout_s)

    def take(self, records_max: int, wait_s: float) -> Batch:
        """Return what is there, waiting up to ``wait_s`` only for the first record."""
        count = max(1, records_max)
        messages, self._stash = self._stash[:count], self._stash[count:]
        with self._asking("take"):
            if not messages:
                # consume(n, t) waits all of t when short of n: one blocking poll, then the rest.
                head = self._consumer.poll(wait_s)
                messages = [] if head is None else [head]
                self._resume()
            self._follow_topics()
            if not messages and not self._unplaced:
                return Batch([], {}, {})
            if records_max > len(messages):
                messages += self._consumer.consume(records_max - len(messages), 0)
                self._follow_topics()
            return self._batch(messages)

    def attend(self, wait_s: float = 0.0) -> None:
        """Serve rebalances without taking records; one that arrives waits for the next take."""
        with self._asking("attend"):
            message = self._consumer.poll(wait_s)
            self._follow_topics()
            if message is None:
                return
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                # An end counts only behind the records before it, which wait here, too.
                self._stash.append(message)
            else:
                self._on_event(message, error)

    def settle(self, progress: Mapping[Where, int]) -> None:
        """Take note that everything below these offsets has had its effect."""
        self._settled.update(progress)

    def settled(self) -> Progress:
        """Return per partition where to read again when nothing later is certain.

        A partition without committed offset always has its place here: it started by a rewind.
        """
        return dict(self._settled)

    def positions(self) -> Progress:
        """Return per partition the next offset to take. Any thread may ask, as for ``settled``."""
        return dict(self._next)

    def rewind(self, progress: Mapping[Where, int]) -> None:
        """Read again from these offsets; partitions that are no longer ours are ignored."""
        ours = self.assignment()
        with self._asking("seek"):
            for where, offset in progress.items():
                if where in ours:
                    self._move(where, offset)
                    self._settled[where] = offset

    def _move(self, where: Where, offset: int) -> None:
        self._drop_stashed({where})
        self._ends.pop(where, None)
        self._met_ends.pop(where, None)
        self._unplaced.discard(where)
        self._next[where] = offset
        self._place(TopicPartition(*where, offset))

    def _place(self, position: TopicPartition) -> None:
        try:
            self._consumer.seek(position)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - the only name it has
                raise
            # A partition whose fetching has not started, or has ended in an error, cannot be
            # sought; taking it anew can.
            self._consumer.incremental_unassign([position])
            self._consumer.incremental_assign([position])

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        """Return the group's stable committed offsets; None where there is none.

        Waits while a transaction holds a pending offset, so the answer is never undone. Raises
        BatchAbortedError on a time-out: ask again.
        """
        wanted = [TopicPartition(*where) for where in partitions]
        if not wanted:
            return {}
        with self._asking("committed"):
            answers = self._consumer.committed(wanted, timeout=ANSWER_TIMEOUT_S)
        for answer in answers:
            if answer.error is not None:
                raise BatchAbortedError(f"committed: {describe(answer.error)}", resolved=False)
        stable = {
            (answer.topic, answer.partition): answer.offset if answer.offset >= 0 else None
            for answer in answers
        }
        self._words |= {(one.topic, one.partition): one.metadata or "" for one in answers}
        return stable

    def offset(self, where: Where, offset: int) -> TopicPartition:
        """Return an offset to commit, with the id of its topic beside it."""
        return self._ids.offset(where, offset)

    def commit(self, progress: Mapping[Where, int]) -> None:
        """Commit offsets outside of any transaction (the weaker guarantees only)."""
        offsets = [self.offset(where, offset) for where, offset in progress.items()]
        with self._asking("commit"):
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def assignment(self) -> frozenset[Where]:
        """Return the partitions that are ours now."""
        with self._asking("assignment"):
            return frozenset((p.topic, p.partition) for p in self._consumer.assignment())

    def member(self) -> bytes:
        """Return the live group metadata.

        Raises BatchAbortedError when we are no live member: the broker accepts generation -1 and
        an empty member id *unfenced*, even while others are live members of the group.
        """
        with self._asking("consumer_group_metadata"):
            metadata = bytes(self._consumer.consumer_group_metadata())
        generation, member_id = parse_metadata(metadata)
        if generation < 0 or not member_id:
            raise BatchAbortedError("no live member of the group: offsets are not sent")
        return metadata

    def changes(self) -> Changes:
        """Return and forget what happened since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    # -- holding --------------------------------------------------------------------------

    def pause(self) -> None:
        """Deliver nothing from the partitions that are ours now."""
        self._pausing = True
        with self._asking("pause"):
            held = self._consumer.assignment()
            self._consumer.pause(held)
            self._paused.update(_places(held))

    def resume(self) -> None:
        """Deliver again, also from paused partitions that are away and come back later."""
        self._pausing = False
        self._resume()

    def _resume(self) -> None:
        """Resume what is ours of what was ever paused.

        The client keeps a partition paused over its loss and the next assignment (measured with
        librdkafka 2.16), so one that left while it was paused is resumed when it is back.
        """
        if self._pausing or not self._paused:
            return
        with self._asking("resume"):
            back = [
                p for p in self._consumer.assignment() if (p.topic, p.partition) in self._paused
            ]
            self._consumer.resume(back)
            self._paused.difference_update(_places(back))

    def ends(self) -> Progress:
        """Return the ends of all partitions of the input topics, as a reader may see them."""
        ends: Progress = {}
        for topic in self._topics:
            for number in self._partitions(topic):
                ends[(topic, number)] = self._watermarks((topic, number))[1]
        return ends

    def adopt_orphans(self) -> list[Where] | None:
        """Make the group share out again when partitions belong to nobody; return those.

        None: it cannot be told now; ask again soon.
        Only static members can overlook new partitions (kafka_orphans.py).
        """
        if "group.instance.id" not in self._properties:
            return []
        every = [(topic, number) for topic in self._topics for number in self._partitions(topic)]
        if not set(every) - self.assignment():
            return []
        found = orphans(self._properties, every, self._log)
        if found:
            with self._asking("subscribe"):
                # Leaving and coming back as a known member is what starts a rebalance.
                self._consumer.unsubscribe()
                self.subscribe()
        return found

    def lag(self) -> dict[Where, int]:
        """Return per owned partition the records not yet read, as far as the client knows.

        The client remembers the end of the log, behind open transactions too; who has met the end
        of what may be read has read everything.
        """
        lag = {}
        for where, offset in self._next.items():
            if self._met_ends.get(where, -1) >= offset:
                lag[where] = 0
                continue
            with suppress(KafkaException):  # a figure that is missing for a moment
                marks = self._consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
                if marks[1] >= 0:
                    lag[where] = max(0, marks[1] - offset)
        return lag

    def close(self) -> None:
        """Leave; a static member stays known to the group for its session timeout."""
        with self._watch("close"):
            self._consumer.close()

    # -- inside ---------------------------------------------------------------------------

    @contextmanager
    def _asking(self, call: str) -> Iterator[None]:
        """Watch a call to the client; its errors leave nothing certain but what is committed."""
        try:
            with self._watch(call):
                yield
        except KafkaException as exception:
            error = exception.args[0]
            if error.fatal():
                self._fatal(error)
            raise BatchAbortedError(f"{call}: {describe(error)}", resolved=False) from exception

    def _partitions(self, topic: str) -> list[int]:
        with self._asking("list_topics"):
            metadata = self._consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S)
        return sorted(metadata.topics[topic].partitions)

    def _watermarks(self, where: Where) -> tuple[int, int]:
        with self._asking("get_watermark_offsets"):
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(*where), timeout=ANSWER_TIMEOUT_S
            )
        return low, high

    def _batch(self, messages: list[Any]) -> Batch:
        records: list[Record] = []
        batch = Batch(records, {}, {})
        next_offsets = self._next
        topic, partition, next_offset, skip, opened = "", -1, 0, False, False
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_event(message, error)
                continue
            here, number, offset = message.topic(), message.partition(), message.offset()
            if number != partition or here != topic:
                if partition >= 0 and not skip:
                    next_offsets[(topic, partition)] = next_offset
                topic, partition = here, number
                skip = (topic, partition) in self._touched
                next_offset = next_offsets.get((topic, partition), 0)
                opened = (topic, partition) in batch.first
            if offset < next_offset or skip:
                if not skip:
                    repeated = self._changes.repeated
                    repeated[(topic, partition)] = repeated.get((topic, partition), 0) + 1
                continue
            if not opened:
                batch.first[(topic, partition)] = offset
                opened = True
            next_offset = offset + 1
            try:
                headers = message.headers()
            except UnicodeDecodeError:
                batch.unreadable[len(records)] = "a header name is not UTF-8"
                headers = None
            records.append(
                Record(
                    topic,
                    partition,
                    offset,
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else (),
                    message.timestamp()[1],
                )
            )
        if partition >= 0 and not skip:
            next_offsets[(topic, partition)] = next_offset
        return self._finish(batch)

    def _finish(self, batch: Batch) -> Batch:
        """Add progress: behind the records, and behind what no reader can see."""
        for where in list(self._unplaced):
            self._position_missing(where)
        if self._touched:
            self._reread_touched()
        self._identify(batch.first.keys() | self._ends.keys())
        for where in batch.first:
            batch.next[where] = self._next[where]
            self._missing_since_s.pop(where, None)
        ends, self._ends = self._ends, {}
        for where, end in ends.items():
            if end >= self._next.get(where, 0):
                self._next[where] = batch.next[where] = end
        return batch

    def _identify(self, places: Iterable[Where]) -> None:
        """Make sure that positions belong to the topics that their records come from."""
        places = [where for where in places if self._ids.knows(where[0])]
        if any(where not in self._words for where in places):
            # The client began at offsets that it has looked up by itself: see what is beside them.
            began = self.committed(self.assignment().union(places) - self._words.keys())
            for where in places:
                if began.get(where, 0) is None and where not in self._settled:
                    raise PositionLostError(
                        f"{where[0]}/{where[1]}: the offset at which reading began is gone, with"
                        " its topic or by somebody's hand. Set the group's offset, or start again:"
                        " HAPAX_INPUT__START decides where"
                    )
        for where in places:
            other = self._ids.other(where[0], self._words[where])
            if other is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._group} belongs to a topic"
                    f" that was deleted (id {other}); the one that has its name now is another."
                    " Set the group's offset, then start again"
                )

    def _follow_topics(self) -> None:
        """Look whether a topic was made again; raise when we stand somewhere in the old one."""
        for topic, before, now in self._ids.remade():
            stand = {where: next_ for where, next_ in self._next.items() if where[0] == topic}
            if stand:
                (_topic, partition), next_offset = min(stand.items())
                raise PositionLostError(
                    f"{topic}/{partition}: the next record is {next_offset} of a topic that was"
                    f" deleted and made again while it was read (id {before}, now {now}). Start"
                    " again: the brokers forget a group's offsets with the topic, so"
                    " HAPAX_INPUT__START decides where"
                )
            self._ids.accept(topic)
            self._touched.update(where for where in self.assignment() if where[0] == topic)

    def _reread_touched(self) -> None:
        """Partitions that left or came back inside one call: what was fetched before is stale."""
        touched = frozenset(self._touched)
        again = touched & self.assignment()
        for where in touched:
            self._ends.pop(where, None)
            self._met_ends.pop(where, None)
            self._next.pop(where, None)
            self._settled.pop(where, None)
        stable = self.committed(again)
        self.rewind({where: offset for where, offset in stable.items() if offset is not None})
        for where in again:
            if stable[where] is None:
                self._begin(where)
        self._touched -= touched  # only now: without an answer they stay stale

    def _on_event(self, message: Any, error: KafkaError) -> None:
        code = error.code()
        where = (message.topic() or "", message.partition() or 0)
        if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the only name it has
            if where not in self._touched:
                self._ends[where] = self._met_ends[where] = message.offset()
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}:  # noqa: SLF001
            self._unplaced.add(where)
        elif error.fatal() or code == KafkaError._FATAL:  # noqa: SLF001
            self._fatal(error)
        elif code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}:
            raise StopError(f"not allowed to read: {describe(error)}; grant the right and restart")
        else:
            # Transport, time-outs, max.poll.interval: these heal, or end in a rebalance.
            self._changes.errors.append(describe(error))

    def _fatal(self, error: KafkaError) -> None:
        text = describe(error)
        if "fenced" in text.lower():
            raise MemberFencedError(
                f"group {self._group} gave our instance name to another member: {text}",
                explained=self._log.troubled,
            )
        raise StopError(f"the consumer is dead: {text}")

    def _position_missing(self, where: Where) -> None:
        """Tell a group without offsets from a position that fell off the log."""
        position = self._next.get(where)
        if position is None:
            position = self.committed([where])[where]
        if position is None:
            self._begin(where)
            return
        low, high = self._watermarks(where)
        now_s = self._clock.monotonic()
        since_s = self._missing_since_s.setdefault(where, now_s)
        # Right after an election the end of the log may lag behind for a moment; its beginning
        # never comes back.
        if position < low or (position > high and now_s - since_s > ELECTION_S):
            raise PositionLostError(
                f"{where[0]}/{where[1]}: the next record is {position}, but the log now holds"
                f" {low} to {high}: it was deleted by retention or the topic is another one."
                " Decide what to do with the gap, set the group's offset, then start again"
            )
        with self._asking("seek"):
            self._move(where, position)  # what is handed out and not settled yet stays so

    def _begin(self, where: Where) -> None:
        """Start a partition for which the group has no offset."""
        low, _high = self._watermarks(where)
        if self._start == "refuse":
            raise PositionLostError(
                f"{where[0]}/{where[1]}: group {self._group} has no committed offset and"
                " HAPAX_INPUT__START=refuse; set the group's offset, or choose earliest or latest"
            )
        if self._start == "latest" and not self._group_knows(where[0]):
            self._begin_at_ends(where)
        else:
            self.rewind({where: low})

    def _begin_at_ends(self, first: Where) -> None:
        """Start all our partitions of a topic at their ends, at one moment.

        The client tells of them one by one. Those that it tells of after the first was committed
        would be taken for new ones, and be read from their beginning.
        """
        ours = {where for where in self.assignment() if where[0] == first[0]} | {first}
        ends = {where: self._watermarks(where)[1] for where in sorted(ours - self._next.keys())}
        self.rewind(ends)
        # Committed like an end: a group that forgets where it began jumps at its next start.
        self._ends |= ends

    def group_knows(self) -> bool:
        """Return whether the group has an offset in any of the topics. Before or after joining."""
        return any(self._group_knows(topic) for topic in self._topics)

    def _group_knows(self, topic: str) -> bool:
        """Whether the group has offsets in this topic.

        Then a partition without is a new one, whose records nobody has seen from the earliest on.
        """
        partitions = [(topic, number) for number in self._partitions(topic)]
        return any(offset is not None for offset in self.committed(partitions).values())

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changes.assigned = [*(self._changes.assigned or []), *_places(partitions)]
        self._unname(_places(partitions))

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changes.revoked += _places(partitions)
        self._leave(_places(partitions))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changes.lost += _places(partitions)
        self._leave(_places(partitions))

    def _leave(self, places: list[Where]) -> None:
        for where in places:
            self._next.pop(where, None)
            self._settled.pop(where, None)
            self._ends.pop(where, None)
            self._met_ends.pop(where, None)
            self._unplaced.discard(where)
        self._unname(places)
        self._drop_stashed(set(places))
        self._touched.update(places)

    def _unname(self, places: list[Where]) -> None:
        for where in places:
            self._words.pop(where, None)

    def _drop_stashed(self, places: set[Where]) -> None:
        if self._stash:
            self._stash = [m for m in self._stash if (m.topic(), m.partition()) not in places]


def _places(partitions: Iterable[TopicPartition]) -> list[Where]:
    return [(partition.topic, partition.partition) for partition in partitions]


def parse_metadata(metadata: bytes) -> tuple[int, str]:
    """Return generation and member id of ``consumer_group_metadata()``.

    Layout ``CGMDv2:``, int32 generation in native order, group NUL, member NUL, instance.
    Raises BatchAbortedError for any other layout: unfenced offsets are worse than none.
    """
    if not metadata.startswith(b"CGMDv2:"):
        raise BatchAbortedError("group metadata of an unknown layout: offsets are not sent")
    (generation,) = struct.unpack_from("=i", metadata, 7)
    _group, member_id, *_rest = metadata[11:].split(b"\0")
    return generation, member_id.decode("utf-8", "replace")

"""The client's consumer with every call watched, and its errors in the words of the ports.

A consumer may be cut off: no broker answers it, and one answers a new client. An only broker that
is stopped in order says that there are no brokers, and so may a proxy. librdkafka 2.16 then forgets
all it knew, with the addresses it was given, and never connects again; without
``metadata.recovery.strategy`` (properties.py says why) nothing but a new client helps. Asking with
one distinguishes it from an outage.
"""

from __future__ import annotations

import math
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, MemberFencedError, PreflightError, StopError
from hapax.core.ports import Changes, Clock, Watch, Why
from hapax.kafka.client_log import DEBUG, ClientLogMonitor
from hapax.kafka.connection import answers, new_client_answered
from hapax.kafka.consume.decode import NativeIntake
from hapax.kafka.errors import (
    COORDINATOR_MOVES,
    LINE_IS_NO_TEXT,
    UNKNOWN_TOPIC,
    describe,
    is_member_fenced,
    is_of_classic_group,
    place_of,
)
from hapax.kafka.properties import build
from hapax.kafka.read.offsets_client import NO_EPOCH, list_offsets
from hapax.kafka.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionStates
    from hapax.kafka.native import NativePath

LOOK_S, ASK_TIMEOUT_S = 2.0, 0.5
FETCH_WAIT_MAX_MS = 500
"""librdkafka's own, where no property says otherwise."""
PATIENCE_S = 1.0
"""A client that is not cut off connects again within half a second, and is asked twice more."""
ANSWER_TIMEOUT_S = 5.0
PENDING_TIMEOUT_S = 1.0
"""Longest wait for offsets that hang in a transaction, where not knowing them is an answer."""
SERVE_TIMEOUT_S = 2.0
"""Longest service of what is queued before a client is closed."""
PASSING_S = 5.0
"""A coordinator that loads or moves answers within a moment; after that it is worth a warning."""


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


class Silence:
    """Asks now and then, while nothing is read, whether a broker answers. One thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: Progress | None = {}
        self.begin_again()

    def begin_again(self) -> None:
        self.answered = True
        self._due_s = self._clock.monotonic() + LOOK_S
        self._since_s: float | None = None

    def due(self) -> None:
        self._due_s, self._seen = self._clock.monotonic(), None

    def bound(self, timeout_s: float) -> float:
        """Return how long to wait for an answer; short while brokers answer nothing."""
        return timeout_s if self.answered else min(timeout_s, ASK_TIMEOUT_S)

    def cut_off(self, own: GroupConsumer, topic: str, positions: Callable[[], Progress]) -> bool:
        """Ask for ``positions`` when a look is due; whether only new clients get answers."""
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            return False
        before, self._seen = self._seen, positions()
        moved = before is not None and self._seen != before
        # Brokers answer in order: a question waits for a fetch.
        fetch_ms = int(own.properties.get("fetch.wait.max.ms", FETCH_WAIT_MAX_MS))
        self.answered = moved or answers(own.client, fetch_ms / 1000 + ASK_TIMEOUT_S, topic)
        self._due_s = self._clock.monotonic() + (LOOK_S if self.answered else ASK_TIMEOUT_S)
        if self.answered or not new_client_answered(own.properties, ASK_TIMEOUT_S):
            self._since_s = None
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s >= PATIENCE_S


class GroupConsumer:
    """A consumer of one group. One thread only.

    properties  of the client, as they were given
    client      for calls on the record path, inside of ``asking``
    log         what the client's own lines reported
    silence     whether brokers answer it
    progress    returns the offsets that count; None: those that the group has committed
    intake      where native records arrive; None: the client hands all of them out
    """

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        logger: object,
        clock: Clock,
        watch: Watch,
        native: NativePath | None = None,
    ) -> None:
        self.properties = dict(properties)
        self._native = native
        self._clock = clock
        self.intake: NativeIntake | None = None
        self.group = str(properties["group.id"])
        self.log = ClientLogMonitor(logger, clock)
        self.progress: Callable[[Iterable[Where]], dict[Where, TopicPartition]] | None = None
        self.watch = watch
        self.client = self._built()
        self._paused: set[Where] = set()
        self._reasons: dict[Where, set[Why]] = {}
        self._everywhere: set[Why] = set()
        self.silence = Silence(clock)

    def _built(self) -> Consumer:
        properties = {**self.properties, "debug": DEBUG}
        if self._native is None:
            return build(Consumer, properties, self.log)
        client = build(Consumer, self._native.plug_in(properties), self.log)
        self.intake = NativeIntake(self._native, self._clock)
        return client

    def renew(self) -> None:
        if self.intake is not None:
            self.intake.close()
        # Its destructor does not close the dead member: there is nothing to leave.
        self.log.topics.forget()
        self.client = self._built()
        self.silence.begin_again()
        self._paused.clear()
        self._reasons.clear()

    def close(self) -> None:
        """Leave the group, with no change of the assignment still unserved.

        A static member of a cooperative group that closes before it has served its assignment hangs
        permanently, with the interpreter's lock: librdkafka 2.16 ends the group with the answer to
        the assignment, and drops the question that the revocation after it asks.
        """
        with self.watch("close"):
            # a dead member, closed already, or a log line that is no text
            with suppress(KafkaException, RuntimeError, UnicodeDecodeError):
                self._serve_unserved()
            if self.intake is not None:
                self.intake.close()
            with suppress(UnicodeDecodeError):
                self.client.close()
            self.intake = None

    def _serve_unserved(self) -> None:
        """Serve what the client has queued; a change may wait after many records."""
        self.client.pause(self.client.assignment())
        until_s = self._clock.monotonic() + SERVE_TIMEOUT_S
        while self.client.poll(0) is not None and self._clock.monotonic() < until_s:
            pass

    @contextmanager
    def asking(self, call: str) -> Iterator[None]:
        """Watch a call to the client; its errors leave nothing certain but what is committed."""
        try:
            with self.watch(call):
                yield
        except KafkaException as exception:
            error = exception.args[0]
            if error.fatal():
                self.fatal(error)
            raise BatchAbortedError(f"{call}: {describe(error)}", resolved=False) from exception
        except UnicodeDecodeError as error:  # the records that it would have returned are lost
            raise BatchAbortedError(f"{call}: {LINE_IS_NO_TEXT}", resolved=False) from error

    def fatal(self, error: KafkaError) -> None:
        text = describe(error)
        if is_member_fenced(error):
            raise MemberFencedError(
                f"group {self.group} gave this instance name to another member: {text}",
                explained=self.log.troubled,
            )
        if is_of_classic_group(error):
            raise PreflightError(
                f"group {self.group} has members of the classic protocol, and no process of"
                " HAPAX_GROUP__PROTOCOL=consumer can join them. Stop them all, wait until"
                " hapax doctor shows no member (static ones: HAPAX_GROUP__SESSION_TIMEOUT),"
                f" then start: docs/kubernetes.md ({text})"
            )
        raise StopError(f"the consumer is dead: {text}")

    def assignment(self) -> frozenset[Where]:
        with self.asking("assignment"):
            return frozenset(places(self.client.assignment()))

    def metadata(self) -> bytes:
        """Return the live group metadata.

        Raises BatchAbortedError when this is no live member: the broker accepts generation -1 and
        an empty member id *unfenced*, even while others are live members of the group.
        """
        with self.asking("consumer_group_metadata"):
            metadata = bytes(self.client.consumer_group_metadata())
        generation, member_id = parse_metadata(metadata)
        if generation < 0 or not member_id:
            raise BatchAbortedError("no live member of the group: offsets are not sent")
        return metadata

    def committed(
        self, partitions: Iterable[Where], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[Where, TopicPartition]:
        """Wait for transactions that hold an offset; raise BatchAbortedError on a timeout."""
        if self.progress is not None:
            return self.progress(partitions)
        return self.of_group(partitions, timeout_s)

    def of_group(
        self, partitions: Iterable[Where], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[Where, TopicPartition]:
        wanted = [TopicPartition(*where) for where in partitions]
        if not wanted:
            return {}
        with self.asking("committed"):
            answers = self.client.committed(wanted, timeout=self.silence.bound(timeout_s))
        for answer in answers:
            if answer.error is not None:
                raise BatchAbortedError(f"committed: {describe(answer.error)}", resolved=False)
        return {(answer.topic, answer.partition): answer for answer in answers}

    def _topics(self, named: str | None) -> Mapping[str, Any]:
        with self.asking("list_topics"):
            found = self.client.list_topics(named, timeout=self.silence.bound(ANSWER_TIMEOUT_S))
        return dict(found.topics)

    def partitions(self, topics: Sequence[str]) -> list[Where]:
        """Return those of all topics after one question: without records it waits for a fetch."""
        known = self._topics(None if topics[1:] else topics[0])
        found = [topic for topic in topics if topic in known]
        return [(topic, number) for topic in found for number in sorted(known[topic].partitions)]

    def exists(self, topic: str) -> bool:
        error = self._topics(topic)[topic].error
        return error is None or error.code() not in UNKNOWN_TOPIC

    def offsets(self, partitions: Iterable[Where], at: int) -> Progress:
        """One request a broker; raise BatchAbortedError when an answer is missing: ask again."""
        wanted = dict.fromkeys(partitions, at)
        if not wanted:
            return {}
        with self.asking("offsets_for_times"):
            found, refused = list_offsets(self.client, wanted, self.silence.bound(ANSWER_TIMEOUT_S))
        for (topic, number), why in refused.items():
            raise BatchAbortedError(f"offsets of {topic}/{number}: {describe(why)}", resolved=False)
        return {where: offset for where, offset in found.items() if offset is not None}

    def seek(self, where: Where, offset: int, epoch: int | None = None) -> bool:
        """Read on from there. Inside of ``asking``.

        With the leader's epoch under which the log was read so far, the client asks the leader
        first whether it was cut off below this offset (KIP-320), and says so instead. Returns
        whether it asks: a partition that has to be assigned again is fetched without a look
        (librdkafka 2.16).
        """
        position = TopicPartition(*where, offset, leader_epoch=NO_EPOCH if epoch is None else epoch)
        try:
            self.client.seek(position)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            # A partition whose fetching has not started, or has ended in an error, cannot be
            # sought; taking it again can.
            self.client.incremental_unassign([position])
            if self.intake is not None:
                self.intake.route([where])  # unassigning has reset the route
            self.client.incremental_assign([position])
            return False
        return epoch is not None

    def hold(self, where: Where, why: Why, *, held: bool) -> None:
        """Deliver nothing from one partition, or take a reason away. Inside of ``asking``.

        One that leaves while it is held is delivered when it is back, as with ``pause``.
        """
        if held:
            self.client.pause([TopicPartition(*where)])
            self._reasons.setdefault(where, set()).add(why)
            self._paused.add(where)
        else:
            self._reasons.get(where, set()).discard(why)
            self.resume_returned()

    def assign_held(
        self, client: Consumer, partitions: list[TopicPartition], why: Why, at: int = OFFSET_END
    ) -> None:
        """Assign and hold: the client would look up and fetch what is not taken."""
        given = [TopicPartition(*where, at) for where in places(partitions)]
        self.assign(client, given)
        for where in places(given):
            self.hold(where, why, held=True)

    @property
    def _incremental(self) -> bool:
        strategy = self.properties.get("partition.assignment.strategy")
        return (
            strategy == "cooperative-sticky" or self.properties.get("group.protocol") == "consumer"
        )

    def assign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Take these alone of what the group gave. Only in the callback, as ``unassign``."""
        (client.incremental_assign if self._incremental else client.assign)(partitions)

    def unassign(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Give back what was taken of what the group wants back."""
        if self._incremental:
            client.incremental_unassign(partitions)
        else:
            client.unassign()

    def hold_ours(self, where: Where, why: Why, *, held: bool) -> None:
        if where in self.assignment():
            with self.asking("pause"):
                self.hold(where, why, held=held)

    def held(self, why: Why) -> list[Where]:
        return [where for where, reasons in self._reasons.items() if why in reasons]

    def release(self, partitions: Iterable[Where]) -> None:
        partitions = list(partitions)
        if self.intake is not None:
            self.intake.leave(partitions)
        for where in partitions:
            self._reasons.pop(where, None)

    def pause(self, why: Why) -> None:
        self._everywhere.add(why)
        with self.asking("pause"):
            held = self.client.assignment()
            self.client.pause(held)
            self._paused.update(places(held))

    def resume(self, why: Why) -> None:
        self._everywhere.discard(why)
        self.resume_returned()

    def resume_returned(self) -> None:
        """Resume the assigned partitions that are paused, and for which no reason is left.

        The client keeps a partition paused over its loss and the next assignment (measured with
        librdkafka 2.16), so one that left while it was paused is resumed when it is back.
        """
        if self._everywhere:
            return
        free = {where for where in self._paused if not self._reasons.get(where)}
        if not free:
            return
        with self.asking("resume"):
            back = [p for p in self.client.assignment() if (p.topic, p.partition) in free]
            self.client.resume(back)
            self._paused.difference_update(places(back))


def places(partitions: Iterable[TopicPartition]) -> list[Where]:
    return [(partition.topic, partition.partition) for partition in partitions]


_NO_OFFSET = KafkaError(KafkaError._NO_OFFSET).str()
_TRUNCATED = KafkaError(KafkaError._LOG_TRUNCATION).str()
"""The client's own words for why it does not read on: the code is the same for each reason."""


class ConsumerEvents:
    """Notes what the client reports, in the states of partitions and in ``changes``."""

    def __init__(self, consumer: GroupConsumer, states: PartitionStates, clock: Clock) -> None:
        self.changes = Changes()
        self._consumer = consumer
        self._states = states
        self._clock = clock
        self._moving_s = (-math.inf, -math.inf)
        self._assigned = False

    def take(self) -> Changes:
        """Return and forget the changes.

        A member that gets no partition is assigned none, and is ready: by the consumer protocol
        (KIP-848) the client does not say so, and its epoch is above 0 once it has joined.
        """
        changes, self.changes = self.changes, Changes()
        if not self._assigned and changes.assigned is None and self._joined():
            changes.assigned = []
        self._assigned |= changes.assigned is not None
        return changes

    def _joined(self) -> bool:
        if self._consumer.properties.get("group.protocol") == "consumer":
            with suppress(BatchAbortedError):
                return parse_metadata(self._consumer.metadata())[0] > 0
        return False

    def meet(self, message: Any, error: KafkaError) -> None:
        """Judge a message that is no record."""
        code, offset = error.code(), message.offset()
        where = place_of(message)
        if code == KafkaError._PARTITION_EOF:
            self._states.meet_end(where, offset)
        elif code in {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}:
            self._lose(where, error)
        elif code in UNDECODABLE and offset is not None:
            self._states.stuck.meet(where, offset, describe(error))
            self._consumer.hold(where, "undecodable", held=True)
        elif error.fatal() or code == KafkaError._FATAL:
            self._consumer.fatal(error)
        elif code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}:
            raise StopError(f"not allowed to read: {describe(error)}; grant the right and restart")
        elif code in COORDINATOR_MOVES and self._passes():
            self.changes.passing.append(describe(error))
        else:
            # Transport, timeouts, max.poll.interval: these heal, or end in a rebalance.
            self.changes.errors.append(describe(error))

    def _lose(self, where: Where, error: KafkaError) -> None:
        """Take note that the client cannot read on; only its words say why (librdkafka 2.16)."""
        self._states.unplaced.add(where)
        if _NO_OFFSET in error.str():
            return
        state = self._states[where]
        state.refused = True
        if error.code() == KafkaError._LOG_TRUNCATION or _TRUNCATED in error.str():
            state.truncated = describe(error)

    def _passes(self) -> bool:
        """Whether a coordinator has been moving for a moment only; asked once for each error."""
        now_s = self._clock.monotonic()
        first_s, last_s = self._moving_s
        if now_s - last_s > PASSING_S:
            first_s = now_s
        self._moving_s = (first_s, now_s)
        return now_s - first_s < PASSING_S

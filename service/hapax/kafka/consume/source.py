"""Records of the input topics, and positions: the Source port on a Kafka consumer.

Callbacks only record; what they saw is judged after the call that ran them. The client hands out a
batch twice in rare group starts (docs/non-obvious.md): what is below the next offset is dropped.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import Consumer, KafkaError, TopicPartition

from hapax.core.offset_commit import (
    CommittedMetadata,
    GroupOffset,
    Marks,
    OffsetCommit,
    require_assigned,
)
from hapax.core.record_path import Batch
from hapax.kafka.admin.topics import orphans
from hapax.kafka.consume.client import PENDING_TIMEOUT_S, ConsumerEvents, GroupConsumer, places
from hapax.kafka.consume.decode import NativeIntake, messages_of, read, read_native, without
from hapax.kafka.consume.partition_state import PartitionStates
from hapax.kafka.consume.positions import HeldUpPartitions, Positions, TopicIdentity
from hapax.kafka.consume.span_stops import SpanStops
from hapax.kafka.read.offsets_client import LATEST, client_offset
from hapax.processing.crash_markers import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.ports import Changes, Clock, Stuck, Why
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.core.span import SpanWords


WAITING_MAX, WAITING_BYTES_MAX = 500, 16 << 20
"""Records that wait for the first take, and their bytes: no more than a first batch holds."""


class KafkaSource:
    """Brings records of a consumer group's partitions. One thread only."""

    ASSIGNS: ClassVar = False
    """Whether ``_on_assign`` assigns, in place of the client."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        start: str | SpanWords,
        clock: Clock,
        **client: Any,
    ) -> None:
        """Connect, join nothing yet. ``client``: the rest of what GroupConsumer takes."""
        self._consumer = GroupConsumer(properties, clock=clock, **client)
        self._topics = list(topics)
        self._states = PartitionStates(clock)
        self._positions = Positions(self._consumer, self._states, clock, start=start)
        self._stops = SpanStops(self._consumer, self._states, self._positions, start)
        self._identity = TopicIdentity(self._consumer, self._states, self._positions)
        self._events = ConsumerEvents(self._consumer, self._states, clock)
        self._held_up = HeldUpPartitions(self._consumer, self._states, self._positions, clock)
        self._clock = clock
        self._waiting_bytes = 0
        self._surplus = False
        """The group gave more than partitions of inputs: to join again, once, may cure that."""
        self._joined_again = False

    # -- the group ------------------------------------------------------------------------

    def subscribe(self) -> None:
        self._consumer.client.subscribe(
            self._topics,
            on_assign=self._assigned,
            on_revoke=partial(self._gave_back, self._on_revoke),
            on_lost=partial(self._gave_back, self._on_lost),
        )

    def reopen(self) -> None:
        """Join the group again: a new member under the same name, at the committed offsets."""
        self._changes.lost += list(self._states.next_offsets())
        self._states.clear()
        self._consumer.renew()
        self.subscribe()

    def renew(self) -> None:
        """Leave alive, and join again with a new client: a static member keeps its partitions."""
        self.close()
        self.reopen()

    def list_topics(self, timeout_s: float) -> Any:
        """Return the cluster's metadata; raises KafkaException when no broker answers."""
        metadata = self._consumer.client.list_topics(timeout=timeout_s)
        self._consumer.log.topics.meet_cluster(metadata.cluster_id)
        return metadata

    @property
    def cluster_id(self) -> str | None:
        """Kafka's id of the cluster that the positions belong to; None: it is not known yet."""
        return self._consumer.log.topics.cluster

    def meet_cluster(self, cluster_id: str | None) -> None:
        """Compare the cluster a producer has met, on any thread; PositionLostError: another."""
        self._consumer.log.topics.meet_cluster(cluster_id)
        if cluster_id != self.cluster_id:
            self._identity.follow()

    def name_changelog(self, changelog_id: str) -> None:
        """Write with each offset which topic has the state."""
        self._consumer.log.topics.changelog = changelog_id

    def strangers(self) -> list[str]:
        """Return a sentence when the group's offsets were committed on another cluster.

        Before joining. BatchAbortedError: they are not known; PreflightError: of another span.
        """
        self._stops.require(self._every_partition())
        return self._identity.strangers(self._every_partition())

    def told(self, partitions: Iterable[Where] | None = None) -> dict[Where, TopicPartition]:
        """Return the offsets of all, or of some, as the client does; raises as ``strangers``."""
        wanted = self._every_partition() if partitions is None else partitions
        return self._consumer.committed(wanted, PENDING_TIMEOUT_S)

    def assignment(self) -> frozenset[Where]:
        return self._consumer.assignment()

    def member(self) -> bytes:
        return self._consumer.metadata()

    def changes(self) -> Changes:
        changes = self._events.take()
        changes.errors += self._positions.foreign
        self._positions.foreign = []
        if self._consumer.intake is not None:
            changes.routes_lost, changes.native_left = self._consumer.intake.news()
        return changes

    def adopt_orphans(self) -> list[Where] | None:
        """Make the group share out again when no member owns some partitions; return those.

        None: it is not known now; ask again soon.
        Only static members can overlook new partitions (kafka/admin/topics.py).
        """
        properties = self._consumer.properties
        if "group.instance.id" not in properties:
            return []
        every = self._every_partition()
        found: list[Where] | None = []
        if set(every) - self.assignment():
            found = orphans(properties, every, self._consumer.log)
        again = self._surplus and not self._joined_again
        if found or again:
            self._joined_again = self._joined_again or again
            with self._consumer.asking("subscribe"):
                # Leaving and coming back as a known member is what starts a rebalance.
                self._consumer.client.unsubscribe()
                self.subscribe()
        return found

    @property
    def answered(self) -> bool:
        """Whether a broker has answered this client when it was last asked."""
        return self._consumer.silence.answered

    def cut_off(self, *, now: bool = False) -> bool:
        own = self._consumer
        if now:
            own.silence.due()
        return own.silence.cut_off(own, self._topics[0], self._states.next_offsets)

    def close(self) -> None:
        """Leave; a static member stays known to the group for its session timeout."""
        self._consumer.close()

    # -- records --------------------------------------------------------------------------

    def take(self, records_max: int, wait_s: float) -> Batch:
        """See the port; waits up to ``wait_s`` only for the first record."""
        count = max(1, records_max)
        stash = self._states.stash
        messages, self._states.stash = stash[:count], stash[count:]
        self._waiting_bytes = 0
        with self._consumer.asking("take"):
            self._consumer.resume("untaken")
            client = self._consumer.client
            self._held_up.attend()
            if not messages and self._consumer.intake is not None:
                return self._take_native(self._consumer.intake, count, wait_s)
            if not messages:
                # consume(n, t) waits all of t when short of n: one blocking poll, then the rest.
                head = client.poll(wait_s)
                messages = [] if head is None else [head]
                self._consumer.resume_returned()
            self._follow()
            if not messages and not self._states.unplaced:
                return Batch([], {}, {})
            if records_max > len(messages):
                messages += client.consume(records_max - len(messages), 0)
                self._follow()
            return self._read(messages)

    def _take_native(self, intake: NativeIntake, count: int, wait_s: float) -> Batch:
        def serve() -> list[Any]:
            head = self._consumer.client.poll(0)
            self._consumer.resume_returned()
            more = self._consumer.client.consume(count - 1, 0) if head is not None else []
            self._follow()
            return [] if head is None else [head, *more]

        messages, records = intake.arrivals(serve, count, wait_s)
        native = records
        if self._stops.bounded and records is not None:
            native = self._stops.before(records)
        if (batch := read_native(native, self._states)) is not None:
            return self._finish(batch)
        messages = messages if records is None else messages_of(records)
        return self._read(messages) if messages or self._states.unplaced else Batch([], {}, {})

    def _read(self, messages: Sequence[Any]) -> Batch:
        return self._finish(read(messages, self._states, self._changes.repeated, self._events.meet))

    def attend(self, wait_s: float = 0.0) -> None:
        """Serve rebalances without taking records; one that arrives waits for the next take.

        When many wait the partitions are paused: who attends may have to for minutes, and all
        that the client can fetch meanwhile would wait in memory.
        """
        with self._consumer.asking("attend"):
            if len(self._states.stash) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX:
                self._consumer.pause("untaken")
            message = self._consumer.client.poll(wait_s)
            self._follow()
            if message is None:
                return
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                # An end counts only after the records before it, which wait here, too.
                self._states.stash.append(message)
                self._waiting_bytes += len(message)
            else:
                self._events.meet(message, error)

    def _finish(self, batch: Batch) -> Batch:
        """Check positions that are in doubt, and add progress after what no reader can see."""
        states = self._states
        self._identity.place()
        if states.stale:
            self._positions.reread_stale()
        self._identity.check(batch.first.keys() | states.ends.keys())
        if again := self._positions.prove(batch.first.keys() | states.ends.keys()):
            batch = without(batch, again)
        self._positions.meet(batch.first)
        ends, states.ends = states.ends, {}
        for where, end in ends.items():
            if end >= states[where].untaken:
                states[where].next = batch.next[where] = end
                states[where].learn_epoch(self._consumer.log.topics.epoch(where), end)
        return self._stops.cut(batch) if self._stops.bounded else batch

    def stuck(self) -> Mapping[Where, Stuck]:
        return self._states.stuck.known

    def _follow(self) -> None:
        self._identity.follow()
        self._positions.beginning.check()

    def pause(self, why: Why) -> None:
        self._consumer.pause(why)

    def resume(self, why: Why) -> None:
        self._consumer.resume(why)

    def hold(self, where: Where, why: Why, *, held: bool) -> None:
        self._consumer.hold_ours(where, why, held=held)

    # -- positions ------------------------------------------------------------------------

    def mark_processed(self, progress: Mapping[Where, int]) -> None:
        for where, offset in progress.items():
            self._states[where].settled = offset
            self._states.reach(where, self._consumer.log.topics.known(where[0]), offset)

    def processed(self) -> Progress:
        """Return offsets, of a partition without a committed one as well: it began by a rewind."""
        return self._states.settled_offsets()

    def positions(self) -> Progress:
        return self._states.next_offsets()

    def rewind(self, progress: Mapping[Where, int]) -> None:
        self._positions.rewind(progress)
        self._stops.release(progress)

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        return self._positions.committed(partitions)

    def offset_commit(
        self, progress: Mapping[Where, int], marks: Marks | None = None
    ) -> OffsetCommit:
        """Return progress to commit, as a live member that is assigned all of it.

        Raises BatchAbortedError when it is not: the broker checks neither who is assigned a
        partition nor, without a live member, anything else.
        """
        require_assigned(progress, self.assignment())
        offsets = [self.offset(where, offset) for where, offset in progress.items()]
        if marks:
            for at, one in enumerate(offsets):
                if (mark := marks.get(one[:2])) is not None:
                    offsets[at] = one._replace(metadata=marked(one.metadata, mark))
        return OffsetCommit(offsets, self.member())

    def offset(self, where: Where, offset: int) -> GroupOffset:
        state, ids = self._states.get(where), self._consumer.log.topics
        if state is None:
            return ids.offset(where, offset)
        epoch = state.epoch_of(offset)
        return ids.offset(where, offset, beside=state.committed, epoch=epoch)

    def beside(self, where: Where) -> CommittedMetadata:
        if self._states[where].beside is None:
            self.committed([where])
        return self._states[where].committed

    def commit(self, commit: OffsetCommit) -> None:
        """Commit offsets outside of any transaction (the weaker guarantees only)."""
        with self._consumer.asking("commit"):
            offsets = list(map(client_offset, commit.offsets))
            self._consumer.client.commit(offsets=offsets, asynchronous=False)

    def group_knows(self) -> bool:
        """Return whether Hapax has committed an offset of the group. Before or after joining."""
        found = self._consumer.committed(self._every_partition()).values()
        known = (CommittedMetadata.of(one) for one in found if one.offset >= 0)
        return any(one != CommittedMetadata() for one in known)

    def ends(self) -> Progress | None:
        """Return where a bounded run ends in each input partition; None: ask again soon."""
        return self._stops.ends(self._every_partition())

    def last_stable_offsets(self, partitions: Iterable[Where]) -> Progress:
        """Return how far readers of committed records come now; raises as ``committed``."""
        return self._consumer.offsets(partitions, LATEST)

    def _every_partition(self) -> list[Where]:
        return self._consumer.partitions(self._topics)

    @property
    def _changes(self) -> Changes:
        return self._events.changes

    # -- what the client reports ------------------------------------------------------------

    def _assigned(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """Take partitions of the inputs alone.

        A static member that is back within the session timeout gets what it had, topics that it no
        longer subscribes to as well, and the client would read those (Kafka 4.4, librdkafka 2.16).
        """
        ours = self._ours(partitions)
        self._on_assign(client, ours)
        if len(ours) == len(partitions):
            return
        if not self.ASSIGNS:
            self._consumer.assign(client, ours)
        others = sorted({str(one.topic) for one in partitions} - {*self._topics})
        self._changes.errors.append(
            f"{', '.join(others)}: not read; the group gave this member what it had when it left,"
            " and that is no input any more"
        )
        self._surplus = True

    def _gave_back(
        self,
        take_note: Callable[[Consumer, list[TopicPartition]], None],
        client: Consumer,
        partitions: list[TopicPartition],
    ) -> None:
        ours = self._ours(partitions)
        take_note(client, ours)
        if len(ours) < len(partitions):
            self._consumer.unassign(client, ours)

    def _ours(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [one for one in partitions if one.topic in self._topics]

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned = places(partitions)
        self._changes.assigned = [*(self._changes.assigned or []), *assigned]
        for where in assigned:
            self._states[where].beside = None
        if self._consumer.intake is not None:
            self._consumer.intake.route(assigned)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changes.revoked += places(partitions)
        self._leave(places(partitions))

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._changes.lost += places(partitions)
        self._leave(places(partitions))

    def _leave(self, left: list[Where]) -> None:
        self._states.leave(left)
        self._consumer.release(left)

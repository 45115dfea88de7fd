"""Sources with more to do: outputs on another cluster, later tries, Spark.

Another cluster. Progress counts where the outputs are. The group shares the partitions out, and
nothing else of it counts: a partition that comes is read from what the cluster of the outputs has
committed for it, once its lane there is open (produce/target.py). What the group has committed here
follows for tools that show lag, and shows one thing: that the partition had progress once.

Later tries. The retry topic is read together with the inputs. A record of it is handed out when its
wait is over (delay_buffer.py); until then it lies in memory, nothing after it in its partition is
handed out, and no other partition notices.

Spark. The driver is the member. It holds the partitions, answers rebalances and lends its group
metadata to the tasks, which read given partitions from given offsets and commit. Its own positions
mean nothing, so its partitions are paused from the start. The broker refuses what a task sends once
the partitions have moved (measured: classic groups refuse any older generation, KIP-848 groups an
older epoch for a partition that the member lost).
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, PositionLostError, StopError
from hapax.core.offset_commit import informative
from hapax.kafka.consume.client import parse_metadata, places
from hapax.kafka.consume.delay_buffer import keeps_order
from hapax.kafka.consume.positions import Beginning
from hapax.kafka.consume.source import KafkaSource
from hapax.kafka.properties import admin_properties
from hapax.kafka.read.offsets_client import (
    EARLIEST,
    LATEST,
    BackgroundEnds,
    client_offset,
    offset_or_none,
)
from hapax.processing.plan import OtherCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hapax.core.ports import Clock
    from hapax.core.record_path import Batch
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.kafka.produce.target import TargetTransaction

NOWHERE = 0
"""Where a partition is assigned before it is placed. An end or a beginning would be looked up, and
the answer would move the partition after it was placed: librdkafka 2.16 does not compare it with
the seek that came in between, and all records up to the end were lost (the campaign, 1 of 32
strikes)."""
TOLD_INTERVAL_S = 1.0
"""How far the group's own offsets may lag."""


class KafkaTargetSource(KafkaSource):
    """Brings records of partitions whose progress is on another cluster. One thread only.

    lanes      where the progress is; to be set first
    elsewhere  what outputs carry, once ``meet_target`` has returned
    """

    lanes: TargetTransaction
    elsewhere: OtherCluster

    ASSIGNS = True

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        start: str,
        clock: Clock,
        **client: Any,
    ) -> None:
        super().__init__(properties, topics, start=start, clock=clock, **client)
        self._identity.elsewhere = True
        self._untold: Progress = {}
        self._told_s = 0.0

    def meet_target(self, *, mirrors: bool) -> list[str]:
        """``mirrors``: records pass unchanged, and keep partitions where numbers are equal."""
        counts = {topic: len(self._consumer.numbers(topic)) for topic in self._topics}
        partitions = self.lanes.partitions
        unlike = [f"{topic} {count}" for topic, count in counts.items() if count != partitions]
        self.elsewhere = OtherCluster(
            (self.cluster_id or "").encode(),
            (self.lanes.cluster or "").encode(),
            mirrors,
            partitions if mirrors and not unlike else 0,
        )
        if not (mirrors and unlike):
            return []
        remark = (
            f"the output topic has {partitions} partitions, and of the inputs {', '.join(unlike)}:"
            " records do not keep the number of their partition, and hapax offsets translate"
            " cannot be used"
        )
        return [remark]

    def told(self, partitions: Iterable[Where] | None = None) -> dict[Where, TopicPartition]:
        """Return what the group has here; of some partitions what the cluster of outputs has."""
        if partitions is None:
            return super().told()
        return self.lanes.progress(partitions, frozenset())

    def subscribe(self) -> None:
        """Join the group; from here on its own offsets do not count."""
        self._consumer.progress = self._progress
        super().subscribe()

    def progress_of(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        found = self.lanes.progress(partitions, frozenset())
        return {where: offset_or_none(one) for where, one in found.items()}

    def take(self, records_max: int, wait_s: float) -> Batch:
        """See the port; partitions that have come are placed first."""
        self._place()
        self._tell()
        self.lanes.keep()
        return super().take(records_max, wait_s)

    def mark_processed(self, progress: Mapping[Where, int]) -> None:
        super().mark_processed(progress)
        self._untold.update(progress)

    def close(self) -> None:
        """Leave; what the group has not got is committed first."""
        with suppress(BatchAbortedError):
            self._tell(now=True)
        super().close()

    def _place(self) -> None:
        if self._states.stale and self._states.stale & self._consumer.assignment():
            self._positions.reread_stale()
        # Placed here, or by the call in which they came, which knows nothing of what is held.
        for where in set(self._consumer.held("unplaced")) - self._states.stale:
            self._consumer.hold_ours(where, "unplaced", held=False)

    def _progress(self, partitions: Iterable[Where]) -> dict[Where, TopicPartition]:
        wanted = list(partitions)
        found = self.lanes.progress(wanted, self._consumer.assignment())
        unknown = [where for where in wanted if found[where].offset < 0]
        for where, before in self._consumer.of_group(unknown).items():
            if before.offset >= 0:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: group {self._consumer.group} has read up to"
                    f" {before.offset}, and the cluster of the outputs has no progress of it: its"
                    " output topic was deleted, its offsets expired while nothing ran, it is"
                    " another cluster, or the group worked without one before. Give the pipeline a"
                    " new HAPAX_APP, or see docs/other-cluster.md to set the progress"
                )
        return found

    def _tell(self, *, now: bool = False) -> None:
        """Commit what was processed for tools that show the group. Nothing relies on it."""
        now_s = self._clock.monotonic()
        if not self._untold or (not now and now_s - self._told_s < TOLD_INTERVAL_S):
            return
        ours = self._consumer.assignment()
        offsets = [
            informative(self.offset(where, at), self.lanes.cluster)
            for where, at in self._untold.items()
            if where in ours
        ]
        self._untold, self._told_s = {}, now_s
        commit, told = self._consumer.client.commit, list(map(client_offset, offsets))
        with suppress(KafkaException):  # a group that is changing; the next commit shows more
            if now:
                commit(offsets=told, asynchronous=False)
            else:
                commit(offsets=told)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_assign(consumer, partitions)
        self._consumer.assign_held(consumer, partitions, "unplaced", NOWHERE)
        self.lanes.leave(places(partitions))
        self._states.stale.update(places(partitions))

    def _leave(self, left: list[Where]) -> None:
        super()._leave(left)
        self.lanes.leave(left)


# -- Later tries -----------------------------------------------------------------------------------


SHORT_QUEUE = {"queued.min.messages": 5000, "fetch.message.max.bytes": 128 << 10}
"""Records that are due come after what the client has fetched of a backlog: with the defaults 2.7 s
of it (median; 4.3 s at most), with these 0.9 s (1.8 s), at 10,000 records a second."""


class KafkaRetrySource(KafkaSource):
    """Brings records of the inputs, and those of the retry topic when they are to be looked at."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topics: Sequence[str],
        *,
        retry: str,
        now_ms: Callable[[], int],
        **parts: Any,
    ) -> None:
        """Connect, join nothing yet. ``retry``: the topic; ``now_ms``: Unix time."""
        super().__init__({**SHORT_QUEUE, **properties}, [*topics, retry], **parts)
        # It holds only what the pipeline wrote itself: nothing in it may be passed over.
        self._positions.beginning.whole = frozenset([retry])
        self._retry = retry
        self._now_ms = now_ms
        self._room, self._looked = 1, False

    def take(self, records_max: int, wait_s: float) -> Batch:
        """See the port; a record whose wait is over counts as available."""
        delayed = self._states.delayed
        self._room, self._looked = max(1, records_max), False
        self._turn_partitions()
        # Ripe ones first, or a backlog in the inputs would keep them waiting; but the client is
        # asked each time, for it is what serves rebalances.
        left = max(1, records_max - delayed.due(records_max))
        batch = super().take(left, delayed.wait_s(wait_s))
        if not self._looked and delayed.due(1):
            with self._consumer.asking("take"):
                batch = self._read([])
        return batch

    def _read(self, messages: Sequence[Any]) -> Batch:
        self._looked = True
        delayed, stale = self._states.delayed, self._states.stale
        now_ms, others = self._now_ms(), []
        for message in messages:
            where = (message.topic(), message.partition())
            if where[0] == self._retry and keeps_order(message) and where not in stale:
                delayed.put(where, message, now_ms)
            else:
                others.append(message)
        due = delayed.take(max(0, self._room - len(others)))
        return super()._read([*due, *others])

    def _turn_partitions(self) -> None:
        """Read no more of partitions of which much waits, and on where there is room again."""
        delayed, held = self._states.delayed, self._consumer.held("waiting")
        for where in delayed.full():
            if where not in held:
                self._consumer.hold_ours(where, "waiting", held=True)
        for where in filter(delayed.has_room, held):
            offset = delayed.next_offset(where)
            with self._consumer.asking("resume"):
                if offset is not None and where in self.assignment():
                    self._consumer.seek(where, offset, self._states[where].epoch_of(offset))
                self._consumer.hold(where, "waiting", held=False)

    def waiting(self) -> int:
        """Return how many assigned records wait in memory. Any thread may call."""
        return self._states.delayed.records

    def unread(self) -> int:
        """Return how many offsets of the assigned partitions are not read yet, markers included."""
        ours = [where for where in self.assignment() if where[0] == self._retry]
        lows, highs = (self._consumer.offsets(ours, at) for at in (EARLIEST, LATEST))
        count = 0
        for where in ours:
            behind = self._states.delayed.next_offset(where)
            behind = self._states[where].next if behind is None else behind
            count += max(0, highs[where] - (lows[where] if behind is None else behind))
        return count


# -- Spark -----------------------------------------------------------------------------------------


class KafkaMember(KafkaSource):
    """Joins, holds and attends. One thread only."""

    ASSIGNS = True

    @cached_property
    def _stable_ends(self) -> BackgroundEnds:
        return BackgroundEnds(admin_properties(self._consumer.properties), self._consumer.log)

    def attend(self, wait_s: float = 0.0) -> None:
        super().attend(wait_s)
        self._states.drop_pending()
        self._waiting_bytes = 0

    def stable_ends(self, partitions: Iterable[Where]) -> Progress:
        """Leave out partitions without an answer yet, or return the end known before."""
        ends = self._stable_ends.of(partitions)
        self._changes.errors += self._stable_ends.errors
        self._stable_ends.errors.clear()
        return self._stops.limit(ends)

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        """Return stable offsets. From then on they show whether a topic was recreated."""
        stable = super().committed(partitions)
        self.mark_processed({where: at for where, at in stable.items() if at is not None})
        return stable

    def begin(self, partitions: Iterable[Where]) -> Progress | None:
        """Return what was committed as the beginning of partitions without an offset.

        None: another member is about to; ask again soon. Only ``latest`` and spans commit:
        elsewhere a partition without an offset is read from its first record by any member.
        """
        if not self._positions.beginning.commits:
            return {}
        wanted = list(partitions)
        begun = self._positions.beginning.places(wanted)
        return {w: begun[w] for w in wanted} if begun.keys() >= set(wanted) else None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_assign(consumer, partitions)
        self._consumer.assign_held(consumer, partitions, "member")


class KafkaRange(KafkaSource):
    """Reads ``starts`` (partition → next offset, None: the group has none) without a member."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        starts: Mapping[Where, int | None],
        *,
        member: bytes,
        cluster_id: str | None = None,
        **parts: Any,
    ) -> None:
        """Connect, assign nothing yet. ``parts``: as those of KafkaSource.

        ``cluster_id``: of the cluster that the driver is a member in. Where the group begins is
        the driver's to say: a partition without an offset is read from its first record.
        """
        # Committed offsets are looked up under the group's name; it is not joined here.
        alone = {name: value for name, value in properties.items() if name != "group.instance.id"}
        topics = sorted({topic for topic, _partition in starts})
        super().__init__(alone, topics, **parts)
        if self._positions.beginning.commits:
            self._positions.beginning = Beginning(self._consumer, start="earliest")
        self._consumer.log.topics.meet_cluster(cluster_id)
        self._starts = dict(starts)
        self._member = member

    def place(self) -> None:
        for where, offset in self._starts.items():
            if offset is not None:
                state = self._states[where]
                state.next = state.settled = offset
        if self._consumer.intake is not None:
            self._consumer.intake.route(self._starts)
        with self._consumer.asking("assign"):
            self._consumer.client.incremental_assign(
                [
                    TopicPartition(*where, OFFSET_INVALID if offset is None else offset)
                    for where, offset in self._starts.items()
                ]
            )

    def confirm(self) -> Progress:
        """Return what the group has committed, once no earlier attempt can commit any more.

        An earlier attempt may have come further: continue after it. Raises PositionLostError when
        the group knows less than the driver did: to continue would double records.
        """
        stable = self.committed(self._starts)
        for where, known in self._starts.items():
            offset = stable[where]
            if offset == known:
                continue
            if offset is None or (known is not None and offset < known):
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: {known} was committed, but group"
                    f" {self._consumer.group} now has {offset}: its topic was deleted and"
                    " recreated, or its offsets were set back or deleted. Set the group's offset,"
                    " or start again: where it has none HAPAX_INPUT__START decides"
                )
            self.rewind({where: offset})
        return {where: offset for where, offset in stable.items() if offset is not None}

    def member(self) -> bytes:
        generation, member_id = parse_metadata(self._member)
        if generation < 0 or not member_id:
            raise BatchAbortedError("the driver was no live member of the group")
        return self._member

    def adopt_orphans(self) -> list[Where]:
        """Leave that to the driver."""
        return []

    def reopen(self) -> None:
        """Refuse: a task is no member."""
        raise StopError("a range has no member to replace")

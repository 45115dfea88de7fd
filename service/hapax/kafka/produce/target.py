"""Outputs and progress on another cluster: the Transaction port with a lane for each partition.

A batch is cut into its partitions, and each part is committed by the lane of its partition, one
after the other. When one fails, those before it are committed and those after it have not begun;
every partition is then read from what is committed, so that no part has a second effect.

The group that shares the partitions out lives on the cluster of the input, so that nothing of it
fences on that of the outputs; only a transactional id does. It belongs to the partition: the member
that gets it registers, which aborts what its predecessor left and refuses whatever that still
sends, and then reads the progress. The coordinator commits for the newest producer alone.

The progress is the committed offset of a group of the partition's own, on partition 0 of the output
topic: brokers take offsets of partitions that they have, and the input's they need not have. It
goes when the output topic is deleted, as its records do.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import (
    BatchAbortedError,
    ConfigurationError,
    PositionLostError,
    ProducerDeadError,
    StopError,
)
from hapax.core.headers import SOURCE, coordinates
from hapax.core.offset_commit import GroupOffset, OffsetCommit, text_of
from hapax.core.ports import IN_DOUBT, Clock
from hapax.core.record_path import Outputs
from hapax.kafka.produce.micro_batch import (
    ANSWER_TIMEOUT_S,
    MarkedNames,
    marker_group,
    stable_offset,
)
from hapax.kafka.produce.standalone import named_transaction
from hapax.kafka.properties import admin_properties, build, consumer_properties, transactional_id
from hapax.kafka.read.offsets_client import client_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.records import Message, TopicPartition as Where
    from hapax.settings import Settings

KEEP_INTERVAL_S = 6 * 3600.0
"""Well below ``offsets.retention.minutes``, of which seven days are the default."""
NOTHING_COMMITTED = -1001
"""What the client says in place of an offset where there is none."""


def target_prefixes(app: str) -> MarkedNames:
    """Return how the names of all lanes begin; topic and partition follow."""
    return MarkedNames(f"{app}/from/", f"{app}--from/")


def target_names(app: str, where: Where) -> MarkedNames:
    """Return those of a lane; no worker's id, and no group of an app, has a slash."""
    topic, partition = where
    return MarkedNames(*(f"{prefix}{topic}/{partition}" for prefix in target_prefixes(app)))


def shown_id(settings: Settings) -> str:
    """Return the transactional id of a process; with another cluster, the form of its lanes'."""
    if settings.elsewhere:
        return f"{target_prefixes(settings.app).transactional_id}TOPIC/PARTITION"
    return transactional_id(settings)


def target_progress(
    settings: Settings, where: Where, logger: object
) -> tuple[GroupOffset | None, bytes]:
    """Return the progress of an input partition, and the metadata of the group that has it.

    ``settings``: of the cluster of the outputs. The answer waits while a transaction has the
    progress. Raises BatchAbortedError when no answer comes, StopError when a right is missing.
    """
    key = (settings.output.topic, 0)
    names = target_names(settings.app, where)
    what = f"the progress of {where[0]}/{where[1]} on the cluster of the outputs"
    with closing(marker_group(settings, names, logger)) as member:
        # Coordinator queries before the first connection is up wait for a timer of 500 ms.
        with suppress(KafkaException):
            member.list_topics(key[0], timeout=ANSWER_TIMEOUT_S)
        answer = stable_offset(member, key, what)
        metadata = bytes(member.consumer_group_metadata())
    if answer.offset < 0:
        return None, metadata
    return GroupOffset(
        *where, answer.offset, text_of(answer) or None, answer.leader_epoch
    ), metadata


class TargetLane:
    """The producer of one input partition.

    progress  what is committed for it on the cluster of the outputs; None: nothing yet
    kept_s    since when the progress may have rested; 0: not looked yet
    sound     whether that is certain, and only this lane can move it
    """

    def __init__(
        self, settings: Settings, where: Where, *, logger: object, **producing: Any
    ) -> None:
        """Connect to nothing yet. ``settings``: of the cluster of the outputs."""
        self._settings = settings
        self._where = where
        self._logger = logger
        self._key = (settings.output.topic, 0)
        name = target_names(settings.app, where).transactional_id
        self.transaction = named_transaction(settings, name, **producing)
        self._group = b""
        self.kept_s = 0.0
        self.progress: GroupOffset | None = None
        self.sound = False

    @property
    def offset(self) -> int | None:
        """The next offset to read, as far as is committed; None: nothing is."""
        return None if self.progress is None else self.progress.offset

    def open(self) -> None:
        """Raise ProducerDeadError or BatchAbortedError when brokers do not answer: call again."""
        self.sound = False
        self.transaction.open()
        self.progress, self._group = target_progress(self._settings, self._where, self._logger)
        self.sound = True

    def run(self, messages: Sequence[Message], offset: GroupOffset) -> None:
        """Commit both; after a failure the progress is read again, for nothing is certain."""
        if not self.sound:
            raise BatchAbortedError(
                f"{self._where[0]}/{self._where[1]}: its lane is not open", resolved=False
            )
        self.sound = False
        transaction = self.transaction
        transaction.begin()
        transaction.send(Outputs(messages))
        own = offset._replace(topic=self._key[0], partition=self._key[1])
        transaction.send_offsets(OffsetCommit([own], self._group))
        transaction.commit()
        self.progress, self.sound = offset, True

    def keep(self, now_s: float) -> None:
        """Commit the progress once more when it has rested for long: brokers forget what rests."""
        self.kept_s = self.kept_s or now_s
        if self.sound and self.progress is not None and now_s - self.kept_s > KEEP_INTERVAL_S:
            self.kept_s = now_s
            self.run([], self.progress)

    def renew(self) -> None:
        """Take a new producer, after a doubt; sound only where the progress is what it was."""
        before = self.offset
        self.open()
        self.sound = self.offset == before

    def close(self) -> None:
        self.sound = False
        self.transaction.close()


class TargetTransaction:
    """Lanes of the assigned partitions. One thread only, but for ``open`` at the start.

    cluster     Kafka's id of the cluster of the outputs; None: it is not known yet
    partitions  of the output topic, once they were listed
    """

    one_by_one = True
    """Outputs are sorted by their partitions: the native path does not do that."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        logger: object,
        source_cluster: Callable[[], str | None],
        on_retry: Callable[[Where, str], None],
        **producing: Any,
    ) -> None:
        """Connect to nothing yet. ``on_retry``: called for each lane that could not be opened."""
        self._settings = settings.target
        self._clock = clock
        self._logger = logger
        self._source_cluster = source_cluster
        self._on_retry = on_retry
        self._producing = {**producing, "clock": clock, "meet_cluster": self.meet_cluster}
        self._lanes: dict[Where, TargetLane] = {}
        self._messages: Sequence[Message] = ()
        self._offsets: Sequence[GroupOffset] = ()
        self._began_s = 0.0
        self._lock = threading.Lock()
        self.cluster: str | None = None
        self.partitions = 0

    def list_topics(self, timeout_s: float) -> Any:
        properties = admin_properties(consumer_properties(self._settings))
        metadata: Any = build(AdminClient, properties, self._logger).list_topics(timeout=timeout_s)
        self.meet_cluster(metadata.cluster_id)
        output = metadata.topics.get(self._settings.output.topic)
        self.partitions = 0 if output is None else len(output.partitions)
        return metadata

    # -- the lanes ------------------------------------------------------------------------

    def meet_cluster(self, cluster_id: str | None) -> None:
        """Raise ConfigurationError: the input's cluster. PositionLostError: another than before."""
        servers = self._settings.kafka.bootstrap_servers
        if cluster_id is None:
            return
        if cluster_id == self._source_cluster():
            raise ConfigurationError(
                f"HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS={servers}: its brokers are those of"
                f" cluster {cluster_id}, which is read: remove it, and outputs go there in one"
                " transaction with the group's offsets"
            )
        with self._lock:
            self.cluster = self.cluster or cluster_id
        if cluster_id != self.cluster:
            raise PositionLostError(
                f"HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS={servers}: its brokers are now those of"
                f" cluster {cluster_id}; outputs and progress are on cluster {self.cluster}."
                " Correct the address, or give the pipeline a new HAPAX_APP"
            )

    def leave(self, partitions: Iterable[Where]) -> None:
        """Drop the lanes of partitions that left, or came: who has them now opens them."""
        for where in partitions:
            lane = self._lanes.pop(where, None)
            if lane is not None:
                lane.close()

    def progress(
        self, partitions: Iterable[Where], ours: frozenset[Where]
    ) -> dict[Where, TopicPartition]:
        """Return the committed offsets in the form of the client's own call.

        An assigned partition (``ours``) gets its lane first, so that no other process moves it from
        here on. Raises BatchAbortedError when no answer comes.
        """
        found = {}
        for where in partitions:
            if where in ours:
                known = self._opened(where).progress
            else:
                known, _group = target_progress(self._settings, where, self._logger)
            nothing = TopicPartition(*where, NOTHING_COMMITTED)
            found[where] = nothing if known is None else client_offset(known)
        return found

    def keep(self) -> None:
        now_s = self._clock.monotonic()
        for lane in self._lanes.values():
            lane.keep(now_s)

    def _opened(self, where: Where) -> TargetLane:
        lane = self._lanes.get(where)
        if lane is None:
            lane = TargetLane(self._settings, where, logger=self._logger, **self._producing)
            self._lanes[where] = lane
        if not lane.sound:
            failure = _failure_of(lane.open)
            if failure is not None:
                self._on_retry(where, failure)
                raise BatchAbortedError(
                    f"{where[0]}/{where[1]}: the cluster of the outputs does not answer: {failure}",
                    resolved=False,
                )
        return lane

    # -- the port -------------------------------------------------------------------------

    @property
    def doubts(self) -> list[str]:
        return [doubt for lane in self._lanes.values() for doubt in lane.transaction.doubts]

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def open(self) -> None:
        """Renew doubtful producers; a lane that is unsound then refuses, and is read again."""
        for lane in self._lanes.values():
            if lane.sound and lane.transaction.doubts:
                try:
                    lane.renew()
                except BatchAbortedError as error:
                    raise ProducerDeadError(str(error)) from None
            elif lane.transaction.doubts:
                lane.close()
                lane.transaction.doubts.clear()

    def begin(self) -> None:
        doubts = self.doubts
        if doubts:
            raise ProducerDeadError(f"begin: {IN_DOUBT} ({doubts[0]})")
        self._began_s = self._clock.monotonic()
        self._messages, self._offsets = (), ()

    def send(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def send_offsets(self, commit: OffsetCommit) -> None:
        """Take the progress, as the source has just returned it: it has looked at the group."""
        self._offsets = commit.offsets

    def commit(self) -> None:
        """Commit partition by partition; what is raised says nothing of those before it."""
        parts = self._parts()
        for offset in self._offsets:
            where = (offset.topic, offset.partition)
            lane = self._lanes.get(where)
            if lane is None:
                raise BatchAbortedError(f"{where[0]}/{where[1]} has no lane", resolved=False)
            places = parts.get(where, [])
            try:
                lane.run([self._messages[index] for index in places], offset)
            except BatchAbortedError as error:
                error.resolved = False
                error.refused = {places[index]: why for index, why in error.refused.items()}
                raise
        self._messages, self._offsets = (), ()

    def abort(self) -> None:
        self._messages, self._offsets = (), ()

    def close(self) -> None:
        self.leave(list(self._lanes))

    # -- inside ---------------------------------------------------------------------------

    def _parts(self) -> dict[Where, list[int]]:
        parts: dict[Where, list[int]] = {}
        known: dict[bytes, list[int]] = {}
        ours = {(offset.topic, offset.partition) for offset in self._offsets}
        for index, message in enumerate(self._messages):
            source = next(value for name, value in reversed(message.headers) if name == SOURCE)
            prefix, _slash, number = (source or b"").rpartition(b"/")
            part = known.get(prefix)
            if part is None:
                found = coordinates(source)
                if found is None or found[:2] not in ours:
                    raise StopError(f"an output comes from {source!r}, which is not of this batch")
                part = known[prefix] = parts.setdefault(found[:2], [])
            if not part:
                self._require_new(source, int(number))
            part.append(index)
        return parts

    def _require_new(self, source: bytes | None, offset: int) -> None:
        found = coordinates(source)
        lane = None if found is None else self._lanes.get(found[:2])
        if lane is not None and lane.offset is not None and offset < lane.offset:
            lane.sound = False
            raise BatchAbortedError(
                f"{source!r} is committed on the cluster of the outputs up to {lane.offset}",
                resolved=False,
            )


def _failure_of(opened: Callable[[], None]) -> str | None:
    try:
        opened()
    except (ProducerDeadError, BatchAbortedError) as error:
        return str(error)
    return None

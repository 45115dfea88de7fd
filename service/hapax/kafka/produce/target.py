"""Outputs and progress on another cluster: the Transaction port with a lane for each partition.

A batch is cut into its partitions, and each part is committed by the lane of its partition
(target_lane.py), one after the other. When one fails, those before it are committed and those
after it have not begun; every partition is then read from what is committed, so that no part has a
second effect.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import (
    BatchAbortedError,
    ConfigurationError,
    PositionLostError,
    ProducerDeadError,
    StopError,
)
from hapax.core.headers import SOURCE, coordinates
from hapax.core.ports import IN_DOUBT
from hapax.kafka.offset_commit import client_offsets
from hapax.kafka.produce.target_lane import TargetLane, target_progress
from hapax.kafka.properties import admin_properties, build, consumer_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.offset_commit import GroupOffset, OffsetCommit
    from hapax.core.ports import Clock, Message
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

NOTHING_COMMITTED = -1001
"""What the client says in place of an offset where there is none."""


class TargetTransaction:
    """Lanes of the partitions that are ours. One thread only, but for ``open`` at the start.

    cluster     Kafka's id of the cluster of the outputs; None: it is not known yet
    partitions  of the output topic, once they were listed
    """

    one_by_one = True
    """Messages are sorted by their partitions: the native path does not do that."""

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
        """Connect to nothing yet. ``source_cluster``: the id of the cluster that is read.

        ``on_retry`` is told of each lane that could not be opened, and why.
        """
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
        """Return the metadata of the cluster; raises KafkaException when no broker answers."""
        properties = admin_properties(consumer_properties(self._settings))
        metadata: Any = build(AdminClient, properties, self._logger).list_topics(timeout=timeout_s)
        self.meet_cluster(metadata.cluster_id)
        output = metadata.topics.get(self._settings.output.topic)
        self.partitions = 0 if output is None else len(output.partitions)
        return metadata

    # -- the lanes ------------------------------------------------------------------------

    def meet_cluster(self, cluster_id: str | None) -> None:
        """Compare the cluster that answers for the outputs, before anything is fenced there.

        Raises ConfigurationError for the cluster of the input, PositionLostError for another one
        than before.
        """
        servers = self._settings.kafka.bootstrap_servers
        if cluster_id is None:
            return
        if cluster_id == self._source_cluster():
            problem = (
                f"HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS={servers}: its brokers are those of"
                f" cluster {cluster_id}, which is read: remove it, and outputs go there in one"
                " transaction with the group's offsets"
            )
            raise ConfigurationError([problem])
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

        A partition of ours gets its lane first, so that no other process moves it from here on.
        Raises BatchAbortedError when no answer comes.
        """
        found = {}
        for where in partitions:
            if where in ours:
                known = self._opened(where).progress
            else:
                known, _group = target_progress(self._settings, where, self._logger)
            found[where] = (
                TopicPartition(*where, NOTHING_COMMITTED)
                if known is None
                else client_offsets([known])[0]
            )
        return found

    def keep(self) -> None:
        """Keep the progress of partitions that rest from being forgotten."""
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
        """What made a request of a last transaction go out twice."""
        return [doubt for lane in self._lanes.values() for doubt in lane.transaction.doubts]

    @property
    def age_s(self) -> float:
        """Seconds since the last begin."""
        return self._clock.monotonic() - self._began_s

    def open(self) -> None:
        """Renew the producers that are in doubt; the others open with their partitions' progress.

        A lane that is not sound afterwards refuses, and its partition is read again.
        """
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
        """Start; local, costs no request."""
        doubts = self.doubts
        if doubts:
            raise ProducerDeadError(f"begin: {IN_DOUBT} ({doubts[0]})")
        self._began_s = self._clock.monotonic()
        self._messages, self._offsets = (), ()

    def send(self, messages: Sequence[Message]) -> None:
        """Take the outputs; each goes to the lane of the record that it comes from."""
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
        """Forget what was taken; nothing of it has begun."""
        self._messages, self._offsets = (), ()

    def close(self) -> None:
        """Drop all producers."""
        self.leave(list(self._lanes))

    # -- inside ---------------------------------------------------------------------------

    def _parts(self) -> dict[Where, list[int]]:
        """Return the indices of the messages by the partition that they come from."""
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
        """Raise when the first output of a part is below what its lane has committed."""
        found = coordinates(source)
        lane = None if found is None else self._lanes.get(found[:2])
        if lane is not None and lane.offset is not None and offset < lane.offset:
            lane.sound = False
            raise BatchAbortedError(
                f"{source!r} is committed on the cluster of the outputs up to {lane.offset}",
                resolved=False,
            )


def _failure_of(opened: Callable[[], None]) -> str | None:
    """Open; what fails is told outside of its handler, see engines/worker.py."""
    try:
        opened()
    except (ProducerDeadError, BatchAbortedError) as error:
        return str(error)
    return None

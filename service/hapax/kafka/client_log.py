"""What a consumer's own lines report: broken connections, and which cluster and topics it reads.

A topic that is deleted and recreated keeps its name and gets another id (KIP-516). librdkafka
continues at the old position in the new topic, without an error: "an offset reset must be
triggered" is a remark in its own source (2.16, rdkafka_topic.c). Only a debug line says that the id
has changed. It comes through the same queue as the records, before any record of the new topic,
because the client fetches by id. An admin call would return the id as well, but not which id the
records in hand were fetched by.

Brokers without ids (before 2.8) are never heard of here: nothing is written then and nothing
compared. The id of the cluster (KIP-78) comes with every answer about metadata, before its topics.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from hapax.core.offset_commit import CommittedMetadata, GroupOffset
from hapax.kafka.undecodable import TooLarge

if TYPE_CHECKING:
    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where

DEBUG = "metadata"
"""The client's ``debug`` contexts in which it reports ids: some lines for each answer to a
metadata request, none for records."""
_CHANGED = re.compile(r"Topic (\S+) changed id from (\S+) to (\S+)")
_RESIZED = re.compile(r"Topic (\S+) (?:\(id \S+\) )?partition count changed from (\d+) to (\d+)")
_CLUSTER = re.compile(r"ClusterId: ([^\s,]+), ControllerId: ")
_LEADER = re.compile(r"Topic (\S+) \[(\d+)\] Leader \S+ Epoch (\d+)")
_KAFKAS = str.maketrans("+/", "-_")
"""librdkafka's base 64 to the one that Kafka's own tools print."""


def kafkas_id(client_id: str) -> str | None:
    """Return a topic's id as Kafka's own tools print it; None for sixteen zero bytes: no id."""
    return client_id.translate(_KAFKAS) if client_id.strip("A") else None


class Remade(NamedTuple):
    """A topic that was deleted, and recreated under its name."""

    topic: str
    before: str
    now: str


class TopicIds:
    """Hears of ids, writes them with committed offsets, and compares what it finds there.

    cluster        the id of the cluster that was met first
    other_cluster  of another one that was met later: it stays, for the client now knows brokers
                   of both
    shrunk         topics with fewer partitions than before: deleted, if that is no mistake
    began          how many partitions topics had when the group was taken over from another client
    changelog      the id of the topic that keeps the state
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._remade: dict[str, str] = {}
        self._epochs: dict[Where, int] = {}
        self.cluster: str | None = None
        self.other_cluster: str | None = None
        self.shrunk: set[str] = set()
        self.began: dict[str, int | None] = {}
        self.changelog: str | None = None

    def hear(self, text: str) -> None:
        """Take a line of the client; called from its own C code, so it never raises."""
        if (met := _CLUSTER.search(text)) is not None:
            self.meet_cluster(met[1])
        elif (led := _LEADER.search(text)) is not None:
            self._epochs[(led[1], int(led[2]))] = int(led[3])
        elif (found := _CHANGED.search(text)) is not None:
            self._hear_topic(found)
        elif (sizes := _RESIZED.search(text)) is not None and int(sizes[3]) < int(sizes[2]):
            self.shrunk.add(sizes[1])

    def meet_cluster(self, cluster_id: str | None) -> None:
        """Take note of the cluster that answered; None: brokers too old to say."""
        if not cluster_id or cluster_id == self.cluster:
            return
        if self.cluster is None:
            self.cluster = cluster_id
        else:
            self.other_cluster = cluster_id

    def epoch(self, where: Where) -> int | None:
        """Return the epoch of the partition's leader, as last heard; None: it is not known."""
        return self._epochs.get(where)

    def _hear_topic(self, found: re.Match[str]) -> None:
        topic, now = found[1], kafkas_id(found[3])
        if now is None:
            return
        known = self._known.setdefault(topic, now)
        if known == now:
            self._remade.pop(topic, None)
        else:
            self._remade[topic] = now

    def remade(self) -> list[Remade]:
        return [Remade(topic, self._known[topic], now) for topic, now in self._remade.items()]

    def accept(self, topic: str) -> None:
        """Know a topic as what it is now: nothing of the one before is in use any more."""
        self._known[topic] = self._remade.pop(topic)
        self.began.pop(topic, None)

    def forget(self) -> None:
        """Begin again, with a new client; the cluster has to be the same."""
        self._epochs.clear()
        self._known.clear()
        self._remade.clear()

    def knows(self, topic: str) -> bool:
        return topic in self._known

    def known(self, topic: str) -> str | None:
        return self._known.get(topic)

    def offset(
        self,
        where: Where,
        offset: int,
        *,
        beside: CommittedMetadata | None = None,
        epoch: int | None = None,
    ) -> GroupOffset:
        """``beside``: has the group's beginning and its span, which are carried on."""
        known = beside or CommittedMetadata()
        began = self.began.get(where[0]) if known.began is None else known.began
        topic_id, changelog = self._known.get(where[0]), self.changelog
        metadata = CommittedMetadata(
            topic_id, self.cluster, began, span=known.span, changelog_id=changelog
        ).encode()
        return GroupOffset(*where, offset, metadata or None, epoch)

    def other(self, topic: str, beside: CommittedMetadata) -> str | None:
        """Return the id with a committed offset when it is not that of the known topic.

        None also for an offset without an id: one of an earlier version, or set by Kafka's tools.
        """
        known = self._known.get(topic)
        return None if known is None or beside.topic_id in {None, known} else beside.topic_id

    def foreign_cluster(self, beside: CommittedMetadata) -> str | None:
        """Return the cluster's id with a committed offset when it is another one."""
        if self.cluster is None or beside.cluster_id in {None, self.cluster}:
            return None
        return beside.cluster_id


class ClientLogMonitor:
    """Passes a consumer's lines on; remembers when connections broke, and ids.

    breaks     how many lines named broken connections
    topics     ids of the cluster and its topics
    too_large  responses that the client does not take
    """

    SIGNS = frozenset({"FAIL", "REQTMOUT", "SESSTMOUT", "ERROR"})
    MEMORY_S = 15.0

    def __init__(self, logger: Any, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._last_s = -math.inf
        self.breaks = 0
        self.topics = TopicIds()
        self.too_large = TooLarge()

    def log(self, level: int, form: str, *parts: object) -> None:
        if parts and parts[0] in self.SIGNS:
            self._last_s = self._clock.monotonic()
            self.breaks += 1
            self.too_large.log(level, form, *parts)
        if parts:
            self.topics.hear(str(parts[-1]))
        self._logger.log(level, form, *parts)

    @property
    def troubled(self) -> bool:
        return self._clock.monotonic() - self._last_s < self.MEMORY_S

"""Which topic a name stands for: Kafka's id of each topic, as the client itself has learned it.

A topic that is deleted and made again keeps its name and gets another id (KIP-516). librdkafka goes
on at the old position in the new topic, and tells nobody: "an offset reset must be triggered" is a
remark in its own source (2.16, rdkafka_topic.c). Only a debug line says that the id has changed. It
comes through the same queue as the records, before any record of the new topic, because the client
fetches by id; so it is heard in time. An admin call would know the id as well, but not which id the
records in hand were fetched by.

Brokers without ids (before 2.8) are never heard of here: nothing is written then and nothing
compared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import TopicPartition

from service.core.committed_metadata import CommittedMetadata

if TYPE_CHECKING:
    from service.core.records import TopicPartition as Where

DEBUG = "metadata"
"""The client's ``debug`` contexts in which it tells of ids: some lines for each answer to a
metadata request, none for records."""
_CHANGED = re.compile(r"Topic (\S+) changed id from (\S+) to (\S+)")
_NONE = "A" * 22
"""Sixteen zero bytes in base 64: no id."""
_KAFKAS = str.maketrans("+/", "-_")
"""librdkafka's base 64 to the one that Kafka's own tools print."""


class Remade(NamedTuple):
    """A topic that was deleted, and made again under its name."""

    topic: str
    before: str
    now: str


class TopicIds:
    """Hears of ids, writes them beside committed offsets, and compares what it finds there."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._remade: dict[str, str] = {}

    def hear(self, text: str) -> None:
        """Take a line of the client; called from its own C code, so it never raises."""
        found = _CHANGED.search(text)
        if found is None:
            return
        topic, _before, now = found.groups()
        if now == _NONE:
            return
        now = now.translate(_KAFKAS)
        known = self._known.setdefault(topic, now)
        if known == now:
            self._remade.pop(topic, None)
        else:
            self._remade[topic] = now

    def remade(self) -> list[Remade]:
        """Return the topics that are no longer those that we know."""
        return [Remade(topic, self._known[topic], now) for topic, now in self._remade.items()]

    def accept(self, topic: str) -> None:
        """Know a topic as what it is now: nothing of the one before is in use any more."""
        self._known[topic] = self._remade.pop(topic)

    def forget(self) -> None:
        """Begin anew, with a new client."""
        self._known.clear()
        self._remade.clear()

    def knows(self, topic: str) -> bool:
        """Whether the topic's id has been heard."""
        return topic in self._known

    def offset(self, where: Where, offset: int) -> TopicPartition:
        """Return an offset to commit, with the id of its topic beside it."""
        known = self._known.get(where[0])
        if known is None:
            return TopicPartition(*where, offset)
        return TopicPartition(*where, offset, CommittedMetadata(topic_id=known).encode())

    def other(self, topic: str, metadata: str) -> str | None:
        """Return the id beside a committed offset when it is not that of the topic we know.

        None also for an offset without an id: one of an earlier version, or set by Kafka's tools.
        """
        known = self._known.get(topic)
        written = CommittedMetadata.decode(metadata).topic_id
        return None if known is None or written in {None, known} else written

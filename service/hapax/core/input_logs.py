"""Which logs the offsets of a checkpoint belong to: cluster, topics by id, leaders by epoch.

A checkpoint has offsets by name and number. A topic that was deleted and recreated has the same
name and other records at the same offsets; so has a log that was cut off and written again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import PositionLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hapax.core.records import Progress, TopicPartition

Anchors = dict["TopicPartition", tuple[int, int]]
"""Per partition an offset, and the epoch of the leader from which the log was read before it."""
WHAT_TO_DO = "docs/dataframes.md, section Stops, describes how to continue"


class InputLogs(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint belongs to, kept next to it.

    app      whose checkpoint it is
    output   its default topic, at which its marker is committed
    cluster  Kafka's id of the cluster; None: the brokers are too old to say
    topics   Kafka's id of each input topic that has one (KIP-516)
    epochs   per input topic and partition, the epoch of its leader (KIP-320)
    """

    app: str
    output: str
    cluster: str | None = None
    topics: dict[str, str] = {}
    epochs: dict[str, dict[int, int]] = {}

    def require_same(self, now: InputLogs) -> None:
        """Raise PositionLostError when the brokers have another cluster or topic by now."""
        if None not in {self.cluster, now.cluster} and self.cluster != now.cluster:
            raise PositionLostError(
                f"the checkpoint's offsets belong to cluster {self.cluster}, and the brokers are"
                f" those of {now.cluster}. {WHAT_TO_DO}"
            )
        for topic, known in self.topics.items():
            found = now.topics.get(topic, known)
            if found != known:
                raise PositionLostError(
                    f"{topic}: the checkpoint's offsets belong to a topic that was deleted (id"
                    f" {known}); the topic with this name now is a different one (id {found}), and"
                    f" its records below these offsets would never be read. {WHAT_TO_DO}"
                )

    def anchors(self, now: InputLogs, offsets: Progress) -> Anchors:
        """Return where the leader has changed since: its log may have been cut off below them."""
        return {
            (topic, number): (offsets[topic, number], epoch)
            for topic, leaders in self.epochs.items()
            for number, epoch in leaders.items()
            if (topic, number) in offsets and now.epochs.get(topic, {}).get(number, epoch) != epoch
        }

    def and_now(self, now: InputLogs) -> InputLogs:
        """Return what is known now; what brokers do not say at the moment stays as it was."""
        topics = {
            topic: found
            for topic in now.epochs
            if (found := now.topics.get(topic, self.topics.get(topic))) is not None
        }
        epochs = {
            topic: self.epochs.get(topic, {}) | leaders for topic, leaders in now.epochs.items()
        }
        cluster = self.cluster if now.cluster is None else now.cluster
        return msgspec.structs.replace(now, cluster=cluster, topics=topics, epochs=epochs)


def require_uncut(cut: Mapping[TopicPartition, str], offsets: Progress) -> None:
    """Raise PositionLostError for a log that was cut off; ``cut``: what its leader says."""
    for where, why in sorted(cut.items()):
        raise PositionLostError(
            f"{where[0]}/{where[1]}: the checkpoint's offset is {offsets[where]}, but the log was"
            f" cut off below it (unclean election) and may have been written again: {why}."
            f" {WHAT_TO_DO}"
        )

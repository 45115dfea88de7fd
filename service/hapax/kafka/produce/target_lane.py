"""A lane: what comes of one input partition, written to another cluster together with its progress.

The group that shares the partitions out lives on the cluster of the input. Brokers of the outputs
know none of its members, so nothing of it fences there; only a transactional id does. So the id
belongs to the partition and not to the process: who gets the partition registers under the id,
which aborts what its predecessor left and refuses whatever that still sends, and reads the progress
after it. An offset counts only when its transaction commits, and the coordinator commits for the
newest producer alone.

The progress is the committed offset of a group of the partition's own, on partition 0 of the output
topic: brokers take offsets of partitions that they have, and the input's they need not have. It
goes when the output topic is deleted, as its records do.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.committed_metadata import text_of
from hapax.core.errors import BatchAbortedError
from hapax.core.offset_commit import GroupOffset, OffsetCommit
from hapax.kafka.produce.fences import named_transaction
from hapax.kafka.produce.marked_transaction import MarkedNames, marker_group
from hapax.kafka.produce.stable_offset import ANSWER_TIMEOUT_S, stable_offset
from hapax.kafka.properties import transactional_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.ports import Message
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings

KEEP_INTERVAL_S = 6 * 3600.0
"""Well below ``offsets.retention.minutes``, of which seven days are the default."""


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
        """Fence the producer that had the partition before, then read its progress.

        Raises ProducerDeadError or BatchAbortedError when brokers do not answer: call again.
        """
        self.sound = False
        self.transaction.open()
        self.progress, self._group = target_progress(self._settings, self._where, self._logger)
        self.sound = True

    def run(self, messages: Sequence[Message], offset: GroupOffset) -> None:
        """Commit messages and progress in one transaction.

        Whatever goes wrong, the progress is read again before the next one: what is raised says
        that nothing else is certain.
        """
        if not self.sound:
            raise BatchAbortedError(
                f"{self._where[0]}/{self._where[1]}: its lane is not open", resolved=False
            )
        self.sound = False
        transaction = self.transaction
        transaction.begin()
        transaction.send(messages)
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
        """Drop the producer."""
        self.sound = False
        self.transaction.close()

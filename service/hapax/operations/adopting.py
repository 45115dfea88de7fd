"""What ``hapax offsets adopt`` takes over from another group, and what stays behind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import ConfigurationError, HapaxError
from hapax.core.group_start import began, of_another_client, partly_begun
from hapax.kafka.produce.group_offsets import GroupOffsets
from hapax.kafka.read.offsets_client import BlockingOffsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from hapax.core.offset_moves import Placed
    from hapax.core.records import TopicPartition as Where
    from hapax.settings import Settings


class GroupAdoption:
    """The offsets of a group, for a pipeline of another name. Reads them once, stable ones."""

    def __init__(
        self, settings: Settings, group: str, client: BlockingOffsets, cluster_id: str | None
    ) -> None:
        if group == settings.app:
            raise ConfigurationError([f"{group} is HAPAX_APP itself: name the group of before"])
        self._settings, self._group, self._client = settings, group, client
        self._cluster_id = cluster_id
        old = settings.model_copy(update={"app": group})
        with closing(BlockingOffsets(old)) as theirs:
            places = theirs.partitions(settings.read_topics)
            self._answers: dict[Where, Any] = dict(theirs.answers(places, stable=True))
        if all(one.offset < 0 for one in self._answers.values()):
            topics = ", ".join(settings.read_topics)
            raise HapaxError(f"group {group} has no offset in {topics}: check its name")

    def placed(self, one: Placed, topic_id: str | None) -> tuple[Placed, int] | None:
        """Return a partition with what the group notes there, and its offset; None: it has none."""
        answer = self._answers[one.where]
        if answer.offset < 0:
            return None
        facts, place = CommittedMetadata.of(answer), f"{one.topic}/{one.partition}"
        problem = {
            facts.topic_id not in {None, topic_id}: "belongs to a deleted topic of this name",
            facts.cluster_id not in {None, self._cluster_id}: "belongs to another cluster",
            facts.elsewhere is not None: "only informs: the progress is on another cluster",
        }.get(True)
        if problem is not None:
            raise HapaxError(f"{place}: the offset of group {self._group} {problem}; not adopted")
        beside = self._beside(one.topic)
        known = list(beside.values())
        count = len(self._of(one.topic)) if of_another_client(known) else began(known)
        return msgspec.structs.replace(one, beside=CommittedMetadata(began=count)), answer.offset

    def remarks(self) -> list[str]:
        """Return what the offsets do not bring, in sentences."""
        settings, group = self._settings, self._group
        found = []
        for topic in settings.input.topics:
            missing = [w for w, one in self._of(topic).items() if one.offset < 0]
            if missing and len(missing) < len(self._of(topic)):
                found.append(partly_begun(missing, self._beside(topic), settings.input.start))
        if settings.dedup.enabled:
            found.append(
                f"claims stay with {group}: hapax claims rebuild restores those of its outputs"
            )
        retry = f"{group}-retry"
        if retry not in settings.read_topics and not self._client.absent([retry]):
            found.append(
                f"what waits in {retry} stays there: set HAPAX_RETRY__TOPIC={retry} and adopt again"
            )
        return found

    def await_empty(self, tell: Callable[[str], None]) -> None:
        """Wait for the members of the group to leave; raises PreflightError when some stay."""
        GroupOffsets(self._settings.model_copy(update={"app": self._group})).await_empty(tell)

    def _of(self, topic: str) -> dict[Where, Any]:
        return {where: one for where, one in self._answers.items() if where[0] == topic}

    def _beside(self, topic: str) -> dict[int, CommittedMetadata]:
        return {
            number: CommittedMetadata.of(one)
            for (_topic, number), one in self._of(topic).items()
            if one.offset >= 0
        }

"""Composition of ``hapax offsets set``, ``rewind`` and ``skip``: the group's offsets moved by hand.

1. places     of the partitions that are meant: committed offset, what is beside it, the log's ends
2. moves      where each goes; nothing is changed by looking
3. empty      the group must have no members, and the coordinator refuses when one joins meanwhile
4. claims     those of records that are passed without an effect are forgotten, for repeats of them
              would be dropped as duplicates of what never had one
5. commit     the offsets, with the topic's id beside them

A rewind leaves claims alone: each record that is read again meets its own coordinates and passes,
and a duplicate among them meets those of its original and is dropped again.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import msgspec

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import (
    BatchAbortedError,
    ConfigurationError,
    HapaxError,
)
from hapax.core.group_start import began
from hapax.core.offset_moves import (
    Move,
    Placed,
    Skip,
    Target,
    beside,
    moved_back,
    moved_to,
    require_progress,
)
from hapax.core.transform import Cut
from hapax.kafka.admin.adoption import topic_ids
from hapax.kafka.produce.group_offsets import GroupOffsets
from hapax.kafka.read.group_start import positions
from hapax.kafka.read.offset_client import OffsetClient
from hapax.kafka.read.probe import first_from
from hapax.kafka.read.worked import worked
from hapax.operations.adopting import GroupAdoption
from hapax.operations.skipping import forget_passed, letter, skip_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.core.records import Coordinates, TopicPartition
    from hapax.operations.reading import Tell
    from hapax.settings import Settings


class Moving:
    """Moves the offsets of one pipeline's group."""

    def __init__(self, settings: Settings, client: OffsetClient, tell: Tell) -> None:
        if settings.spark.dataframe is not None:
            problem = (
                "HAPAX_SPARK__DATAFRAME is set: positions of a DataFrame are in its checkpoint, not"
                " in a group"
            )
            raise ConfigurationError([problem])
        if settings.elsewhere:
            problem = (
                "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is set: progress is kept on that cluster,"
                " and the group's offsets here move nothing; docs/other-cluster.md says how to set"
                " it"
            )
            raise ConfigurationError([problem])
        self._settings = settings
        self._client = client
        self._tell = tell
        self._group = GroupOffsets(settings)
        self._topic_ids = topic_ids(settings)

    # -- looking ----------------------------------------------------------------------------

    def set(self, target: Target, to: str | int) -> list[Move]:
        """Return the moves to a goal.

        ``earliest``, ``latest``, ``outputs`` (behind the last records that outputs name), an
        offset, or Unix time (``time:MS``).
        """
        placed = self._placed(target)
        if target.offset is not None:
            to = target.offset
        offsets = self._offsets(placed, to)
        return [
            moved_to(one, offsets[one.topic, one.partition], topic_id=self._topic_id(one))
            for one in placed
        ]

    def rewind(self, target: Target | None, *, by: int | None, to: str | int) -> list[Move]:
        """Return the moves back, by so many offsets or as for ``set``."""
        targets = [target] if target else [Target(topic) for topic in self._settings.input.topics]
        moves = []
        for each in targets:
            placed = self._placed(each)
            offsets = None if by is not None else self._offsets(placed, to)
            for one in placed:
                if one.committed is None:
                    continue
                where = one.where
                offset = offsets[where] if offsets is not None else one.committed - (by or 0)
                move = moved_back(one, offset, topic_id=self._topic_id(one))
                if move is not None:
                    moves.append(move)
        return moves

    def skip(self, at: Coordinates) -> tuple[Skip, Move]:
        """Return what lies at the group's position, and the move past it.

        Raises HapaxError when the group is not at this offset.
        """
        (placed,) = self._placed(Target(at.topic, at.partition))
        require_progress(placed)
        start = placed.position
        if start is None:
            raise HapaxError(f"{at}: the group has no offset there: use hapax offsets set")
        if at.offset < start:
            raise HapaxError(f"{at}: the group is past it already, at {start}")
        if at.offset >= placed.log.last_stable:
            raise HapaxError(f"{at} is beyond the last stable offset, {placed.log.last_stable}")
        end = placed.log.last_stable
        skip = skip_of(at, first_from(self._settings, at._replace(offset=start), end))
        return skip, moved_to(placed, skip.next, topic_id=self._topic_id(placed))

    def adopt(self, group: str) -> tuple[list[Move], GroupAdoption]:
        """Return the moves to the offsets of another group, in all that this pipeline reads.

        Raises HapaxError where they may not be taken over.
        """
        adopting = GroupAdoption(self._settings, group, self._client, self._group.cluster_id())
        ours = [one for topic in self._settings.read_topics for one in self._placed(Target(topic))]
        moves = [
            moved_to(*adopted, topic_id=self._topic_id(one))
            for one in ours
            if (adopted := adopting.placed(one, self._topic_id(one))) is not None
        ]
        return moves, adopting

    # -- carrying out -------------------------------------------------------------------------

    def members(self) -> dict[str, str]:
        """Return the client ids of the group's members, each with its host."""
        return self._group.members()

    def carry_out(self, moves: Iterable[Move], *, keep_claims: bool = False) -> int:
        """Move the offsets; return how many claims of passed records were forgotten."""
        due = [move for move in moves if move.changes]
        if not due:
            return 0
        self._group.await_empty(self._tell)
        forgotten = 0 if keep_claims else forget_passed(self._settings, due, self._tell)
        self._group.commit(self._written(due))
        return forgotten

    def dead_letter(self, skip: Skip, move: Move) -> bool:
        """Pass the record with a dead letter, in one transaction; return whether it has no value.

        Its claim stays: its one effect is the dead letter, and its repeats are duplicates of it.
        """
        topic = self._settings.dead_letter.topic
        if topic is None:
            raise ConfigurationError(
                ["HAPAX_DEAD_LETTER__TOPIC is not set: this pipeline has no dead letters"]
            )
        self._group.await_empty(self._tell)
        where = (skip.at.topic, skip.at.partition)
        before = {where: move.placed.committed}
        cuts = tuple(Cut) if skip.record is not None else (Cut.ALL,)
        for cut in cuts:
            message = letter(self._settings, skip, topic, cut)
            try:
                self._group.commit_with(message, self._written([move]), before, time)
            except BatchAbortedError as error:
                if cut is cuts[-1] or not error.content:
                    raise HapaxError(f"nothing was changed: {error}") from error
            else:
                return cut is not Cut.NOTHING
        raise AssertionError("the last cut returns or raises")

    # -- inside -------------------------------------------------------------------------------

    def _placed(self, target: Target) -> list[Placed]:
        if target.topic not in self._settings.read_topics:
            inputs = ", ".join(self._settings.read_topics)
            raise ConfigurationError([f"{target.topic} is no input of this pipeline: {inputs}"])
        places = self._client.partitions([target.topic])
        answers = self._client.answers(places, stable=True)
        texts = {where: CommittedMetadata.of(one) for where, one in answers.items()}
        logs = self._client.log_offsets(places)
        nexts = positions(self._settings, answers, logs)
        known = [texts[where] for where in places if answers[where].offset >= 0]
        # The others of the topic stay as they are: HAPAX_INPUT__START places what was there.
        count = began(known) if any(one != CommittedMetadata() for one in known) else len(places)
        if target.partition is not None:
            places = [where for where in places if where[1] == target.partition]
            if not places:
                raise ConfigurationError([f"{target.topic} has no partition {target.partition}"])
        return [
            Placed(
                topic=where[0],
                partition=where[1],
                committed=answers[where].offset if answers[where].offset >= 0 else None,
                # A partition that gets its first offset began with the others of its topic.
                beside=(
                    msgspec.structs.replace(texts[where], began=count)
                    if texts[where].began is None
                    else texts[where]
                ),
                log=logs[where],
                position=nexts[where],
            )
            for where in places
        ]

    def _offsets(self, placed: list[Placed], to: str | int) -> dict[TopicPartition, int]:
        if isinstance(to, int):
            return {one.where: to for one in placed}
        if to in {"earliest", "latest"}:
            return {
                one.where: one.log.log_start if to == "earliest" else one.log.last_stable
                for one in placed
            }
        if to == "outputs":
            return self._behind_outputs([one.where for one in placed])
        time_ms = int(to.removeprefix("time:"))
        where = [one.where for one in placed]
        found = self._client.at_time(where, time_ms)
        return {
            one.where: min(
                found.get(one.where, one.log.last_stable),
                one.log.last_stable,
            )
            for one in placed
        }

    def _behind_outputs(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records that outputs name."""
        proposed = worked(self._settings, places).proposed
        if not proposed:
            problem = f"no output or dead letter names a record of {places[0][0]}: name the offsets"
            raise ConfigurationError([problem])
        return proposed

    def _topic_id(self, placed: Placed) -> str | None:
        return self._topic_ids.get(placed.topic)

    def _written(
        self, moves: Iterable[Move]
    ) -> dict[TopicPartition, tuple[int, CommittedMetadata]]:
        cluster_id = self._group.cluster_id()
        return {
            move.placed.where: (
                move.offset,
                beside(move.placed, self._topic_id(move.placed), cluster_id),
            )
            for move in moves
        }


@contextmanager
def moving(settings: Settings, tell: Tell) -> Iterator[Moving]:
    """Open it for the block; close its connections afterwards."""
    with closing(OffsetClient(settings)) as client:
        yield Moving(settings, client, tell)

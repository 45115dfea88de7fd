"""Composition of ``hapax offsets set``, ``rewind`` and ``skip``: the group's offsets moved by hand.

1. places     of the partitions that are meant: committed offset and its metadata, the log's ends
2. moves      where each goes; nothing is changed by looking
3. empty      the group must have no members, and the coordinator refuses when one joins meanwhile
4. claims     those of records that are passed without an effect are forgotten, for repeats of them
              would be dropped as duplicates of what never had one
5. commit     the offsets, with the topic's id in their metadata

A rewind leaves claims alone: each record that is read again meets its own coordinates and passes,
and a duplicate among them meets those of its original and is dropped again.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from hapax.cluster.group_start import began, of_another_client, partly_begun
from hapax.cluster.offset_moves import Move, Placed, Skip, Target, Unreadable, moved_back, moved_to
from hapax.core.errors import BatchAbortedError, ConfigurationError, HapaxError, PreflightError
from hapax.core.headers import TRUNCATED
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.records import Coordinates, Record
from hapax.core.results import Cut, Failure
from hapax.kafka.admin.topics import topic_ids
from hapax.kafka.produce.standalone import GroupOffsets
from hapax.kafka.read.group_start import positions, worked
from hapax.kafka.read.offsets_client import BlockingOffsets, offset_or_none
from hapax.kafka.read.range_reader import first_from
from hapax.operations.reading import Operation, read_ranges, require_group
from hapax.operations.state import StateOfMoves
from hapax.processing.identity import Identity
from hapax.processing.plan import Destinations, Planner
from hapax.wiring.builders import claim_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hapax.core.ports import Tell
    from hapax.core.records import Message, TopicPartition
    from hapax.settings import Settings


def letter(settings: Settings, skip: Skip, topic: str, cut: Cut) -> Message:
    record = skip.record
    if record is None:
        record = Record(*skip.at, None, None)
    event_id = Identity(settings.dedup.id).identify([record]).ids[0]
    failure = Failure(*skip.error, 1, cut)
    planner = Planner(Destinations(settings.app, settings.output.topic, topic))
    (message,) = planner.plan([record], [event_id], [failure], {}).messages
    if skip.record is not None:
        return message
    # What was left out has no size that anyone could read.
    told = (TRUNCATED, f"undecodable={skip.at.offset}-{skip.next - 1}".encode())
    headers = [pair for pair in message.headers if pair[0] != TRUNCATED]
    return msgspec.structs.replace(message, headers=[*headers, told])


def skip_of(at: Coordinates, found: tuple[Record, bool] | Unreadable | None) -> Skip:
    """Return what is passed; raise HapaxError when a reader meets something else there."""
    if found is None:
        raise HapaxError(f"{at}: committed readers see no record there, nor any after it")
    if isinstance(found, tuple):
        record, _ = found
        if record.offset < at.offset:
            raise HapaxError(
                f"{at}: offset {record.offset} comes first and is not processed yet; to pass"
                f" both, hapax offsets set {at.topic}/{at.partition}/{at.offset + 1}"
            )
        if record.offset > at.offset:
            raise HapaxError(
                f"{at}: committed readers see no record there (a marker of a transaction, an"
                f" aborted or a compacted record); the next one is {record.offset}"
            )
        return Skip(at=at, next=at.offset + 1, record=record)
    if at.offset > found.last:
        raise HapaxError(
            f"{at}: offsets {found.first} to {found.last} come first and cannot be decoded: skip"
            f" {at.topic}/{at.partition}/{found.first}"
        )
    first = at._replace(offset=found.first)
    return Skip(at=first, next=found.last + 1, record=None, reason=found.reason)


class GroupAdoption:
    """The offsets of a group, for a pipeline of another name. Reads them once, stable ones."""

    def __init__(
        self, settings: Settings, group: str, client: BlockingOffsets, cluster_id: str | None
    ) -> None:
        if group == settings.app:
            raise ConfigurationError(f"{group} is HAPAX_APP itself: name the group of before")
        self._settings, self._group, self._client = settings, group, client
        self._cluster_id = cluster_id
        old = settings.model_copy(update={"app": group})
        with closing(BlockingOffsets(old)) as theirs:
            places = theirs.partitions(settings.read_topics)
            self._answers: dict[TopicPartition, Any] = dict(theirs.answers(places, stable=True))
        if all(one.offset < 0 for one in self._answers.values()):
            topics = ", ".join(settings.read_topics)
            raise HapaxError(f"group {group} has no offset in {topics}: check its name")

    def placed(self, one: Placed) -> tuple[Placed, int] | None:
        """Return a partition with what the group notes there, and its offset; None: it has none."""
        answer = self._answers[one.where]
        if answer.offset < 0:
            return None
        facts = CommittedMetadata.of(answer)
        problem = {
            facts.topic_id not in {None, one.topic_id}: "belongs to a deleted topic of this name",
            facts.cluster_id not in {None, self._cluster_id}: "belongs to another cluster",
            facts.elsewhere is not None: "only informs: the progress is on another cluster",
        }.get(True)
        if problem is not None:
            raise HapaxError(f"{one}: the offset of group {self._group} {problem}; not adopted")
        beside = self._beside(one.topic)
        known = list(beside.values())
        count = len(self._of(one.topic)) if of_another_client(known) else began(known)
        return msgspec.structs.replace(one, beside=CommittedMetadata(began=count)), answer.offset

    def remarks(self) -> list[str]:
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
        state = f"{group}-state"
        if state != settings.state_topic and not self._client.absent([state]):
            found.append(f"state stays in {state}: set HAPAX_STATE__TOPIC={state} to continue it")
        retry = f"{group}-retry"
        if retry not in settings.read_topics and not self._client.absent([retry]):
            found.append(
                f"what waits in {retry} stays there: set HAPAX_RETRY__TOPIC={retry} and adopt again"
            )
        return found

    def await_empty(self, tell: Callable[[str], None]) -> None:
        """Wait for the members of the group to leave; raises PreflightError when some stay."""
        GroupOffsets(self._settings.model_copy(update={"app": self._group})).await_empty(tell)

    def _of(self, topic: str) -> dict[TopicPartition, Any]:
        return {where: one for where, one in self._answers.items() if where[0] == topic}

    def _beside(self, topic: str) -> dict[int, CommittedMetadata]:
        return {
            number: CommittedMetadata.of(one)
            for (_topic, number), one in self._of(topic).items()
            if one.offset >= 0
        }


class Moving(Operation):
    """Moves the offsets of one pipeline's group."""

    def __init__(self, settings: Settings, tell: Tell) -> None:
        require_group(settings)
        if settings.elsewhere:
            raise ConfigurationError(
                "HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS is set: progress is kept on that cluster,"
                " and the group's offsets here move nothing; docs/other-cluster.md says how to set"
                " it"
            )
        self._topic_ids = topic_ids(settings)
        self._group = GroupOffsets(settings)
        super().__init__(settings, tell)

    def set(self, target: Target, to: str | int) -> list[Move]:
        """Return the moves to a goal.

        ``earliest``, ``latest``, ``outputs`` (after the last records that outputs name), an
        offset, or Unix time (``time:MS``).
        """
        placed = self._placed(target)
        offsets = self._offsets(placed, to if target.offset is None else target.offset)
        return [moved_to(one, offsets[one.where]) for one in placed]

    def rewind(self, target: Target | None, *, by: int | None, to: str | int) -> list[Move]:
        """Return the moves back, by so many offsets or as for ``set``."""
        targets = [target] if target else [Target(topic) for topic in self._settings.input.topics]
        moves: list[Move | None] = []
        for each in targets:
            placed = self._placed(each)
            if by is not None:
                begun = [(one, one.committed) for one in placed if one.committed is not None]
                moves += [moved_back(one, committed - by) for one, committed in begun]
            else:
                offsets = self._offsets(placed, to)
                # To earliest also partitions of which no record was read: they lose nothing.
                moved = moved_to if to == "earliest" else moved_back
                moves += [moved(one, offsets[one.where]) for one in placed]
        return [move for move in moves if move is not None]

    def skip(self, at: Coordinates) -> tuple[Skip, Move]:
        """Return what lies there, and the move; raise HapaxError when the group is elsewhere."""
        (placed,) = self._placed(Target(at.topic, at.partition))
        placed.require_progress()
        start, end = placed.position, placed.log.last_stable
        if start is None:
            raise HapaxError(f"{at}: the group has no offset there: use hapax offsets set")
        if at.offset < start:
            raise HapaxError(f"{at}: the group is past it already, at {start}")
        if at.offset >= end:
            raise HapaxError(f"{at} is beyond the last stable offset, {end}")
        skip = skip_of(at, first_from(self._settings, at._replace(offset=start), end))
        return skip, moved_to(placed, skip.next)

    def adopt(self, group: str) -> tuple[list[Move], GroupAdoption]:
        """Return the moves; raise HapaxError where the offsets may not be taken over."""
        adopting = GroupAdoption(self._settings, group, self._client, self._group.cluster_id())
        ours = [one for topic in self._settings.read_topics for one in self._placed(Target(topic))]
        found = [adopted for one in ours if (adopted := adopting.placed(one)) is not None]
        return [moved_to(*adopted) for adopted in found], adopting

    def members(self) -> dict[str, str]:
        return self._group.members()

    def state(self, moves: Sequence[Move], *, drop: bool = False) -> StateOfMoves:
        return StateOfMoves(self._settings, moves, self._tell, drop=drop)

    def carry_out(
        self, moves: Iterable[Move], *, keep_claims: bool = False, state: StateOfMoves | None = None
    ) -> int:
        """Move the offsets; return how many claims of passed records were forgotten."""
        drops = state is not None and state.drops
        due = [move for move in moves if move.changes or drops]  # no offset names the old changelog
        if state is not None:
            state.require()
        if not due and not drops:
            return 0
        self._group.await_empty(self._tell)
        forgotten = 0 if keep_claims else self._forget_passed(due)
        if due:
            self._group.commit(self._written(due))
        if state is not None:
            state.apply()
        return forgotten

    def dead_letter(self, skip: Skip, move: Move, topic: str) -> bool:
        """Pass the record with a dead letter, in one transaction; return whether it has no value.

        Its claim stays: its one effect is the dead letter, and its repeats are duplicates of it.
        """
        self._group.await_empty(self._tell)
        before = {move.placed.where: move.placed.committed}
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

    def _forget_passed(self, moves: Iterable[Move]) -> int:
        store = claim_store(self._settings)
        if store is None:
            return 0
        spans = {
            move.placed.where: (move.offset - move.skipped, move.offset)
            for move in moves
            if move.skipped
        }
        identity, forgotten = Identity(self._settings.dedup.id), 0
        what = "reading records to forget their claims"
        try:
            with closing(store):
                for chunk in read_ranges(self._settings, spans, self._tell, what):
                    records = [seen.record for seen in chunk]
                    claimed = zip(identity.identify(records).claims, records, strict=True)
                    forgotten += store.release(
                        [(claim, record.coordinates) for claim, record in claimed if claim]
                    )
        except PreflightError as error:
            raise HapaxError(
                f"the records that are passed cannot be read to forget their claims ({error});"
                " nothing was moved. --keep-claims moves without it"
            ) from error
        return forgotten

    def _placed(self, target: Target) -> list[Placed]:
        if target.topic not in self._settings.read_topics:
            inputs = ", ".join(self._settings.read_topics)
            raise ConfigurationError(f"{target.topic} is no input of this pipeline: {inputs}")
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
                raise ConfigurationError(f"{target.topic} has no partition {target.partition}")
        return [
            Placed(
                topic=where[0],
                partition=where[1],
                committed=offset_or_none(answers[where]),
                # A partition that gets its first offset began with the others of its topic.
                beside=(
                    msgspec.structs.replace(texts[where], began=count)
                    if texts[where].began is None
                    else texts[where]
                ),
                topic_id=self._topic_ids.get(where[0]),
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
        places = [one.where for one in placed]
        if to == "outputs":
            if not (proposed := worked(self._settings, places).proposed):
                topic = places[0][0]
                problem = f"no output or dead letter names a record of {topic}: name the offsets"
                raise ConfigurationError(problem)
            return proposed
        found = self._client.at_time(places, int(to.removeprefix("time:")))
        ends = {one.where: one.log.last_stable for one in placed}
        return {where: min(found.get(where, end), end) for where, end in ends.items()}

    def _written(self, due: Iterable[Move]) -> dict[TopicPartition, tuple[int, CommittedMetadata]]:
        cluster_id = self._group.cluster_id()
        return {move.placed.where: (move.offset, move.placed.moved(cluster_id)) for move in due}

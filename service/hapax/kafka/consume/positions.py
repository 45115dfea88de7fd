"""Where to read on: at the group's offsets, at the first of a new partition, behind a rewind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hapax.core.committed_metadata import CommittedMetadata, text_of
from hapax.core.errors import BatchAbortedError, PositionLostError
from hapax.kafka.consume.beginning import Beginning
from hapax.kafka.read.offsets_client import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka import TopicPartition

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where
    from hapax.core.span import SpanWords
    from hapax.kafka.consume.client import GroupConsumer
    from hapax.kafka.consume.partition_state import PartitionStates

ELECTION_S = 10.0
LATE_S = 30.0
"""How long the group's offset may be below what it was, until it counts as lost."""
_CUT_AT = re.compile(r"broker end offset is (\d+)")


class Positions:
    """Moves the states of a consumer's partitions. One thread only.

    start         where a group without offsets begins: earliest, latest, refuse, or a span
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        states: PartitionStates,
        clock: Clock,
        *,
        start: str | SpanWords,
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._clock = clock
        self.beginning = Beginning(consumer, start=start)

    def committed(self, partitions: Iterable[Where]) -> dict[Where, int | None]:
        """Return the group's stable committed offsets; None where there is none.

        Raises BatchAbortedError while an answer is older than what the group is known to have
        committed, and PositionLostError when that does not pass.
        """
        answers = self._consumer.committed(partitions)
        for where, answer in answers.items():
            if answer.offset >= 0:
                self._compare(where, answer)
            state = self._states[where]
            state.beside = text_of(answer)
            state.drop_anchor(answer.offset, answer.leader_epoch)
        return {
            where: answer.offset if answer.offset >= 0 else None
            for where, answer in answers.items()
        }

    def _compare(self, where: Where, answer: TopicPartition) -> None:
        """Compare an answer with how far the group is known to have come.

        A coordinator that has just loaded its log answers with what was replicated last, which may
        be older than what was acknowledged. One that has lost offsets would have every record
        since processed twice: brokers that all died at once, seen with Kafka 4.3.1.
        """
        topic_id = CommittedMetadata.of(answer).topic_id
        too_low_s = self._states.too_low_s(where, topic_id, answer.offset)
        if too_low_s is None:
            return
        known = self._states.reached[where]
        text = (
            f"{where[0]}/{where[1]}: the group's offset is {answer.offset}, but it was"
            f" {known.offset} before"
        )
        if too_low_s < LATE_S:
            raise BatchAbortedError(f"committed: {text}", resolved=False)
        raise PositionLostError(
            f"{text}: the brokers have lost what was committed since, or it was set back while"
            " the service ran. Set no offset before you know what became of the records between:"
            " their outputs may be part of a transaction that is still open. hapax transactions"
            " list shows one, and how to end it; hapax audit then shows whether these records have"
            f" their outputs. If so, hapax offsets set {where[0]}/{where[1]}/{known.offset}, or"
            f" they are doubled; if not, start again at {answer.offset}: a higher offset loses them"
        )

    def rewind(self, progress: Mapping[Where, int]) -> None:
        """Read again from these offsets; partitions that are no longer assigned are ignored."""
        ours = self._consumer.assignment()
        with self._consumer.asking("seek"):
            for where, offset in progress.items():
                if where in ours:
                    self._move(where, offset)
                    self._states[where].settled = offset

    def read_on(self, where: Where, offset: int) -> None:
        """Read on from there, without a word about what is settled."""
        with self._consumer.asking("seek"):
            self._move(where, offset)

    def _move(self, where: Where, offset: int) -> None:
        """Read on from there. With an epoch the client first looks whether the log was cut."""
        self._states.move(where, offset)
        state = self._states[where]
        epoch = state.epoch_of(offset)
        if self._consumer.seek(where, offset, epoch):
            state.proven = True
        elif epoch is not None:
            state.doubt(offset, epoch)

    def reread_stale(self) -> None:
        """Partitions that left or came back inside one call: what was fetched before is stale."""
        stale = frozenset(self._states.stale)
        again = stale & self._consumer.assignment()
        self._states.restart(stale)
        stable = self.committed(again)
        self.rewind({where: offset for where, offset in stable.items() if offset is not None})
        self._begin([where for where in again if stable[where] is None])
        self._states.stale -= stale  # only now: without an answer they stay stale

    # -- a log that is another one -----------------------------------------------------------

    def prove(self, partitions: Iterable[Where]) -> set[Where]:
        """Return those that are read again, because their log may be another one since.

        The client looks at the epoch beside a committed offset only when it is told to seek
        there (librdkafka 2.16: an assignment begins to fetch without a look).
        """
        again = set()
        for where in partitions:
            state = self._states[where]
            if state.proves(read=state.first_epoch is not None) or state.anchor is None:
                continue
            again.add(where)
            offset, epoch = state.anchor
            state.epoch, state.epoch_upto = epoch, offset
        with self._consumer.asking("seek"):
            for where in again:
                anchor = self._states[where].anchor
                assert anchor is not None
                self._move(where, anchor[0])
        return again

    def meet(self, partitions: Iterable[Where]) -> None:
        """Take note that records came from these; raise where they may be others than before."""
        for where in partitions:
            state = self._states[where]
            if state.unsure is not None:
                raise self._cut(where, state.unsure, state.cut_at)
            state.found()

    def find(self, partitions: Iterable[Where]) -> None:
        """Tell a group without offsets from positions that fell off the log: all in one look."""
        nexts = {where: self._states[where].next for where in partitions}
        known = nexts | self.committed([where for where, at in nexts.items() if at is None])
        self._begin([where for where, at in known.items() if at is None])
        lost = {where: at for where, at in known.items() if at is not None}
        lows, highs = (self._consumer.offsets(lost, at) for at in (EARLIEST, LATEST))
        for where, position in lost.items():
            self._find(where, position, lows[where], highs[where])

    def _find(self, where: Where, position: int, low: int, high: int) -> None:
        """Go on at a position at which the client did not, or raise why it cannot be."""
        state = self._states[where]
        if state.truncated is not None:
            cut = _CUT_AT.search(state.truncated)
            raise self._cut(where, position, int(cut[1]) if cut else None)
        now_s = self._clock.monotonic()
        if state.missing_since_s is None:
            state.missing_since_s = now_s
        # Right after an election the end of the log may lag behind for a moment; its beginning
        # never comes back.
        late = now_s - state.missing_since_s > ELECTION_S
        if position < low or (position > high and late):
            raise PositionLostError(
                f"{where[0]}/{where[1]}: the next record is {position}, but the log now holds"
                f" {low} to {high}: it was deleted by retention or this is another topic. Decide "
                "what to do with the gap, set the group's offset, then start again"
            )
        if position > high:
            state.cut_at = high if state.cut_at is None else min(state.cut_at, high)
        if state.refused and state.epoch_of(position) is None:
            if position <= high:  # the client found it beyond the end, which has grown since
                raise self._cut(where, position, state.cut_at)
            state.unsure = position
        state.refused = False
        with self._consumer.asking("seek"):
            self._move(where, position)  # what is handed out and not settled yet stays so

    def _cut(self, where: Where, position: int, cut_at: int | None) -> PositionLostError:
        """Return that the log was cut below a position and may have grown beyond it again."""
        lost = "" if cut_at is None else f" at {cut_at}"
        gone = "below it" if cut_at is None else f"{cut_at} to {position - 1}"
        return PositionLostError(
            f"{where[0]}/{where[1]}: the next record is {position}, but the log was cut off{lost}"
            f" (unclean election) and written again: offsets {gone} now hold other records, "
            f"which have had no effect. Decide what to do with them, set the group's offset, then"
            " start again"
        )

    # -- a group that begins -----------------------------------------------------------------

    def _begin(self, partitions: Collection[Where]) -> None:
        """Start partitions for which the group has no offset, or wait for who does."""
        if partitions:
            places = self.beginning.places(partitions)
            self.rewind(places)
            self._states.unplaced.update(where for where in partitions if where not in places)

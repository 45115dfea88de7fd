"""Where reading is in each partition, and what the client reported that no take has dealt with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.consume.delay_buffer import DelayBuffer
from hapax.kafka.undecodable import StuckPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

    from hapax.core.ports import Clock
    from hapax.core.records import Progress, TopicPartition as Where


@dataclass(slots=True)
class PartitionState:
    """What is known of one partition. Offsets; None: not known.

    next             of the next record to take
    settled          everything below has had its effect
    beside           the metadata of the group's committed offset; empty: none
    missing_since_s  since when the next offset has been beyond the end of the log
    refused          the client found the next offset outside of the log
    cut_at           the end of the log when it was below the next offset
    unsure           the next offset, when no epoch shows whether it is that of before
    truncated        what the client says of a log that was cut below the next offset
    epoch            of the leader under which the log was read up to ``epoch_upto`` (KIP-320)
    anchor           an offset and the epoch of the log before it: the committed one, or the one at
                     which reading continued without a check of the epoch
    first_epoch      of the first record of the last batch
    proven           the log still holds what was read before the anchor
    stop             where a bounded span stops
    """

    next: int | None = None
    settled: int | None = None
    beside: str | None = None
    missing_since_s: float | None = None
    refused: bool = False
    cut_at: int | None = None
    unsure: int | None = None
    truncated: str | None = None
    epoch: int | None = None
    epoch_upto: int = 0
    anchor: tuple[int, int] | None = None
    first_epoch: int | None = None
    proven: bool = False
    stop: int | None = None

    @property
    def untaken(self) -> int:
        """The offset below which all was taken; 0 where nothing is known."""
        return 0 if self.next is None else self.next

    @property
    def committed(self) -> CommittedMetadata:
        return CommittedMetadata.decode(self.beside)

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch to name with an offset; None where none is known for certain.

        A later epoch than that of the record before it is as good, as long as both are of one
        log: it ends no earlier. An earlier one would make an intact log look cut.
        """
        if self.epoch is not None and offset <= self.epoch_upto:
            return self.epoch
        if self.anchor is not None and offset <= self.anchor[0]:
            return self.anchor[1]
        return None

    def drop_anchor(self, offset: int, epoch: int | None) -> None:
        """Take note of the committed offset and its epoch, until the log is proven."""
        if not self.proven and (self.anchor is None or offset >= self.anchor[0]):
            self.anchor = None if epoch is None or min(offset, epoch) < 0 else (offset, epoch)

    def doubt(self, offset: int, epoch: int) -> None:
        """Take note that reading continues there, and that the log is not proven any more."""
        self.anchor, self.first_epoch, self.proven = (offset, epoch), None, False

    def proves(self, *, read: bool) -> bool:
        """Whether the log is the one that was read before. ``read``: a record of it has come.

        An epoch has one leader, which only appends: a record after the committed offset and of its
        epoch is after all that was read.
        """
        if not self.proven:
            of_the_same = read and self.anchor is not None and self.first_epoch == self.anchor[1]
            self.proven = self.beside is None or self.anchor is None or of_the_same
        return self.proven

    def learn_epoch(self, epoch: int | None, upto: int) -> None:
        if epoch is not None and epoch >= 0 and upto >= self.epoch_upto:
            self.epoch, self.epoch_upto = epoch, upto

    def found(self) -> None:
        """Take note that the log continues at the next offset: nothing is in doubt any more."""
        self.missing_since_s = self.cut_at = self.unsure = None
        self.refused = False


@dataclass(slots=True)
class Reached:
    """How far the group is known to have come in a partition of a topic with this id.

    below_since_s  since when the group's offset has been reported below; None: it is not
    """

    topic_id: str
    offset: int
    below_since_s: float | None = None


class PartitionStates:
    """A state for each partition, forgotten as a whole when the partition leaves.

    reached  stays when partitions leave: the group's offsets never go back by themselves
    ends      met, and not handed out with a batch yet
    unplaced  partitions for which the client found no offset to read at, or at which the group
              has not begun
    stale     partitions that left or came back: what was fetched before counts no more
    stash     messages that arrived while none were taken
    delayed   messages of the retry topic that have not waited long enough
    stuck     partitions held up by a set that cannot be decoded
    """

    def __init__(self, clock: Clock) -> None:
        self._states: dict[Where, PartitionState] = {}
        self._clock = clock
        self.reached: dict[Where, Reached] = {}
        self.stuck = StuckPartitions(clock)
        self.ends: Progress = {}
        self.unplaced: set[Where] = set()
        self.stale: set[Where] = set()
        self.stash: list[Message] = []
        self.delayed = DelayBuffer(clock)

    def __getitem__(self, where: Where) -> PartitionState:
        state = self._states.get(where)
        if state is None:
            state = self._states[where] = PartitionState()
        return state

    def get(self, where: Where) -> PartitionState | None:
        return self._states.get(where)

    def next_offsets(self) -> Progress:
        """Return where reading continues. Any thread may ask: list() of a dict is one step."""
        states = list(self._states.items())
        return {where: state.next for where, state in states if state.next is not None}

    def settled_offsets(self) -> Progress:
        states = list(self._states.items())
        return {where: state.settled for where, state in states if state.settled is not None}

    def reach(self, where: Where, topic_id: str | None, offset: int) -> None:
        """Take note that the group has committed up to there; a topic without an id is ignored."""
        known = self.reached.get(where)
        if topic_id is not None and (
            known is None or known.topic_id != topic_id or offset >= known.offset
        ):
            self.reached[where] = Reached(topic_id, offset)

    def too_low_s(self, where: Where, topic_id: str | None, offset: int) -> float | None:
        """Return for how long the group's offset has been lower than it was; None: it is not.

        An offset without the topic's id in its metadata was written by another program, on purpose.
        """
        known = self.reached.get(where)
        if known is None or known.topic_id != topic_id or offset >= known.offset:
            self.reached.pop(where, None)
            self.reach(where, topic_id, offset)
            return None
        now_s = self._clock.monotonic()
        if known.below_since_s is None:
            known.below_since_s = now_s
        return now_s - known.below_since_s

    def move(self, where: Where, offset: int) -> None:
        """Continue at another offset; what was fetched for the old one is dropped."""
        self._drop({where})
        state = self[where]
        state.next = offset

    def meet_end(self, where: Where, offset: int) -> None:
        if where not in self.stale and not self.stuck.holds(where):
            self.ends[where] = offset

    def skips(self, where: Where) -> bool:
        """Whether records of a partition that the client hands out now are not to be taken."""
        if where in self.stale:
            return True
        if self.stuck.known:
            if self.stuck.holds(where):
                return True
            self.stuck.forget([where])  # tried again, and a record came: it can be decoded
        return False

    def leave(self, partitions: Iterable[Where]) -> None:
        """Forget partitions that are no longer assigned, until they have been looked up again."""
        left = set(partitions)
        self._drop(left)
        for where in left:
            self._states.pop(where, None)
        self.stuck.forget(left)
        self.stale |= left

    def restart(self, partitions: Iterable[Where]) -> None:
        """Forget where reading was in these, but not the metadata of their offsets."""
        for where in partitions:
            self.ends.pop(where, None)
            self._states[where] = PartitionState(beside=self[where].beside)

    def drop_pending(self) -> None:
        self.ends.clear()
        self.unplaced.clear()
        self.stale.clear()
        self.stash.clear()
        self.delayed.clear()

    def clear(self) -> None:
        self.stuck.forget(list(self.stuck.known))
        self._states.clear()
        self.drop_pending()

    def _drop(self, partitions: set[Where]) -> None:
        for where in partitions:
            self.ends.pop(where, None)
        self.unplaced -= partitions
        self.delayed.drop(partitions)
        if self.stash:
            self.stash = [m for m in self.stash if (m.topic(), m.partition()) not in partitions]

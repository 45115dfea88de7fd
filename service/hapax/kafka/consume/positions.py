"""Where to read on: at the group's offsets, at the first of a new partition, after a rewind.

Where a group begins to read a topic is decided once for all partitions. With
``HAPAX_INPUT__START=latest`` only a committed offset says that a partition has begun: one without
it would begin at its end again after a crash, and lose what came meanwhile; or would be taken for
one that was added, and be read from its first record. So the member that owns the first partition
commits the places of all of them, those of other members too, in one request, with the number of
partitions in each metadata; the others wait for it. A partition with a higher number was added
later. Before that it is compared whether positions belong to the cluster and topics that records
come from.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from hapax.cluster.group_start import began, by_start, of_another_client
from hapax.core.errors import BatchAbortedError, MemberFencedError, PositionLostError
from hapax.core.offset_commit import CommittedMetadata, text_of
from hapax.core.span import Span, SpanWords
from hapax.kafka.consume.client import PENDING_TIMEOUT_S, GroupConsumer
from hapax.kafka.read.group_start import spans
from hapax.kafka.read.offsets_client import (
    EARLIEST,
    LATEST,
    client_offset,
    offset_or_none,
    unjoined,
)
from hapax.kafka.undecodable import too_large

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka import TopicPartition

    from hapax.core.ports import Clock
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.kafka.consume.client import GroupConsumer
    from hapax.kafka.consume.partition_state import PartitionStates

WAYS_OUT = (
    "Give the pipeline a new HAPAX_APP; or, when this cluster continues where the other one "
    "stopped, stop all its processes and run `hapax claims adopt`. docs/other-cluster.md helps "
    "to choose and describes what happens to records in flight"
)


class TopicIdentity:
    """Compares ids of cluster and topics with those of the group's offsets. One thread only.

    elsewhere  whether progress is on another cluster: then the group's own offsets only inform
    """

    elsewhere = False

    def __init__(
        self, consumer: GroupConsumer, states: PartitionStates, positions: Positions
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._positions = positions
        self._ids = consumer.log.topics

    def check(self, partitions: Iterable[Where]) -> None:
        """Make sure that positions belong to the topics that their records come from."""
        known = [where for where in partitions if self._ids.cluster or self._ids.knows(where[0])]
        if any(self._states[where].beside is None for where in known):
            self._look_up(known)
        self.compare(known)

    def place(self) -> None:
        """Find where partitions continue that the client could not read on in."""
        unplaced = list(self._states.unplaced)
        try:
            self._positions.find(unplaced)
        except PositionLostError:
            self.compare(unplaced)  # another cluster or topic explains it better
            raise

    def compare(self, partitions: Iterable[Where]) -> None:
        """Raise PositionLostError where an offset that is known has another id in its metadata."""
        for where in partitions:
            beside = self._states[where].committed
            self._require_here(where, beside)
            foreign = self._ids.foreign_cluster(beside)
            if foreign is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._consumer.group} belongs to"
                    f" cluster {foreign}, and the brokers are those of {self._ids.cluster}."
                    f" {WAYS_OUT}"
                )
            other = self._ids.other(where[0], beside)
            if other is not None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the offset of group {self._consumer.group} belongs to"
                    f" a topic that was deleted (id {other}); the topic with this name now is a "
                    "different one. Set the group's offset, then start again"
                )

    def _require_here(self, where: Where, beside: CommittedMetadata) -> None:
        """Raise where the offset only informs: begun there, the last second would be doubled."""
        if beside.elsewhere is not None:
            raise PositionLostError(
                f"{where[0]}/{where[1]}: the progress of group {self._consumer.group} is on cluster"
                f" {beside.elsewhere}, in the transactions of its outputs, and its offset here may"
                " be a second late: records would be doubled. Set"
                " HAPAX_OUTPUT__KAFKA__BOOTSTRAP_SERVERS again, or give the pipeline a new"
                " HAPAX_APP; docs/other-cluster.md says how to come back with this one"
            )

    def _look_up(self, known: list[Where]) -> None:
        """Read the metadata of offsets that the client began at; it looked them up alone."""
        wanted = self._consumer.assignment().union(known)
        began = self._positions.committed([at for at in wanted if self._states[at].beside is None])
        self._take_over(where for where, offset in began.items() if offset is not None)
        for where in known:
            if began.get(where, 0) is None and self._states[where].settled is None:
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: the committed offset at which reading began no "
                    "longer exists: its topic was deleted, or an operator deleted the offset. "
                    "Start again, and HAPAX_INPUT__START decides where; or set the group's offset, "
                    "once hapax transactions list and hapax audit show up to where records have "
                    "their outputs"
                )

    def _take_over(self, partitions: Iterable[Where]) -> None:
        """Note how many partitions a topic has, where another client has read it before Hapax.

        Before the first progress here: from then on, the group looks as if Hapax had begun it.
        """
        known: dict[str, list[CommittedMetadata]] = {}
        for where in partitions:
            known.setdefault(where[0], []).append(self._states[where].committed)
        for topic, beside in known.items():
            if topic in self._ids.began or not of_another_client(beside):
                continue
            every = self._consumer.partitions([topic])
            answers = [one for one in self._consumer.committed(every).values() if one.offset >= 0]
            others = of_another_client(CommittedMetadata.of(one) for one in answers)
            self._ids.began[topic] = len(every) if others else None

    def strangers(self, partitions: Iterable[Where]) -> list[str]:
        """Return a sentence when the group's offsets were committed on another cluster.

        For the start: nothing is joined, and an offset that hangs in a transaction is not waited
        for (BatchAbortedError). Raises PositionLostError where they only inform, of progress on
        the cluster of the outputs.
        """
        found: dict[str, list[Where]] = {}
        for where, answer in self._consumer.committed(partitions, PENDING_TIMEOUT_S).items():
            beside = CommittedMetadata.of(answer)
            if answer.offset >= 0 and not self.elsewhere:
                self._require_here(where, beside)
            foreign = self._ids.foreign_cluster(beside) if answer.offset >= 0 else None
            if foreign is not None:
                found.setdefault(foreign, []).append(where)
        return [
            f"the brokers are those of cluster {self._ids.cluster}, but group"
            f" {self._consumer.group} committed its offsets in {len(places)} partitions"
            f" ({places[0][0]}/{places[0][1]}{' and others' if len(places) > 1 else ''}) on cluster"
            f" {foreign}. {WAYS_OUT}"
            for foreign, places in found.items()
        ]

    def follow(self) -> None:
        """Raise where another cluster answers, or a topic was deleted while it was read."""
        if self._ids.other_cluster is not None:
            raise PositionLostError(
                f"the brokers are now those of cluster {self._ids.other_cluster}, while group"
                f" {self._consumer.group} reads cluster {self._ids.cluster}. {WAYS_OUT}"
            )
        for topic, before, now in self._ids.remade():
            # A driver of tasks reads nothing itself; what has left with its topic was reached.
            reached = self._states.reached.items()
            nexts = {where: one.offset for where, one in reached if one.topic_id == before}
            nexts |= self._states.settled_offsets() | self._states.next_offsets()
            stand = {where: next_ for where, next_ in nexts.items() if where[0] == topic}
            if stand:
                (_topic, partition), next_offset = min(stand.items())
                raise PositionLostError(
                    f"{topic}/{partition}: the next record is {next_offset} of a topic that was "
                    f"deleted and recreated while it was read (id {before}, now {now}). Start"
                    " again: the brokers delete a group's offsets with the topic, so"
                    " HAPAX_INPUT__START decides where"
                )
            self._ids.accept(topic)
            self._states.stale.update(at for at in self._consumer.assignment() if at[0] == topic)
        for topic in [*self._ids.shrunk]:
            if not self._consumer.exists(topic):
                reason = "was deleted while it was read. Create it, and start again"
                raise PositionLostError(f"{topic}: the input topic {reason}")
            self._ids.shrunk.discard(topic)  # the broker that missed it was late


LOOK_S, SEARCH_S = 0.5, 2.0
"""Between two searches, shorter than from line to line; and how long one takes at most."""
RETRY_LARGE_S = 60.0
"""A property does not change while the client lives, but retention may delete the record."""
ELECTION_S = 10.0
LATE_S = 30.0
"""How long the group's offset may be below what it was, until it counts as lost."""
_CUT_AT = re.compile(r"broker end offset is (\d+)")


class Beginning:
    """Places partitions for which the group has no offset. One thread only.

    start   where a group without offsets begins: earliest, latest, refuse, or a span
    whole   topics that are read from their first record all the same: the pipeline writes them
    """

    def __init__(self, consumer: GroupConsumer, *, start: str | SpanWords) -> None:
        self._consumer = consumer
        self._start = start
        self._span = start if isinstance(start, SpanWords) else None
        self.whole: frozenset[str] = frozenset()
        self._looked_up: dict[Where, Span] = {}
        self._breaks: int | None = None

    @property
    def commits(self) -> bool:
        """Whether a beginning is committed, by one member for all."""
        return self._span is not None or self._start == "latest"

    def check(self) -> None:
        """Raise MemberFencedError when the beginning may have been committed twice.

        The second request could arrive when progress has been committed, and move it back; a new
        member makes the broker refuse it. To be asked when the client's lines have been served.
        """
        breaks, self._breaks = self._breaks, None
        if breaks is not None and breaks != self._consumer.log.breaks:
            raise MemberFencedError(
                "a connection broke while the group's beginning was committed", explained=True
            )

    def places(self, partitions: Iterable[Where]) -> Progress:
        """Return where to begin: these, and others of their topics that are known by now.

        Without one of these in it, another member begins its topic: ask again soon. Raises
        PositionLostError where nothing may begin by itself.
        """
        wanted: dict[str, list[Where]] = {}
        for where in sorted(partitions):
            if where[0] not in self.whole and self._start == "refuse":
                raise PositionLostError(
                    f"{where[0]}/{where[1]}: group {self._consumer.group} has no committed offset"
                    " and HAPAX_INPUT__START=refuse; set the group's offset, or choose earliest or"
                    " latest"
                )
            wanted.setdefault(where[0], []).append(where)
        once = [topic for topic in wanted if self.commits and topic not in self.whole]
        firsts = [where for topic in wanted.keys() - set(once) for where in wanted[topic]]
        found = self._consumer.offsets(firsts, EARLIEST)
        for topic in once:
            found |= self._once(topic, wanted[topic])
        return found

    def _once(self, topic: str, wanted: list[Where]) -> Progress:
        every = self._consumer.partitions([topic])
        known = {
            each: answer
            for each, answer in self._consumer.committed({*every, *wanted}).items()
            if answer.offset >= 0
        }
        if not known and every[0] not in self._consumer.assignment():
            return {}
        if not known:
            return self._commit(self._places(every), len(every))
        begun = {where: known[where].offset for where in wanted if where in known}  # meanwhile
        beside = [CommittedMetadata.of(each) for each in known.values()]
        missing = [where for where in wanted if where not in known]
        placed = [where for where in missing if by_start(where[1], beside)]
        places, name = self._places(placed), "" if self._span is None else self._span.name
        # Of partitions that were added the first records: nothing of them is in a span before them.
        lows = self._consumer.offsets(set(missing) - set(placed), EARLIEST)
        places |= {where: Span(low, low, name) for where, low in lows.items()}
        count = len(every) if of_another_client(beside) else began(beside)
        return begun | self._commit(places, count)

    def look_up(self, partitions: Iterable[Where]) -> None:
        """Look up what a span comes to. Before joining: it may take a while in odd logs."""
        if self._span is not None:
            properties = unjoined(self._consumer.properties)
            self._looked_up |= spans(properties, partitions, self._span)

    def _places(self, partitions: Iterable[Where]) -> dict[Where, Span]:
        if self._span is None:
            ends = self._consumer.offsets(partitions, LATEST)
            return {where: Span(end, end, "") for where, end in ends.items()}
        places = list(partitions)
        if not self._looked_up.keys() >= set(places):
            self.look_up(places)
        return {where: self._looked_up.pop(where) for where in places}

    def _commit(self, begun: Mapping[Where, Span], count: int | None) -> Progress:
        if not begun:
            return {}
        ids = self._consumer.log.topics
        bounded = self._span is not None and self._span.end is not None
        places = {where: span.start for where, span in begun.items()}
        offsets = []
        for where, span in begun.items():
            beside = CommittedMetadata(began=count, span=span if bounded else None)
            offsets.append(client_offset(ids.offset(where, span.start, beside=beside)))
        self._breaks = self._consumer.log.breaks
        with self._consumer.asking("commit"):
            answers = self._consumer.client.commit(offsets=offsets, asynchronous=False)
        for answer in answers or []:
            if answer.error is not None:
                raise BatchAbortedError(f"commit of where to begin: {answer.error}", resolved=False)
        return places


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
        self.foreign: list[str] = []
        """Sentences about offsets that another program has committed."""

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
        return {where: offset_or_none(answer) for where, answer in answers.items()}

    def _compare(self, where: Where, answer: TopicPartition) -> None:
        """Compare an answer with how far the group is known to have come.

        A coordinator that has just loaded its log answers with what was replicated last, which may
        be older than what was acknowledged. One that has lost offsets would have every record
        since processed twice: brokers that all died at once, seen with Kafka 4.3.1.
        """
        topic_id, known = CommittedMetadata.of(answer).topic_id, self._states.reached.get(where)
        if known is not None and topic_id is None and answer.offset > known.offset:
            self.foreign.append(
                f"{where[0]}/{where[1]}: another program has moved the group's offset from"
                f" {known.offset} to {answer.offset}, and records in between have had no effect"
                " here: hapax audit names them; give each program a group of its own"
            )
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

    def prove(self, partitions: Iterable[Where]) -> set[Where]:
        """Return those to read again: an epoch is checked by a seek alone (librdkafka 2.16)."""
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
        """Distinguish a group without offsets from positions that fell off the log, all at once."""
        nexts = {where: self._states[where].next for where in partitions}
        known = nexts | self.committed([where for where, at in nexts.items() if at is None])
        self._begin([where for where, at in known.items() if at is None])
        lost = {where: at for where, at in known.items() if at is not None}
        lows, highs = (self._consumer.offsets(lost, at) for at in (EARLIEST, LATEST))
        for where, position in lost.items():
            self._find(where, position, lows[where], highs[where])

    def _find(self, where: Where, position: int, low: int, high: int) -> None:
        state = self._states[where]
        if state.truncated is not None:
            cut = _CUT_AT.search(state.truncated)
            raise self._cut(where, position, int(cut[1]) if cut else None)
        now_s = self._clock.monotonic()
        if state.missing_since_s is None:
            state.missing_since_s = now_s
        # Right after an election the end of the log may lag for a moment; its beginning
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
            f" (unclean election, or recreated) and written again: offsets {gone} now hold others,"
            f" which have had no effect. Decide what to do with them, set the group's offset, then"
            " start again"
        )

    def _begin(self, partitions: Collection[Where]) -> None:
        if partitions:
            places = self.beginning.places(partitions)
            self.rewind(places)
            self._states.unplaced.update(where for where in partitions if where not in places)


class HeldUpPartitions:
    """Attends to partitions whose next records cannot be read. One thread only."""

    def __init__(
        self, consumer: GroupConsumer, states: PartitionStates, positions: Positions, clock: Clock
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._positions = positions
        self._clock = clock
        self._due_s = 0.0
        self._seen: Progress = {}
        self._tries: Counter[Where] = Counter()
        self._large: set[Where] = set()

    def attend(self) -> None:
        """Do what is due. Inside of ``asking``; costs nothing while all can be read."""
        if self._states.stuck.known:
            self._states.stuck.retry(self._try_again)
        if self._consumer.log.too_large.reason and self._clock.monotonic() >= self._due_s:
            self._search()

    def _try_again(self, where: Where, offset: int) -> None:
        """Read a set once more; one that was too large is looked at by another client first."""
        at = max(offset, self._states[where].untaken)
        if where not in self._large or not self._hold_large(where, at):
            self._positions.read_on(where, at)
            self._consumer.hold(where, "undecodable", held=False)

    def _search(self) -> None:
        """Find out which partition it is: one that makes no progress before the end of its log.

        At first one of which nothing was handed out, for a task of Spark may not live for longer.
        """
        now_s = self._clock.monotonic()
        self._consumer.log.too_large.reason = ""  # it comes again while one is not held
        before, self._seen = self._seen, self._states.next_offsets()
        still = {
            where: at
            for where, at in self._seen.items()
            if before.get(where, self._states[where].settled) == at
            and not self._states.stuck.holds(where)
        }
        ends: Progress = {}
        with suppress(BatchAbortedError):  # the line comes again
            ends = self._consumer.offsets(still, LATEST)
        for where in sorted(ends, key=self._tries.__getitem__):
            if ends[where] > still[where] and self._clock.monotonic() - now_s < SEARCH_S:
                self._tries[where] += 1  # others come first the next time
                self._hold_large(where, still[where])
        self._due_s = self._clock.monotonic() + LOOK_S

    def _hold_large(self, where: Where, offset: int) -> bool:
        reason = too_large(unjoined(self._consumer.properties), where, offset)
        self._large.discard(where)
        if reason:
            self._large.add(where)
            self._states.stuck.meet(where, offset, reason, RETRY_LARGE_S)
            self._consumer.hold(where, "undecodable", held=True)
        return bool(reason)

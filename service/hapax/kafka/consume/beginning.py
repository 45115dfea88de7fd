"""Where a group begins to read a topic, decided once for all partitions.

With ``HAPAX_INPUT__START=latest`` only a committed offset says that a partition has begun: one
without it would begin at its end again after a crash, and lose what came meanwhile; or would be
taken for one that was added, and be read from its first record. So the member that owns the first
partition commits the places of all of them, whoever owns these, in one request, with the number of
partitions beside each; the others wait for it. A partition with a higher number was added later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hapax.core.committed_metadata import CommittedMetadata
from hapax.core.errors import BatchAbortedError, MemberFencedError, PositionLostError
from hapax.core.group_start import began, by_start, of_another_client
from hapax.core.span import Span, SpanWords
from hapax.kafka.offset_commit import client_offsets
from hapax.kafka.read.offsets_client import EARLIEST, LATEST, unjoined
from hapax.kafka.read.spans import spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.consume.client import GroupConsumer


class Beginning:
    """Places partitions for which the group has no offset. One thread only.

    start   where a group without offsets begins: earliest, latest, refuse, or a span
    whole   topics that are read from their first record all the same: we write them ourselves
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
        every = [(topic, number) for number in self._consumer.numbers(topic)]
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
        places = self._places(placed) | self._added(set(missing) - set(placed))
        count = len(every) if of_another_client(beside) else began(beside)
        return begun | self._commit(places, count)

    def look_up(self, partitions: Iterable[Where]) -> None:
        """Look up what a span comes to. Before joining: it may take a while in odd logs."""
        if self._span is not None:
            properties = unjoined(self._consumer.properties)
            self._looked_up |= spans(properties, partitions, self._span)

    def _added(self, partitions: Iterable[Where]) -> dict[Where, Span]:
        """Return their first records; nothing of them is in a span of those before them."""
        name = "" if self._span is None else self._span.name
        lows = self._consumer.offsets(partitions, EARLIEST)
        return {where: Span(low, low, name) for where, low in lows.items()}

    def _places(self, partitions: Iterable[Where]) -> dict[Where, Span]:
        """Return where the group begins, and where its span stops."""
        if self._span is None:
            ends = self._consumer.offsets(partitions, LATEST)
            return {where: Span(end, end, "") for where, end in ends.items()}
        places = list(partitions)
        if not self._looked_up.keys() >= set(places):
            self.look_up(places)
        return {where: self._looked_up.pop(where) for where in places}

    def _commit(self, begun: Mapping[Where, Span], count: int | None) -> Progress:
        """Commit where the group begins; outside of transactions."""
        if not begun:
            return {}
        ids = self._consumer.log.topics
        bounded = self._span is not None and self._span.end is not None
        places = {where: span.start for where, span in begun.items()}
        offsets = client_offsets(
            ids.offset(
                where,
                span.start,
                beside=CommittedMetadata(began=count, span=span if bounded else None),
            )
            for where, span in begun.items()
        )
        self._breaks = self._consumer.log.breaks
        with self._consumer.asking("commit"):
            answers = self._consumer.client.commit(offsets=offsets, asynchronous=False)
        for answer in answers or []:
            if answer.error is not None:
                raise BatchAbortedError(f"commit of where to begin: {answer.error}", resolved=False)
        return places

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
from hapax.core.span import Span, SpanWords
from hapax.kafka.offset_commit import client_offsets
from hapax.kafka.read.offset_client import unjoined
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

    def places(self, where: Where) -> Progress:
        """Return where to begin: this partition, and others of its topic that are known by now.

        Without this partition in it, another member begins the topic: ask again soon. Raises
        PositionLostError where nothing may begin by itself.
        """
        if where[0] in self.whole:
            return {where: self._consumer.watermarks(where)[0]}
        if self._start == "refuse":
            raise PositionLostError(
                f"{where[0]}/{where[1]}: group {self._consumer.group} has no committed offset and"
                " HAPAX_INPUT__START=refuse; set the group's offset, or choose earliest or latest"
            )
        if self.commits:
            return self._once(where)
        return {where: self._consumer.watermarks(where)[0]}

    def _once(self, where: Where) -> Progress:
        every = [(where[0], number) for number in self._consumer.numbers(where[0])]
        known = {
            each: answer
            for each, answer in self._consumer.committed({*every, where}).items()
            if answer.offset >= 0
        }
        if where in known:  # begun since the look-up
            return {where: known[where].offset}
        if known:
            counts = [CommittedMetadata.decode(each.metadata).began for each in known.values()]
            began = max((count for count in counts if count is not None), default=None)
            if began is None or where[1] >= began:
                # Added later, or the group is of a version that did not count: nobody has seen
                # any of its records.
                return self._commit(self._added(where), began)
            # It has begun once, and its offset was deleted by hand: it begins again.
            return self._commit(self._places([where]), began)
        if every[0] not in self._consumer.assignment():
            return {}
        return self._commit(self._places(every), len(every))

    def look_up(self, partitions: Iterable[Where]) -> None:
        """Look up what a span comes to. Before joining: it may take a while in odd logs."""
        if self._span is not None:
            properties = unjoined(self._consumer.properties)
            self._looked_up |= spans(properties, partitions, self._span)

    def _added(self, where: Where) -> dict[Where, Span]:
        """Return the first record of a partition; nothing of it is in a span of those before it."""
        low = self._consumer.watermarks(where)[0]
        return {where: Span(low, low, "" if self._span is None else self._span.name)}

    def _places(self, partitions: Iterable[Where]) -> dict[Where, Span]:
        """Return where the group begins, and where its span stops."""
        if self._span is None:
            ends = {where: self._consumer.watermarks(where)[1] for where in partitions}
            return {where: Span(end, end, "") for where, end in ends.items()}
        places = list(partitions)
        if not self._looked_up.keys() >= set(places):
            self.look_up(places)
        return {where: self._looked_up.pop(where) for where in places}

    def _commit(self, begun: Mapping[Where, Span], began: int | None) -> Progress:
        """Commit where the group begins; outside of transactions."""
        ids = self._consumer.log.topics
        bounded = self._span is not None and self._span.end is not None
        places = {where: span.start for where, span in begun.items()}
        offsets = client_offsets(
            ids.offset(
                where,
                span.start,
                beside=CommittedMetadata(began=began, span=span if bounded else None),
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

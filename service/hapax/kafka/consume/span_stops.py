"""Where a bounded span stops: not one record beyond it is handed out, and no progress is."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from hapax.core.errors import BatchAbortedError, PreflightError
from hapax.core.offset_commit import CommittedMetadata
from hapax.core.span import Span, SpanWords, other_span
from hapax.kafka.consume.client import ANSWER_TIMEOUT_S, GroupConsumer
from hapax.kafka.consume.decode import before
from hapax.kafka.errors import describe
from hapax.kafka.read.group_start import spans
from hapax.kafka.read.offsets_client import OffsetsClient, unjoined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.record_path import Batch
    from hapax.core.records import Progress, TopicPartition as Where
    from hapax.kafka.consume.partition_state import PartitionStates
    from hapax.kafka.consume.positions import Positions


class SpanStops:
    """Cuts what a consumer hands out. One thread only.

    bounded  the span ends; without an end there is nothing to cut
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        states: PartitionStates,
        positions: Positions,
        start: str | SpanWords,
    ) -> None:
        self._consumer = consumer
        self._states = states
        self._positions = positions
        self._given = start if isinstance(start, SpanWords) else None
        self._words = self._given if self._given is not None and self._given.end else None
        self.bounded = self._words is not None

    def require(self, partitions: Iterable[Where]) -> None:
        """Look up the beginning; raise PreflightError when offsets are of no or another span."""
        if self._given is None:
            return
        if problems := self._given.problems(int(time.time() * 1000)):
            raise PreflightError(problems)
        asked = self.of_inputs(partitions)
        known = self._known(asked)
        if fresh := [where for where in asked if where not in known]:
            self._positions.beginning.look_up(fresh)

    def ends(self, partitions: Iterable[Where]) -> Progress | None:
        """Return where all partitions stop, those of other members as well.

        Without a span: the ends of the logs, with what is still undecided. None: the group has not
        begun in all of them; ask again soon. Raises as ``require``.
        """
        asked = self.of_inputs(partitions)
        if self._words is None:
            whole = spans(unjoined(self._consumer.properties), asked, SpanWords("earliest"))
            return {where: span.stop for where, span in whole.items()}
        known = self._known(asked)
        if any(where not in known for where in asked):
            return None
        return {where: span.stop for where, span in known.items() if span is not None}

    def of_inputs(self, partitions: Iterable[Where]) -> list[Where]:
        """Return those that are read for their own sake: what waits in the retry topic is not."""
        whole = self._positions.beginning.whole
        return [where for where in partitions if where[0] not in whole]

    def _known(self, partitions: Iterable[Where]) -> dict[Where, Span | None]:
        """Return the spans in the group's committed metadata; no transaction is waited for.

        Every offset from the beginning on has the span, so any of them will do.
        """
        try:
            with closing(OffsetsClient(unjoined(self._consumer.properties))) as queries:
                answers = queries.group_offsets(partitions, ANSWER_TIMEOUT_S, stable=False)
        except KafkaException as error:
            reason = describe(error.args[0])
            raise BatchAbortedError(f"committed: {reason}", resolved=False) from error
        for one in answers.values():
            if one.error is not None:
                raise BatchAbortedError(f"committed: {describe(one.error)}", resolved=False)
        own = {at: CommittedMetadata.of(one).span for at, one in answers.items() if one.offset >= 0}
        if self._words is not None:
            problem = other_span(self._consumer.group, own, self._words.name)
            if problem is not None:
                raise PreflightError(problem)
        return own

    def stop(self, where: Where) -> int | None:
        """Return the stop; where the group is further already, by workers, that offset."""
        if self._words is None or where[0] in self._positions.beginning.whole:
            return None
        state = self._states[where]
        if state.stop is None:
            self._look_up({*self.of_inputs(self._consumer.assignment()), where})
        if state.stop is None:
            raise BatchAbortedError(f"{where[0]}/{where[1]} has not begun", resolved=False)
        return state.stop

    def _look_up(self, partitions: Iterable[Where]) -> None:
        unknown = [where for where in partitions if self._states[where].stop is None]
        for where, offset in self._positions.committed(unknown).items():
            span = self._states[where].committed.span
            if offset is not None:
                self._states[where].stop = offset if span is None else max(span.stop, offset)

    def before(self, records: Any) -> Any:
        """Return native records if all of them lie before the stops; others are read one by one."""
        for topic, partition, _start, _count, _first, next_offset, *_ in records.runs:
            stop = self.stop((topic, partition))
            if stop is not None and next_offset > stop:
                return None
        return records

    def cut(self, batch: Batch) -> Batch:
        """Return a batch without what lies beyond; partitions that have come there are held."""
        stops = {where: stop for where in batch.next if (stop := self.stop(where)) is not None}
        met = {where: stop for where, stop in stops.items() if batch.next[where] >= stop}
        over = {where for where, stop in met.items() if batch.next[where] > stop}
        for where, stop in met.items():
            self._states[where].next = batch.next[where] = stop
            self._consumer.hold(where, "stop", held=True)
        if over.isdisjoint(batch.first):
            return batch  # only ends were beyond
        return before(batch, {where: met[where] for where in over})

    def release(self, progress: Mapping[Where, int]) -> None:
        for where in progress.keys() & set(self._consumer.held("stop")):
            self._consumer.hold_ours(where, "stop", held=False)

    def limit(self, ends: Progress) -> Progress:
        stops = {where: self.stop(where) for where in ends}
        return {
            where: end if (stop := stops[where]) is None else min(end, stop)
            for where, end in ends.items()
        }

"""Where a span begins and stops in each partition, looked up in the logs."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError, ConfigurationError
from hapax.core.span import Span, SpanWords, offsets_of, time_of
from hapax.kafka.errors import describe, offset_of, place_of
from hapax.kafka.properties import build
from hapax.kafka.read.offsets_client import EARLIEST, LATEST, OffsetsClient
from hapax.kafka.read.range_reader import RangeFetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hapax.core.records import Progress, TopicPartition as Where

SILENCE_S = 10.0
ANSWER_TIMEOUT_S = 5.0


def spans(
    properties: Mapping[str, Any], places: Iterable[Where], words: SpanWords
) -> dict[Where, Span]:
    """Return the span of each partition. ``properties``: of a consumer that joins nothing.

    A point in time is the first record at or after it, also of a transaction that is open or was
    aborted: what an open one holds before the end belongs to the span, if it is ever committed.
    Without such a record it is the end of the log. Raises BatchAbortedError when brokers do not
    answer: ask again.
    """
    with closing(OffsetsClient(properties, left_s=lambda: ANSWER_TIMEOUT_S)) as queries:
        return _Lookup(properties, queries, list(places)).spans(words)


class _Lookup:
    def __init__(
        self, properties: Mapping[str, Any], queries: OffsetsClient, places: list[Where]
    ) -> None:
        self._properties = properties
        self._queries = queries
        self._places = places
        self._now_ms = int(time.time() * 1000)
        # Before all else: what arrives in the meantime is beyond the end.
        self._highs = self._offsets(LATEST)

    def spans(self, words: SpanWords) -> dict[Where, Span]:
        starts = self._offsets(EARLIEST) if words.start == "earliest" else self._at(words.start)
        stops = self._highs
        if words.end is not None and words.end != "latest":
            stops = self._at(words.end)
        return {
            where: Span(min(starts[where], stops[where]), stops[where], words.name)
            for where in self._places
        }

    def _at(self, text: str) -> Progress:
        named = offsets_of(text)
        if named is None:
            time_ms = time_of(text, self._now_ms)
            return self._highs | self._from(0 if time_ms is None else max(0, time_ms))
        missing = [f"{topic}/{n}" for topic, n in self._places if (topic, n) not in named]
        if missing:
            problem = f"{text} names no offset of {', '.join(missing)}: name one of every partition"
            raise ConfigurationError(problem)
        return {where: named[where] for where in self._places}

    def _from(self, time_ms: int) -> Progress:
        """Return the first records from that time on, of the partitions that have one.

        Brokers also take a transaction's marker for a record, with the time at which it ended:
        after one there may be records that are older. So what they answer is only where to search.
        """
        asked = self._answers(dict.fromkeys(self._places, time_ms))
        ranges = {at: (low, self._highs[at]) for at, low in asked.items() if low is not None}
        found: Progress = {}
        own = {**self._properties, "isolation.level": "read_uncommitted", "log_level": 0}
        with closing(build(Consumer, own, None)) as consumer:
            fetch = RangeFetch(consumer, ranges, refused=_refused)
            while fetch.ends:
                for message in fetch.poll():
                    where = place_of(message)
                    if where not in found and message.timestamp()[1] >= time_ms:
                        found[where] = offset_of(message)
                for where in fetch.ends.keys() & fetch.undecodable.keys():
                    found.setdefault(where, fetch.undecodable[where].offset)
                for where in fetch.ends.keys() & found.keys():
                    del fetch.ends[where]
                fetch.pause_done()
                if fetch.silent(SILENCE_S):
                    raise BatchAbortedError("records of a span: nothing came", resolved=False)
        return found

    def _offsets(self, at: int) -> Progress:
        found = self._answers(dict.fromkeys(self._places, at))
        known = {where: offset for where, offset in found.items() if offset is not None}
        if len(known) < len(found):
            raise BatchAbortedError("offsets of the input: a log has no end", resolved=False)
        return known

    def _answers(self, wanted: Mapping[Where, int]) -> dict[Where, int | None]:
        try:
            found = self._queries.offsets(wanted)
        except KafkaException as error:
            reason = describe(error.args[0])
            raise BatchAbortedError(f"offsets of the input: {reason}", resolved=False) from error
        if errors := self._queries.take_errors():
            raise BatchAbortedError(f"offsets of the input: {errors[0]}", resolved=False)
        return found


def _refused(place: str, error: KafkaError) -> BatchAbortedError:
    return BatchAbortedError(f"{place} cannot be read: {describe(error)}", resolved=False)

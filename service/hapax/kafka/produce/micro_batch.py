"""One micro-batch and its marker in one Kafka transaction, or its rows fixed for its lanes.

marked_transaction.py says what makes a marker the truth. Before the first micro-batch of an app it
is asked whether the output topics hold records that micro-batches of this app have published: when
checkpoint and marker are both gone, only the output still knows that there was a query before. A
lane publishes the parcels that a manifest gives it, in order, each once; its marker counts them, in
the transactions that publish them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hapax.cluster.micro_batches import (
    GIVEN_UP,
    LaneMarker,
    Marker,
    PublishedBatch,
    PublishedRecord,
    due,
    published_parcels,
)
from hapax.core.errors import (
    BatchAbortedError,
    PositionLostError,
    PreflightError,
    ProducerDeadError,
    StopError,
)
from hapax.kafka.produce.marked_transaction import MarkedTransaction, sink_lane_names, sink_names
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hapax.cluster.micro_batches import FixedBatch, MicroBatch
    from hapax.core.ports import Clock, Watch
    from hapax.core.records import Message, Progress
    from hapax.kafka.produce.producer import LogLine
    from hapax.settings import Settings

    Chunk = Sequence[Message]
    Chunks = Callable[[], Iterable[Chunk]]

NEAR_OFFSETS = 100
"""How far back from the last stable offset each partition is read first."""
FAR_OFFSETS, FAR_OFFSETS_ALL = 10_000, 200_000
"""How far then: of one partition, and of all together."""
PART_OF_TIMEOUT = 4
"""A transaction takes further parcels for a quarter of its time; one parcel may take all of it."""


def published_record(settings: Settings, topics: set[str]) -> PublishedRecord | None:
    """Return one at the ends of existing topics; what lies further back is not found.

    Raises PreflightError when they cannot be read.
    """
    with closing(BlockingOffsets(settings)) as client:
        partitions = client.partitions(sorted(topics - client.absent(topics)))
        lows, ends = client.log_starts(partitions), client.last_stable(partitions)
    far = min(FAR_OFFSETS, FAR_OFFSETS_ALL // max(1, len(partitions)))
    near = {where: max(lows[where], end - NEAR_OFFSETS) for where, end in ends.items()}
    beyond = {where: max(lows[where], end - far) for where, end in ends.items()}
    return _record_within(settings, near, ends) or _record_within(settings, beyond, near)


def _record_within(settings: Settings, starts: Progress, ends: Progress) -> PublishedRecord | None:
    spans = {where: (start, ends[where]) for where, start in starts.items()}
    for seen in RangeReader(settings).read(spans):
        for one in seen:
            found = PublishedRecord.parse(one.record, settings.app)
            if found is not None:
                return found
    return None


Done = TypeVar("Done")


class KafkaPublisher:
    """Publishes micro-batches of one app. One call at a time; ``close`` after the last."""

    def __init__(
        self, settings: Settings, *, clock: Clock, forward: LogLine, logger: object, watch: Watch
    ) -> None:
        self._settings = settings
        self._app = settings.app
        self._topic = settings.output.topic
        self._attempts = settings.retry.attempts
        self._named = partial(
            MarkedTransaction, settings, clock=clock, forward=forward, logger=logger, watch=watch
        )
        self._marked = self._named(sink_names(settings.app))
        self.list_topics: Callable[[float], Any] = self._marked.list_topics

    def publish(self, batch: MicroBatch, chunks: Chunks) -> PublishedBatch | FixedBatch:
        """Make the micro-batch visible as a whole, unless it is.

        ``chunks`` is called for each attempt and gives all records, some at a time. Returns the
        rows that were fixed before, of which lanes may have published parts: those are to be
        published, and then ``finish`` is to be called. Raises PositionLostError when the marker
        contradicts the checkpoint, StopError when no repetition can help, and BatchAbortedError or
        ProducerDeadError when the same call is to be repeated later; in all cases nothing is
        visible, or the next call finds out that it is.
        """

        def once(marker: Marker | None) -> dict[str, int] | FixedBatch | None:
            if not self._due(batch, marker):
                return None
            if marker is not None and marker.fixed is not None:
                return marker.fixed
            return self._write(Marker.after(batch), self._looked_at(batch, marker, chunks()))

        done, attempt = self._attempted(batch, once)
        if done is None or isinstance(done, dict):
            return PublishedBatch(done or {}, repeated=done is None, attempts=attempt)
        return done

    def fix(self, batch: MicroBatch, fixed: FixedBatch, chunks: Chunks) -> FixedBatch | None:
        """Return which rows hold; None: the micro-batch is published. Raises as ``publish``."""

        def once(marker: Marker | None) -> FixedBatch | None:
            if not self._due(batch, marker):
                return None
            if marker is not None and marker.fixed is not None:
                return marker.fixed
            if marker is None:
                for _ in self._looked_at(batch, marker, chunks()):
                    pass
            lanes = dict.fromkeys(range(fixed.lanes), LaneMarker(0, fixed.manifest))
            self._write(Marker.fixing(batch, marker, fixed), (), lanes)
            return fixed

        return self._attempted(batch, once)[0]

    def finish(self, batch: MicroBatch, fixed: FixedBatch) -> None:
        """Say that all lanes have published these rows; raise as ``publish``."""

        def once(marker: Marker | None) -> None:
            if not self._due(batch, marker):
                return  # by another driver, or by an attempt whose outcome was not known
            if marker is None or marker.fixed != fixed:
                raise PositionLostError(
                    f"micro-batch {batch.number} of query {batch.query} was published from"
                    f" {fixed.manifest}, which its marker does not name any more: two queries run"
                    " on it. docs/dataframes.md, section Stops, describes how to continue"
                )
            self._write(Marker.after(batch), ())

        self._attempted(batch, once)

    def refresh(self) -> Marker | None:
        """Commit the marker as it is, so that it does not expire; return it.

        Those of lanes as well while they have something to publish. A publication that is under
        way elsewhere is fenced by it, and repeated.
        """
        marker = self._opened_marker()
        if marker is None:
            return None
        self._write(marker, ())
        for lane in range(0 if marker.fixed is None else marker.fixed.lanes):
            with closing(self._named(sink_lane_names(self._app, lane))) as marked:
                found = marked.opened()
                if found is not None:
                    marked.send(())
                    marked.commit(*found)
        return marker

    def overwrite(self, marker: Marker) -> None:
        """Commit this marker whatever was there: a person has decided where to continue.

        What lanes have not published of a former choice of rows stays unpublished.
        """
        try:
            former = self._opened_marker()
        except PositionLostError:  # of another program; it is replaced
            former = None
        lanes = range(0 if former is None or former.fixed is None else former.fixed.lanes)
        for lane in lanes:
            with closing(self._named(sink_lane_names(self._app, lane))) as marked:
                marked.transaction.open()  # a producer that still publishes is fenced
        self._write(marker, (), dict.fromkeys(lanes, GIVEN_UP))

    def close(self) -> None:
        self._marked.close()

    def _attempted(
        self, batch: MicroBatch, once: Callable[[Marker | None], Done]
    ) -> tuple[Done, int]:
        for attempt in range(1, self._attempts + 1):
            try:
                return once(self._opened_marker()), attempt
            except (BatchAbortedError, ProducerDeadError):
                refusal = self._marked.transaction.refusal()
                if refusal is not None:
                    raise StopError(
                        f"record {refusal[0]} of micro-batch {batch.number} was refused:"
                        f" {refusal[1]}. Nothing of the micro-batch was published: fix what the"
                        " pipeline writes, or the topic"
                    ) from None
                if attempt == self._attempts:
                    raise
        raise AssertionError("attempts are at least three")

    def _opened_marker(self) -> Marker | None:
        found = self._marked.opened()
        return None if found is None else Marker.parse(*found)

    def _due(self, batch: MicroBatch, marker: Marker | None) -> bool:
        fresh = marker is None and batch.number == 0
        return due(batch, marker, self._found({self._topic}) if fresh else None)

    def _found(self, topics: set[str]) -> PublishedRecord | None:
        try:
            return published_record(self._settings, topics)
        except PreflightError as error:
            raise BatchAbortedError(f"what was published before is not known: {error}") from error

    def _looked_at(
        self, batch: MicroBatch, marker: Marker | None, chunks: Iterable[Chunk]
    ) -> Iterator[Chunk]:
        """Pass the chunks on; search each topic that the rows of a first micro-batch name."""
        known = {self._topic}
        for chunk in chunks:
            topics = {message.topic for message in chunk} - known if marker is None else set()
            if topics:
                known |= topics
                due(batch, None, self._found(topics))
            yield chunk

    def _write(
        self, marker: Marker, chunks: Iterable[Chunk], lanes: dict[int, LaneMarker] | None = None
    ) -> dict[str, int]:
        records = self._marked.send(chunks)
        others = {
            sink_lane_names(self._app, lane).group: (each.done, each.metadata)
            for lane, each in (lanes or {}).items()
        }
        self._marked.commit(marker.next, marker.metadata, others)
        return records


class LanePublished(msgspec.Struct):
    """What a lane has done: parcels that are published, and what this call published, by topic.

    ``attempts``: producers that it took.
    """

    done: int = 0
    records: dict[str, int] = {}
    attempts: int = 0


def publish_lane(
    marked: MarkedTransaction,
    lane: int,
    manifest: str,
    parcels: Sequence[Chunks],
    published: LanePublished,
    *,
    attempts_max: int,
) -> None:
    """Publish what one lane has of a manifest, and keep ``published`` up meanwhile.

    Raises PositionLostError when the lane's marker does not know the manifest, StopError when no
    repetition can help, BatchAbortedError or ProducerDeadError when the same call is to be repeated
    later.
    """
    failures, records = 0, Counter[str]()
    while True:
        published.attempts += 1
        try:
            found = marked.opened()
            marker = None if found is None else LaneMarker.parse(*found)
            published.done = published_parcels(lane, manifest, marker)
            while published.done < len(parcels):
                taken, sent = _part(marked, manifest, parcels, published.done)
                records.update(sent)
                published.done, published.records = taken, dict(records)
                failures = 0
        except (BatchAbortedError, ProducerDeadError):
            failures += 1
            refusal = marked.transaction.refusal()
            if refusal is not None:
                raise StopError(
                    f"a record was refused, number {refusal[0]} from parcel {published.done} of"
                    f" lane {lane}: {refusal[1]}"
                ) from None
            if failures == attempts_max:
                raise
        else:
            return


def _part(
    marked: MarkedTransaction, manifest: str, parcels: Sequence[Chunks], done: int
) -> tuple[int, dict[str, int]]:
    taken = done

    def chunks() -> Iterator[Chunk]:
        nonlocal taken
        for parcel in parcels[done:]:
            yield from parcel()
            taken += 1
            if marked.transaction.age_s > marked.deadline_s / PART_OF_TIMEOUT:
                return

    records = marked.send(chunks())
    marker = LaneMarker(taken, manifest)
    marked.commit(marker.done, marker.metadata)
    return taken, records

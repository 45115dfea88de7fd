"""A lane of the sink: the parcels that a manifest gives it, published in order, each once.

The lane's marker counts the parcels that are published, in the transactions that publish them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import BatchAbortedError, ProducerDeadError, StopError
from hapax.core.fixed_batches import LaneMarker, published_parcels
from hapax.kafka.produce.marked_transaction import MarkedTransaction, sink_lane_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hapax.core.ports import Clock, Message, Watch
    from hapax.kafka.produce.doubts import LogLine
    from hapax.settings import Settings

    Parcel = Callable[[], Iterable[Sequence[Message]]]

PART_OF_TIMEOUT = 4
"""A transaction takes further parcels for a quarter of its time; one parcel may take all of it."""


class LanePublished(msgspec.Struct):
    """What a lane has done: parcels that are published, and what this call published, by topic.

    ``attempts``: producers that it took.
    """

    done: int = 0
    records: dict[str, int] = {}
    attempts: int = 0


class LanePublisher:
    """Publishes what one lane has of a manifest. ``close`` after the call."""

    def __init__(
        self,
        settings: Settings,
        lane: int,
        *,
        clock: Clock,
        forward: LogLine,
        logger: object,
        watch: Watch,
    ) -> None:
        self._lane = lane
        self._attempts = settings.retry.attempts
        self._marked = MarkedTransaction(
            settings,
            sink_lane_names(settings.app, lane),
            clock=clock,
            forward=forward,
            logger=logger,
            watch=watch,
        )

    def publish(
        self, manifest: str, parcels: Sequence[Parcel], published: LanePublished
    ) -> LanePublished:
        """Publish the parcels that are not published; ``published`` is kept up as it goes on.

        Raises PositionLostError when the lane's marker does not know the manifest, StopError when
        no repetition can help, BatchAbortedError or ProducerDeadError when the same call is to be
        made again later.
        """
        failures, records = 0, Counter[str]()
        while True:
            published.attempts += 1
            try:
                published.done = published_parcels(self._lane, manifest, self._marker())
                while published.done < len(parcels):
                    taken, sent = self._part(manifest, parcels, published.done)
                    records.update(sent)
                    published.done, published.records = taken, dict(records)
                    failures = 0
            except (BatchAbortedError, ProducerDeadError):
                failures += 1
                refusal = self._marked.transaction.refusal()
                if refusal is not None:
                    raise StopError(
                        f"a record was refused, number {refusal[0]} from parcel {published.done} of"
                        f" lane {self._lane}: {refusal[1]}"
                    ) from None
                if failures == self._attempts:
                    raise
            else:
                return published

    def close(self) -> None:
        """Drop the clients."""
        self._marked.close()

    def _marker(self) -> LaneMarker | None:
        found = self._marked.opened()
        return None if found is None else LaneMarker.parse(*found)

    def _part(
        self, manifest: str, parcels: Sequence[Parcel], done: int
    ) -> tuple[int, dict[str, int]]:
        """Publish some parcels in one transaction; return how many are published then."""
        taken = done

        def chunks() -> Iterator[Sequence[Message]]:
            nonlocal taken
            for parcel in parcels[done:]:
                yield from parcel()
                taken += 1
                if self._marked.transaction.age_s > self._marked.deadline_s / PART_OF_TIMEOUT:
                    return

        records = self._marked.send(chunks())
        marker = LaneMarker(taken, manifest)
        self._marked.commit(marker.done, marker.metadata)
        return taken, records

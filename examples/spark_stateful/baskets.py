"""State of any shape, with timers: baskets that are bought, and baskets that are abandoned.

What is added and not bought is reported when 30 minutes of event time pass without a further event
of that user. It needs the state store RocksDB (settings.env), and Kafka keys that keep the events
of a user in one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Row, functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

SILENCE_MS = 30 * 60 * 1000


def pipeline(records: DataFrame) -> DataFrame:
    events = records.select(
        f.from_json(f.col("value").cast("string"), "user string, at timestamp, item string").alias(
            "e"
        ),
        "partition",
        "offset",
    ).select("e.*", f.unix_millis("e.at").alias("at_ms"), "partition", "offset")
    ended = (
        events.where("user IS NOT NULL AND at IS NOT NULL")
        .withWatermark("at", "5 minutes")
        .groupBy("user")
        .transformWithState(
            Baskets(), "user string, items array<string>, end string", "Append", "EventTime"
        )
    )
    return ended.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))


class Baskets(StatefulProcessor):
    """One basket for each user: its items, and when the last event came."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name what is kept; Spark calls it in each task."""
        self.handle = handle
        self.basket = handle.getValueState("basket", "items array<string>, at_ms long")

    def handleInputRows(
        self, key: tuple[str], rows: Iterable[Row], timerValues: object
    ) -> Iterator[Row]:
        """Take the events of one user in one micro-batch; one without an item is a purchase."""
        items, at_ms = self.taken()
        # Their order was lost on the way here.
        for event in sorted(rows, key=lambda row: (row.partition, row.offset)):
            if items and event.at_ms > at_ms + SILENCE_MS:  # the timer has not fired yet
                yield Row(user=key[0], items=items, end="abandoned")
                items = []
            if event.item is not None:
                items = [*items, event.item]
            elif items:
                yield Row(user=key[0], items=items, end="bought")
                items = []
            at_ms = max(at_ms, event.at_ms)
        if items:
            self.keep(items, at_ms)

    def handleExpiredTimer(
        self, key: tuple[str], timerValues: object, expiredTimerInfo: object
    ) -> Iterator[Row]:
        """Give a basket up: the watermark has passed the timer that ``keep`` has set."""
        items, _at_ms = self.taken()
        if items:
            yield Row(user=key[0], items=items, end="abandoned")

    def taken(self) -> tuple[list[str], int]:
        """Take the basket out of the state, with its timer; empty if there is none."""
        found = self.basket.get()
        if found is None:
            return [], 0
        items, at_ms = found
        self.basket.clear()
        self.handle.deleteTimer(at_ms + SILENCE_MS)
        return list(items), at_ms

    def keep(self, items: list[str], at_ms: int) -> None:
        """Keep the basket until an event of the user comes, or its timer."""
        self.basket.update((items, at_ms))
        self.handle.registerTimer(at_ms + SILENCE_MS)

"""``hapax consume``: the records of topics, as any reader of them finds them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hapax.core.records import Record
    from hapax.kafka.read.offsets_client import Isolation
    from hapax.settings import Settings

REST_S = 0.2
"""Between two looks for what has been written since."""


def consume(
    settings: Settings,
    topics: Sequence[str],
    *,
    start: str | int = "beginning",
    count: int | None = None,
    follow: bool = False,
    isolation: Isolation = "read_committed",
    stopping: Callable[[], bool] = bool,
) -> Iterator[list[Record]]:
    """Yield a partition in order; raise PreflightError: topic missing, or brokers silent.

    start     ``beginning``, ``end``, or Unix time in milliseconds
    count     end after so many records; None: no limit
    follow    wait for further records at the end
    """
    left = count
    with closing(BlockingOffsets(settings)) as client:
        ends_of = client.last_stable if isolation == "read_committed" else client.high_watermarks
        places = client.partitions(topics)
        starts = client.log_starts(places) if start == "beginning" else ends_of(places)
        if isinstance(start, int):
            starts = {**starts, **client.at_time(places, start)}
        while True:
            ends = ends_of(client.partitions(topics))
            spans = {where: (start, ends[where]) for where, start in starts.items()}
            for found in RangeReader(settings, isolation).read(spans):
                records = [one.record for one in found][:left]
                yield records
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        return
            starts = {where: max(end, starts[where]) for where, end in ends.items()}
            if not follow or stopping():
                return
            time.sleep(REST_S)

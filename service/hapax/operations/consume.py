"""``hapax consume``: the records of topics, as any reader of them finds them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hapax.core.records import Progress, Record
    from hapax.kafka.read.offsets_client import Isolation
    from hapax.settings import Settings

REST_S = 0.2
"""Between two looks for what has been written since."""


class Consuming(msgspec.Struct, frozen=True, kw_only=True):
    """What to read.

    start     ``beginning``, ``end``, or Unix time in milliseconds
    count     end after so many records; None: no limit
    follow    wait for further records at the end
    """

    topics: Sequence[str]
    start: str | int = "beginning"
    count: int | None = None
    follow: bool = False
    isolation: Isolation = "read_committed"


def consume(
    settings: Settings, wanted: Consuming, *, stopping: Callable[[], bool] = bool
) -> Iterator[list[Record]]:
    """Yield a partition in order; raise PreflightError: topic missing, or brokers silent."""
    left = wanted.count
    with closing(BlockingOffsets(settings)) as client:
        starts = _starts(client, wanted)
        while True:
            ends = _ends(client, wanted)
            spans = {where: (start, ends[where]) for where, start in starts.items()}
            for found in RangeReader(settings, wanted.isolation).read(spans):
                records = [one.record for one in found][:left]
                yield records
                if left is not None:
                    left -= len(records)
                    if left <= 0:
                        return
            starts = {where: max(end, starts[where]) for where, end in ends.items()}
            if not wanted.follow or stopping():
                return
            time.sleep(REST_S)


def _starts(client: BlockingOffsets, wanted: Consuming) -> Progress:
    places = client.partitions(wanted.topics)
    if wanted.start == "beginning":
        return client.log_starts(places)
    ends = _ends(client, wanted)
    if isinstance(wanted.start, int):
        return {**ends, **client.at_time(places, wanted.start)}
    return ends


def _ends(client: BlockingOffsets, wanted: Consuming) -> Progress:
    places = client.partitions(wanted.topics)
    if wanted.isolation == "read_committed":
        return client.last_stable(places)
    return client.high_watermarks(places)

"""Ranges of topics as commands read them: what is undecided, waiting for it, and progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hapax.core.records import Progress, TopicPartition
    from hapax.kafka.read.offsets_client import Isolation
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.settings import Settings

    Tell = Callable[[str], None]
    Undecided = dict[TopicPartition, tuple[int, int]]

TELL_S = 1.0

MARGIN_S, REST_S = 12.0, 0.1
"""Longer than a transaction's timeout: brokers look for those of dead producers every 10 s."""


class Operation:
    """What a command does with the brokers, in a block: the connections are closed at its end."""

    def __init__(self, settings: Settings, tell: Tell = lambda _text: None) -> None:
        self._settings = settings
        self._tell = tell
        self._client = BlockingOffsets(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()


def read_ranges(
    settings: Settings,
    spans: Mapping[TopicPartition, tuple[int, int]],
    tell: Tell,
    what: str,
    isolation: Isolation = "read_committed",
) -> Iterator[list[ReadRecord]]:
    """Yield the records of all ranges, some at a time; ``tell`` now and then how far it is."""
    total = sum(max(0, end - start) for start, end in spans.values())
    read, told_s = 0, time.monotonic()
    for chunk in RangeReader(settings, isolation).read(spans):
        yield chunk
        read += len(chunk)
        if time.monotonic() - told_s > TELL_S:
            told_s = time.monotonic()
            tell(f"{what}: {read:,} of at most {total:,}")


def undecided(client: BlockingOffsets, partitions: Iterable[TopicPartition]) -> Undecided:
    """Return the last stable offset and the high watermark of partitions where they differ."""
    places = list(partitions)
    highs = client.high_watermarks(places)
    # Later than the ends: what a stable offset has passed meanwhile is decided.
    return _before(places, client.last_stable(places), highs)


def await_decided(
    client: BlockingOffsets,
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
    waiting: Callable[[], None],
) -> tuple[Progress, Undecided]:
    """Wait until all that was begun by now is decided, for as long as a transaction may take.

    Returns the last stable offsets, and which of them are still before an end of the beginning.
    """
    places = list(partitions)
    begun = client.high_watermarks(places)
    give_up_s = time.monotonic() + timeout_ms / 1000 + MARGIN_S
    while True:
        ends = client.last_stable(places)
        behind = _before(places, ends, begun)
        if not behind or time.monotonic() > give_up_s:
            return ends, behind
        waiting()
        time.sleep(REST_S)


def _before(places: list[TopicPartition], stable: Progress, highs: Progress) -> Undecided:
    return {
        where: (stable[where], highs[where]) for where in places if stable[where] < highs[where]
    }

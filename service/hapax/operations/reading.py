"""Topics as commands read them: ranges, with progress; what is undecided, and waiting for it."""

from __future__ import annotations

import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Self

from hapax.core.errors import ConfigurationError
from hapax.core.ports import silent
from hapax.kafka.read.offsets_client import BlockingOffsets
from hapax.kafka.read.range_reader import RangeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hapax.core.ports import Tell
    from hapax.core.records import Progress, Record, TopicPartition
    from hapax.kafka.read.offsets_client import Isolation
    from hapax.kafka.read.range_reader import ReadRecord
    from hapax.settings import Settings

    Undecided = dict[TopicPartition, tuple[int, int]]

MARGIN_S, REST_S = 12.0, 0.1
"""Longer than a transaction's timeout: brokers look for those of dead producers every 10 s."""
FOLLOW_S = 0.2
"""Between two looks for what has been written since."""


def require_group(settings: Settings) -> None:
    """Raise ConfigurationError where positions are none of a group."""
    if settings.spark.dataframe is not None:
        problem = (
            "HAPAX_SPARK__DATAFRAME is set: positions of a DataFrame are in its checkpoint, not in"
            " a group; its status page and the line micro_batch_completed show them"
        )
        raise ConfigurationError(problem)


class Operation:
    """What a command does with the brokers, in a block: the connections are closed at its end."""

    def __init__(self, settings: Settings, tell: Tell = silent) -> None:
        self._settings = settings
        self._tell = tell
        self._client = BlockingOffsets(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.close()


@contextmanager
def repeated(action: Callable[[], None], interval_s: float) -> Iterator[None]:
    """Run an action every so many seconds, in a thread of its own, while the block runs."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(interval_s):
            action()

    thread = threading.Thread(target=repeat, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def read_ranges(
    settings: Settings,
    spans: Mapping[TopicPartition, tuple[int, int]],
    tell: Tell,
    what: str,
    isolation: Isolation = "read_committed",
) -> Iterator[list[ReadRecord]]:
    """Yield the records of all ranges, some at a time; ``tell`` how many of how many offsets."""
    total = sum(max(0, end - start) for start, end in spans.values())
    read = 0
    for chunk in RangeReader(settings, isolation).read(spans):
        yield chunk
        read += len(chunk)
        tell(what, read, total)


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
    """Yield what any reader finds, a partition in order. Raises PreflightError without answers.

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
            time.sleep(FOLLOW_S)


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
    return {at: (stable[at], highs[at]) for at in places if stable[at] < highs[at]}

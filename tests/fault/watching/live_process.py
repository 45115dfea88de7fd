"""The live reader's process: one consumer that nothing stops but its parent."""

import gc
import json
import operator
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from numpy.typing import NDArray

from tests.fault.checking.reading_columns import effect_times
from tests.fault.feeding.feed_state import CELLS, READY, STOP, shared
from tests.fault.watching.live import DONE, MOMENT, SEEN, LiveHistory

CHUNK = 10_000
WAIT_S = 0.05
"""What times of visibility may be late by."""
LAST_WORDS_S = 60.0
ERRORS_KEPT = 50
_LOST = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
"""Errors after which a partition stands still until somebody says where to go on."""


@dataclass(frozen=True)
class Task:
    """What a live reader is told."""

    bootstrap: str
    topics: list[str]
    folder: str
    source: str
    partitions: int


class Eye:
    """What was seen so far."""

    def __init__(self, task: Task, lanes: list[tuple[str, int]], fed: NDArray[np.int64]) -> None:
        self._source = task.source
        self._fed = fed
        self._numbers = {lane: at for at, lane in enumerate(lanes)}
        self._seen = [np.zeros(0, SEEN)]
        self._moments: list[tuple[int, int, int]] = []
        self.lanes = lanes
        self.reached = [0] * len(lanes)
        self.done = 0
        self.errors: list[str] = []

    def take(self, messages: list[Message]) -> None:
        now_ms = _now_ms()
        numbers = self._numbers
        rows = np.zeros(len(messages), SEEN)
        rows["lane"] = [numbers[m.topic() or "", m.partition() or 0] for m in messages]
        rows["offset"] = [message.offset() for message in messages]
        rows["hash"] = [crc32(message.value() or b"") for message in messages]
        self._seen.append(rows)
        self.done += len(messages)
        for lane in np.unique(rows["lane"]):
            last = int(rows["offset"][rows["lane"] == lane].max())
            self.reached[lane] = max(self.reached[lane], last + 1)
        self._note_times(messages, now_ms)

    def _note_times(self, messages: list[Message], now_ms: int) -> None:
        places, times_ms = effect_times(messages, self._source)
        for place in np.unique(places):
            newest_ms = int(times_ms[places == place].max())
            if 0 <= place < len(self._fed) and newest_ms > self._fed[place]:
                self._fed[place] = newest_ms
                self._moments.append((now_ms, newest_ms, int(place)))

    def miss(self, error: KafkaError) -> None:
        """Keep the first few of what the client complains about."""
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(f"{_now_ms()} {error}")

    def history(self, *, complete: bool) -> LiveHistory:
        return LiveHistory(
            self.lanes,
            np.concatenate(self._seen),
            np.array(self._moments, MOMENT),
            complete,
            len(self._fed),
            self.errors,
        )


def main(task: Task) -> None:
    """Read until told to stop, then up to the ends as they are; leave the history as files."""
    folder = Path(task.folder)
    cells = shared(folder / "live.state", task.partitions)
    parent = os.getppid()
    consumer = _consumer(task.bootstrap)
    lanes = _lanes(consumer, task.topics)
    consumer.assign([TopicPartition(*lane, OFFSET_BEGINNING) for lane in lanes])
    eye = Eye(task, lanes, cells[CELLS:])
    cells[READY] = 1
    ends: list[int] | None = None
    deadline_s = 0.0
    while os.getppid() == parent:
        _look(consumer, eye)
        cells[DONE] = eye.done
        if not cells[STOP]:
            continue
        deadline_s = deadline_s or time.monotonic() + LAST_WORDS_S
        ends = ends or _ends(consumer, lanes)
        complete = bool(ends) and all(map(operator.ge, eye.reached, ends or ()))
        if complete or time.monotonic() > deadline_s:
            eye.history(complete=complete).save(folder)
            break
    consumer.close()


def _look(consumer: Consumer, eye: Eye) -> None:
    found = consumer.consume(CHUNK, WAIT_S)
    messages = [message for message in found if message.error() is None]
    if messages:
        eye.take(messages)
    for message in found if len(messages) < len(found) else ():
        error = message.error()
        if error is None:
            continue
        if error.code() == KafkaError._PARTITION_EOF:
            lane = eye.lanes.index((message.topic() or "", message.partition() or 0))
            eye.reached[lane] = max(eye.reached[lane], message.offset() or 0)
            continue
        eye.miss(error)
        if error.code() in _LOST:
            lane = eye.lanes.index((message.topic() or "", message.partition() or 0))
            consumer.seek(TopicPartition(*eye.lanes[lane], eye.reached[lane]))


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "fault-live-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 5000,
            "metadata.recovery.strategy": "none",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,
            "topic.metadata.refresh.interval.ms": 5000,
            "log_level": 0,
        }
    )


def _lanes(consumer: Consumer, topics: list[str]) -> list[tuple[str, int]]:
    lanes: list[tuple[str, int]] = []
    for topic in topics:
        found = consumer.list_topics(topic, timeout=LAST_WORDS_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        lanes += [(topic, number) for number in sorted(found.partitions)]
    return lanes


def _ends(consumer: Consumer, lanes: list[tuple[str, int]]) -> list[int] | None:
    """Return where to read to; None when no broker says it."""
    try:
        return [consumer.get_watermark_offsets(TopicPartition(*lane), 5.0)[1] for lane in lanes]
    except KafkaException:
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    gc.disable()  # as in reading.py
    main(Task(**json.loads(sys.argv[1])))

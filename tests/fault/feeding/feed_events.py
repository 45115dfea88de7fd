"""Which events are written next: numbers, keys, second copies; and the book of their fates."""

import random
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from tests.fault import rules
from tests.fault.feeding.ledger import COPIES, Fate

KEYS_PER_PARTITION = 80
BOUND_OF_20 = 9
"""Of 20 keys, how many are written in transactions only: a key's order has one writer."""
TWINS = 0.03
"""How many events are written twice; half of the copies go to another partition."""


@dataclass(frozen=True)
class Task:
    """What a feeder is told.

    size    of a value in bytes
    poison  whether some events are poison
    """

    bootstrap: str
    topic: str
    folder: str
    run: str
    partitions: int
    seed: int
    size: int = 100
    poison: bool = True


class Given(NamedTuple):
    """One record to write. ``at``: its place in the book, -1 for one that is to be aborted."""

    at: int
    partition: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


class Book:
    """Numbers handed out, and the fate of each copy: number times COPIES plus copy."""

    def __init__(self) -> None:
        self.fates = bytearray()
        self._lock = threading.Lock()

    def take(self, count: int) -> range:
        with self._lock:
            start = len(self.fates) // COPIES
            self.fates.extend(bytes(count * COPIES))
        return range(start, start + count)

    def note(self, places: list[int], fate: Fate) -> None:
        fates = self.fates
        for at in places:
            fates[at] = fate


class Events:
    """The events of one writer, whose keys no other writer has."""

    def __init__(self, task: Task, book: Book, *, bound: bool) -> None:
        self.rng = random.Random(f"{task.seed} {bound}")
        self._task = task
        self._book = book
        self._keys = [
            key
            for key in range(KEYS_PER_PARTITION * task.partitions)
            if (key // task.partitions % 20 < BOUND_OF_20) == bound
        ]
        self._kseqs = dict.fromkeys(self._keys, 0)
        self._twins: list[Given] = []
        self._negative = -1 if bound else 0

    def take(self, count: int) -> list[Given]:
        """Return the next events, among them second copies of these and of earlier ones."""
        task, rng = self._task, self.rng
        made: list[Given] = []
        later: list[Given] = []
        now_ms = time.time_ns() // 1_000_000
        for number in self._book.take(count):
            if not task.poison and rules.is_poison(number):
                continue
            key = self._keys[int(rng.random() * len(self._keys))]
            kseq = self._kseqs[key]
            self._kseqs[key] = kseq + 1
            given = self._given(rules.Content(number, key, kseq, now_ms), number * COPIES)
            made.append(given)
            if rng.random() < TWINS:
                twin = self._twin(given)
                (later if rng.random() < 0.5 else made).append(twin)
        made += self._twins
        self._twins = later
        return made

    def aborted(self, count: int) -> list[Given]:
        """Return events that nobody is to see: their numbers are negative."""
        now_ms = time.time_ns() // 1_000_000
        made = []
        for _ in range(count):
            key = self.rng.choice(self._keys)
            content = rules.Content(self._negative, key, self._kseqs[key], now_ms)
            self._negative -= 1
            made.append(self._given(content, -1))
        return made

    def _given(self, content: rules.Content, at: int) -> Given:
        return Given(
            at,
            content.key % self._task.partitions,
            b"key-%d" % content.key,
            rules.encode(content, self._task.size),
            [("message-id", f"{self._task.run}-{content.number}".encode()), ("dup", b"0")],
        )

    def _twin(self, given: Given) -> Given:
        partition = given.partition
        if self.rng.random() < 0.5:
            partition = (partition + self.rng.randrange(self._task.partitions)) % (
                self._task.partitions
            )
        headers = [given.headers[0], ("dup", b"1")]
        return Given(given.at + 1, partition, given.key, given.value, headers)

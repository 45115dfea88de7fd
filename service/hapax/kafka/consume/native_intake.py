"""Taking native records: partitions routed to a queue that hapax_fast reads.

Rebalances, errors and logs stay with the client, whose callbacks run in its own ``poll``. The order
of calls matters: routes are set before ``poll``, ``poll`` before ``take``. Then a record that came
before its partition was routed is handed out by the client, ahead of all that comes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hapax.core.ports import Clock
    from hapax.core.records import TopicPartition as Where
    from hapax.kafka.native import NativePath

SLICE_S = 0.02
"""Longest wait between two polls of the client: how late a rebalance is served."""
ROUTES_S = 1.0
"""How often routes are looked at."""


class NativeIntake:
    """Takes the records of routed partitions of one client. One thread only."""

    def __init__(self, path: NativePath, clock: Clock) -> None:
        """Catch the client that this thread has just built."""
        self._intake = path.module.Intake(path.captured(), path.sources)
        self._clock = clock
        self._routed: set[Where] = set()
        self._looked_s = clock.monotonic()
        self._lost: list[Where] = []
        self._path, self._left = path, path.left
        self._closed = False

    def route(self, partitions: Iterable[Where]) -> None:
        """Deliver their records here, from before their fetching starts.

        An assignment that was on its way is reported while the client is closed: it has no effect.
        """
        if self._closed:
            return
        for where in partitions:
            self._intake.route(*where)
            self._routed.add(where)

    def leave(self, partitions: Iterable[Where]) -> None:
        self._routed.difference_update(partitions)

    def _look(self) -> None:
        """Set routes again; the client resets that of a partition which is assigned once more."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < ROUTES_S:
            return
        self._looked_s = now_s
        for where in self._routed:
            if self._intake.lost(*where):
                self._lost.append(where)
            self._intake.route(*where)

    def news(self) -> tuple[list[Where], str]:
        """Return and forget which routes were lost, and why the native path was left."""
        lost, self._lost = self._lost, []
        left = "" if self._path.left == self._left else self._path.left
        self._left = self._path.left
        return lost, left

    def arrivals(
        self, serve: Callable[[], list[Any]], count: int, wait_s: float
    ) -> tuple[list[Any], Any]:
        """Return messages of the client, or native records (None: there are none).

        ``serve`` serves the client and returns what it hands out itself: events, and records that
        came before their partition was routed. Nothing is taken here before these are through.
        """
        deadline_s = self._clock.monotonic() + wait_s
        while True:
            self._look()
            messages = serve()
            left_s = deadline_s - self._clock.monotonic()
            if messages:
                return messages, None
            wait_ms = int(max(0.0, min(left_s, SLICE_S)) * 1000)
            records = self._intake.take(count, wait_ms)
            if records is not None or left_s <= SLICE_S:
                return [], records

    def close(self) -> None:
        """Release all that would make the client wait indefinitely when it is closed."""
        self._closed = True
        self._intake.close()


class TakenMessage:
    """One native message with the methods of the client's own, for the reference."""

    def __init__(self, records: Any, fields: tuple[Any, ...]) -> None:
        self._records = records
        self._fields = fields

    def error(self) -> KafkaError | None:
        code, text = self._fields[:2]
        return KafkaError(code, text) if code else None

    def topic(self) -> str | None:
        return self._fields[2]  # type: ignore[no-any-return]

    def partition(self) -> int:
        return int(self._fields[3])

    def offset(self) -> int:
        return int(self._fields[4])

    def leader_epoch(self) -> int | None:
        epoch: int = self._fields[5]
        return None if epoch < 0 else epoch

    def key(self) -> bytes | None:
        return self._fields[6]  # type: ignore[no-any-return]

    def value(self) -> bytes | None:
        return self._fields[7]  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        return 0, self._fields[8]

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers; raises UnicodeDecodeError as the client does."""
        return list(self._records.headers(self._fields[9]))


def messages_of(records: Any) -> list[TakenMessage]:
    return [TakenMessage(records, fields) for fields in records.messages()]

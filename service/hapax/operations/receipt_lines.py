"""What became of each line, as JSON lines: accepted by the spool, then placed in Kafka."""

from __future__ import annotations

import json
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.publish import Receipt


class WrittenLines:
    """The lines of the rows that are accepted in one write."""

    def __init__(self, lines: Sequence[int], placed: SimpleQueue[tuple[int, Receipt]]) -> None:
        self._lines = lines
        self._placed = placed
        self._first: int | None = None

    def __call__(self, receipt: Receipt) -> None:
        """Take note of a record that is in Kafka; from the thread that publishes."""
        # Records of one write are in order, and so the first that is placed is its first.
        if self._first is None:
            self._first = receipt.sequence
        self._placed.put((self._lines[receipt.sequence - self._first], receipt))


class ReceiptLines:
    """Writes them to ``out``, from one thread, in the order of the records.

    Placements come from the thread that publishes, and are kept until ``write``.
    """

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._placed = SimpleQueue[tuple[int, "Receipt"]]()

    def begin(self, lines: Sequence[int]) -> WrittenLines:
        """Return the callback of a write whose rows begin in these lines."""
        return WrittenLines(lines, self._placed)

    def accepted(self, line: int, sequence: int) -> None:
        """Write down that everything up to this line is on disk."""
        self._say({"event": "accepted", "line": line, "sequence": sequence})
        self._out.flush()

    def write(self) -> None:
        """Write down which records have come to Kafka since."""
        while not self._placed.empty():
            line, receipt = self._placed.get_nowait()
            placement = receipt.placement
            assert placement is not None, "a receipt is handed over when it is placed"
            self._say(
                {
                    "event": "published",
                    "line": line,
                    "sequence": receipt.sequence,
                    "message_id": receipt.message_id,
                    "topic": placement.topic,
                    "partition": placement.partition,
                    "offset": placement.offset,
                }
            )
        self._out.flush()

    def _say(self, fact: dict[str, object]) -> None:
        self._out.write(json.dumps(fact) + "\n")

"""A spool in memory for readers of files; of a process that dies nothing else is left."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from hapax.operations.publish import SPOOL, Lines
from hapax.operations.receipt_lines import ReceiptLines
from hapax.operations.spooled import ReadingReport, SpooledReader, Spooling
from hapax.publish import RecordRefusedError
from hapax.publish.receipts import Placement, PublishCall
from hapax.spool.errors import SpoolFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hapax.core.ports import Message
    from hapax.publish import Receipt


class KilledError(Exception):
    """Stands for the end of the process."""


class MemorySpool:
    """Keeps what outlives a process: records, and the position of the last ones.

    ``dies_after``: so many writes go well, then the process dies before the next one.
    ``full``: so many calls find no room first.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.position = b""
        self.writes: list[int] = []
        self.calls: list[PublishCall] = []
        self.dies_after: int | None = None
        self.full = 0
        self.bytes_max = 1 << 20

    @property
    def values(self) -> list[bytes]:
        return [message.value or b"" for message in self.messages]

    def publish_many(
        self,
        messages: Iterable[Message],
        *,
        position: bytes = b"",
        callback: Callable[[Receipt], None] | None = None,
    ) -> list[Receipt]:
        if self.full:
            self.full -= 1
            raise SpoolFullError("full")
        if self.dies_after is not None:
            if not self.dies_after:
                raise KilledError
            self.dies_after -= 1
        made = list(messages)
        if any(len(message.value or b"") > self.bytes_max for message in made):
            raise RecordRefusedError("too large")
        self.messages += made
        self.position = position
        self.writes.append(len(made))
        call = PublishCall("spool", [None] * len(made), callback)
        call.first = len(self.messages) - len(made) + 1
        self.calls.append(call)
        return call.receipts()

    def publish(self) -> None:
        """Publish what is there, as the thread of a publisher does."""
        for call in self.calls:
            call.place(
                {at: Placement("in", 0, call.first + at + 99) for at in range(len(call.ids))}
            )
        self.calls.clear()


class Reading:
    """Readers of one file, one after the other, into one spool."""

    def __init__(self, path: Path, spool: MemorySpool | None = None, **wanted: object) -> None:
        how: dict[str, object] = {"topic": "in", "id_from": SPOOL}
        how |= {name: wanted.pop(name) for name in [*wanted] if name in Lines.__struct_fields__}
        self.path = path
        self.spool = spool or MemorySpool()
        self.wanted = Spooling(how=Lines(**how), **wanted)  # type: ignore[arg-type] # built of words
        self.warnings: list[str] = []
        self.receipts = io.StringIO()

    def run(self, *script: Callable[[], object]) -> ScriptedReader:
        """Read as a process that has just started; ``script`` as in ScriptedReader."""
        reader = ScriptedReader(self, script)
        reader.read_file(self.path)
        return reader


class ScriptedReader(SpooledReader):
    """Does one step of ``script`` whenever nothing further is there, and then stops."""

    def __init__(self, reading: Reading, script: Iterable[Callable[[], object]]) -> None:
        self._steps = iter(script)
        self._over = False
        super().__init__(
            reading.spool,
            reading.wanted,
            ReadingReport(
                tell=lambda _text: None,
                warn=reading.warnings.append,
                receipts=ReceiptLines(reading.receipts),
            ),
            lambda: self._over,
        )

    def _idle(self) -> bool:
        self._flush()
        step = next(self._steps, None)
        if step is None:
            self._over = True
        else:
            step()
        return super()._idle()

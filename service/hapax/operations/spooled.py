"""``hapax publish --spool``: rows into a spool, with the place that they were read up to."""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hapax.core.errors import HapaxError
from hapax.operations.files.growing import GrowingFile
from hapax.operations.files.lines import whole_lines
from hapax.operations.files.names import FileGapError, open_file, reopened
from hapax.operations.files.place import VERSION, FilePlace, stored_place
from hapax.operations.files.rows import SourceRows
from hapax.operations.files.stream import ByteStream
from hapax.operations.publish import LineError
from hapax.publish import RecordRefusedError
from hapax.spool.errors import SpoolFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from hapax.core.ports import Message
    from hapax.operations.files.place import FileIdentity
    from hapax.operations.files.rows import SourceRow
    from hapax.operations.publish import Lines
    from hapax.operations.reading import Tell
    from hapax.operations.receipt_lines import ReceiptLines
    from hapax.publish import Receipt

BATCH_RECORDS, BATCH_BYTES = 1000, 1 << 20
"""So much is accepted in one write, and so much more than the spool holds is in memory."""


class Spooler(Protocol):
    """What is needed of ``hapax.publish.Publisher``."""

    @property
    def position(self) -> bytes:
        """What was stored with the newest accepted record."""

    def publish_many(
        self,
        messages: Iterable[Message],
        *,
        position: bytes = b"",
        callback: Callable[[Receipt], None] | None = None,
    ) -> Sequence[Receipt]:
        """Return when all are on disk with the position, or raise and keep none."""


class Spooling(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read into a spool.

    follow    wait for further lines at the end of a file, and for the next file after a rotation
    restart   read from the beginning what has taken the place of lines that are gone
    skip_bad  leave out lines that no record can be made of, and say so
    """

    how: Lines
    follow: bool = False
    restart: bool = False
    skip_bad: bool = False


class HeldRow(NamedTuple):
    """A record that was read and not accepted yet; ``place``: after its row."""

    message: Message
    line: int
    place: FilePlace


class ReadingReport(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run says what it does.

    tell      how far it is, now and then; warn: what a person should know
    receipts  where accepted lines and published records are written down
    """

    tell: Tell
    warn: Tell
    receipts: ReceiptLines | None = None


class SpooledReader:
    """Brings the rows of one source into a spool, after those that it has already.

    stopping  whether to read no more; asked between rows, and while there is nothing to read
    """

    def __init__(
        self,
        publisher: Spooler,
        wanted: Spooling,
        report: ReadingReport,
        stopping: Callable[[], bool],
    ) -> None:
        self._publisher = publisher
        self._wanted = wanted
        self._stopping = stopping
        self._tell, self._warn, self._receipts = report.tell, report.warn, report.receipts
        self._make = wanted.how.maker()
        self._held: list[HeldRow] = []
        self._held_bytes = 0
        self._given_up = False
        self._place = self._start("")
        self._identity: Callable[[int], FileIdentity] | None = None
        self.accepted = 0
        self.skipped = 0

    # -- sources ----------------------------------------------------------------------------

    def read_stream(self, descriptor: int) -> None:
        """Read a pipe until its other end is closed, or until ``stopping``."""
        stored_place(self._publisher.position, "", self._wanted.how.form)
        self._take(ByteStream(descriptor, self._idle).read, self._start(""), None)
        self._flush()

    def read_file(self, path: Path) -> None:
        """Read a file on from where the spool says.

        Raises ConfigurationError, FileGapError, HapaxError for a line that is no record.
        """
        path = path.absolute()
        place = stored_place(self._publisher.position, str(path), self._wanted.how.form)
        try:
            descriptor = None if place is None else reopened(path, place)
        except FileGapError as gap:
            self._restarted(gap)
            descriptor = None
        if place is None or descriptor is None:
            place, descriptor = self._start(str(path)), open_file(path)
        self._read_files(path, descriptor, place)

    def _read_files(self, path: Path, descriptor: int, place: FilePlace) -> None:
        """Read this file, and those that take its place."""
        before: GrowingFile | None = None
        while True:
            file = GrowingFile(
                path, descriptor, place.offset, self._watching(before), follow=self._wanted.follow
            )
            following: Path | None = path
            try:
                self._take(file.read, place, file.identity)
                following, after = file.next, file
            except FileGapError as gap:
                self._flush()
                self._restarted(gap)
                after = None
            self._flush()
            if before is not None:
                before.close()
            if following is None or self._stopping():
                file.close()
                return
            if after is None:
                file.close()
            before, place = after, self._start(str(path))
            descriptor = open_file(following)

    def _watching(self, before: GrowingFile | None) -> Callable[[], bool]:
        """Return what to do at the end of a file: also see that nothing comes to the last one."""

        def idle() -> bool:
            if before is not None and (more := before.added_bytes()) > 0:
                self._flush()
                raise HapaxError(
                    f"{more:,} bytes were added to a file after it was renamed, when the next one"
                    " was being read already: they are not published. Have its writer open the new"
                    " file at once, then publish these bytes by hand"
                )
            return self._idle()

        return idle

    def _restarted(self, gap: FileGapError) -> None:
        if not self._wanted.restart:
            raise gap
        self._warn(f"{str(gap).partition(':')[0]}: reading from the beginning of the file")

    def _start(self, path: str) -> FilePlace:
        return FilePlace(VERSION, path, self._wanted.how.form)

    # -- rows -------------------------------------------------------------------------------

    def _take(
        self,
        read: Callable[[], bytes | None],
        place: FilePlace,
        identity: Callable[[int], FileIdentity] | None,
    ) -> None:
        """Take rows until ``read`` ends. What is held of them is flushed before it waits."""
        self._place, self._identity = place, identity
        rows = SourceRows(
            self._wanted.how.form,
            whole_lines(read),
            line=place.line,
            offset=place.offset,
            columns=place.columns,
        )
        for row in rows:
            if self._stopping():
                return
            if len(self._held) >= BATCH_RECORDS or self._held_bytes >= BATCH_BYTES:
                self._flush()
            message = self._message(row)
            self._place = msgspec.structs.replace(
                self._place, offset=row.end, line=rows.line, columns=rows.columns
            )
            if message is not None:
                self._held.append(HeldRow(message, row.line, self._place))
                self._held_bytes += len(row.value)
        if identity is not None and not self._wanted.follow and not self._stopping():
            self._place = msgspec.structs.replace(self._place, ended=True)

    def _message(self, row: SourceRow) -> Message | None:
        """Return what to publish; None for a line that is left out."""
        try:
            return self._make(row, time.time_ns() // 1_000_000)
        except LineError as error:
            self._refuse(error)
            return None

    def _refuse(self, error: LineError) -> None:
        if not self._wanted.skip_bad:
            self._flush()
            raise HapaxError(
                f"{error}: everything before it was accepted and nothing after it is read. Correct"
                " the writer, and to leave such lines out start with --skip-bad-lines"
            ) from error
        self.skipped += 1
        self._warn(f"left out: {error}")

    def _idle(self) -> bool:
        self._flush()
        self._tell("")
        return not self._stopping()

    def _flush(self) -> None:
        """Have the spool accept what is held; wait while it is full, unless ``stopping``."""
        if not self._held:
            return
        self._held[-1] = self._held[-1]._replace(place=self._place)
        held, self._held, self._held_bytes = self._held, [], 0
        try:
            self._accept(held)
        except RecordRefusedError:
            # One of them is refused, and nothing was accepted: those before it are, one by one.
            for one in held:
                try:
                    self._accept([one])
                except RecordRefusedError as error:
                    raise HapaxError(
                        f"line {one.line}: {error}; everything before it was accepted and nothing"
                        " after it is read"
                    ) from error
        self._tell("")

    def _accept(self, held: Sequence[HeldRow]) -> None:
        """Accept rows together. What is not accepted at a stop is read by the next process."""
        place = held[-1].place
        if self._identity is not None:
            place = msgspec.structs.replace(place, file=self._identity(place.offset))
        callback = None
        if self._receipts is not None:
            callback = self._receipts.begin([one.line for one in held])
        while not self._given_up:
            try:
                accepted = self._publisher.publish_many(
                    [one.message for one in held], position=place.encode(), callback=callback
                )
            except SpoolFullError:
                # Nothing later may be accepted then, or these rows would be missing before it.
                self._given_up = self._stopping()
                self._tell("the spool is full, reading waits")
            else:
                self.accepted += len(accepted)
                if self._receipts is not None:
                    self._receipts.accepted(held[-1].line, accepted[-1].sequence)
                return


def is_stream(path: Path) -> bool:
    """Return whether a name is a pipe, a terminal or another thing that is read but once."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False

"""``hapax publish --spool``: a process that reads lines into a spool until all of it is in Kafka.

With each write the spool keeps the place in the file and a checksum of everything before it: one
write, so that a process that is killed neither loses nor doubles a line when it is run again.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hapax.core.errors import ConfigurationError, HapaxError, PositionLostError
from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle
from hapax.operations.publish import LineError, file_bytes, likely
from hapax.operations.rows import RowForm, SourceRows, whole_lines
from hapax.publish import Publisher, RecordRefusedError, SpoolFullError

if TYPE_CHECKING:
    from _hashlib import HASH
    from collections.abc import Callable, Iterator, Sequence

    from hapax.core.ports import Tell
    from hapax.core.records import Message
    from hapax.operations.publish import Lines
    from hapax.operations.rows import SourceRow
    from hapax.publish import PublisherOptions
    from hapax.settings import Settings

BATCH_RECORDS, BATCH_BYTES = 1000, 1 << 20
"""So much is accepted in one write, and so much more than the spool holds is in memory."""
CHUNK_BYTES = 256 << 10
FULL_S, LOOK_S, POLL_S = 0.5, 0.2, 0.1
"""How long one call waits for room in the spool, for records to come to Kafka, and for bytes of a
pipe: in between a signal is noticed, and the progress shown."""


class FilePosition(msgspec.Struct, frozen=True, array_like=True, tag="hapax-publish-1"):
    """After which byte and line of a source the next row begins.

    path      as it was named, absolute; empty: a pipe, which nothing can resume
    columns   of a CSV file, from its header
    checksum  SHA-256 of all bytes before the offset
    """

    path: str
    form: RowForm
    offset: int = 0
    line: int = 0
    columns: tuple[str, ...] = ()
    checksum: bytes = sha256().digest()


class FileChangedError(PositionLostError):
    """The file is not the one, or not any more, whose lines the spool has accepted."""

    def __init__(self, place: FilePosition, what: str) -> None:
        super().__init__(
            f"{place.path} {what}: the spool has accepted {place.line:,} lines"
            f" ({place.offset:,} bytes) of another one, and nothing further is read. To continue,"
            " bring that file back; to publish this one, name a --spool of its own"
        )


class SpooledSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, in records. ``waiting``: accepted, on disk, and not known to be in Kafka.

    ``skipped``: lines that became none. ``records_skipped``: of the spool, left out for good.
    """

    topic: str
    accepted: int
    skipped: int
    records_skipped: int
    waiting: int
    stopped: str


def publish_spooled(
    settings: Settings,
    descriptor: int,
    *,
    file: str,
    how: Lines,
    skip_bad: bool,
    spool: Path,
    options: PublisherOptions,
    tell: Tell,
    warn: Callable[[str], None],
) -> SpooledSummary:
    """Read a file, or standard input for ``-``, into the spool; wait until Kafka has all of it.

    skip_bad    leave out lines that no record can be made of, and ``warn`` of each
    SIGTERM and SIGINT end the reading, and the waiting after the time of the shutdown settings.
    Raises what the spool, the publisher and the file have to say; what was accepted stays.
    """
    lifecycle = Lifecycle(time, Interrupt(), timeout_s=settings.shutdown.timeout_ms / 1000)
    with _signals(lifecycle):
        given: PublisherOptions = {**options, "timeout_s": FULL_S}
        publisher = Publisher(spool, settings, **given)

        def show(text: str) -> None:
            # Nothing else notices it where no further line comes.
            if publisher.problem is not None:
                raise publisher.problem
            state = text or publisher.reason or publisher.state
            read_bytes = reader.place.offset - place.offset
            total = likely(reader.accepted, read_bytes, size and size - place.offset)
            tell("accepted", reader.accepted, total, f"waiting {publisher.waiting:,}: {state}")

        reader = SpooledReader(
            publisher,
            how,
            skip_bad=skip_bad,
            show=show,
            warn=warn,
            stopping=lambda: lifecycle.stopping,
        )
        try:
            size = None if file == "-" else file_bytes(descriptor)
            path = "" if size is None else str(Path(file).absolute())
            place = stored_place(publisher.position, path, how.form)
            failure = reader.read(descriptor, place)
            # Also after a failure: the file may be gone, and nothing else publishes the rest.
            while not publisher.flush(min(LOOK_S, lifecycle.left_s)) and not lifecycle.overdue:
                show("" if failure is None else str(failure))
            if failure is not None:
                raise failure
            return SpooledSummary(
                topic=how.topic,
                accepted=reader.accepted,
                skipped=reader.skipped,
                records_skipped=publisher.skipped,
                waiting=publisher.waiting,
                stopped=lifecycle.reason,
            )
        finally:
            publisher.close(timeout_s=0)


@contextmanager
def _signals(lifecycle: Lifecycle) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    lifecycle.listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stored_place(position: bytes, path: str, form: RowForm) -> FilePosition:
    """Return it from a spool; empty ``path``: a pipe. ConfigurationError: of another source."""
    if not position:
        return FilePosition(path, form)
    try:
        found = msgspec.msgpack.decode(position, type=FilePosition)
    except msgspec.MsgspecError as error:
        problem = "the spool was filled by another program than this hapax publish: name another"
        raise ConfigurationError(f"{problem} --spool") from error
    if found.path != path:
        raise ConfigurationError(
            f"the spool belongs to {found.path or 'standard input'}, not to"
            f" {path or 'standard input'}: each source needs a --spool of its own"
        )
    if found.form != form:
        raise ConfigurationError(
            f"{path or 'it'} was read with --format {found.form} so far: name the same --format"
        )
    return found


class _HeldRow(NamedTuple):
    """A record that is not accepted yet. ``line``: where its row begins; ``place``: after it."""

    message: Message
    line: int
    place: FilePosition


@dataclass(eq=False)
class SpooledReader:
    """Brings the rows of one source into a spool, after those that it has already.

    stopping  whether to read no more; asked between rows, and while there is nothing to read
    """

    publisher: Publisher
    how: Lines
    _: KW_ONLY
    skip_bad: bool
    show: Callable[[str], None]
    warn: Callable[[str], None]
    stopping: Callable[[], bool]

    def __post_init__(self) -> None:
        self._make = self.how.maker()
        self._held: list[_HeldRow] = []
        self._held_bytes = 0
        self._given_up = False
        self.accepted = self.skipped = 0

    def read(self, descriptor: int, place: FilePosition) -> HapaxError | None:
        """Return what ended it early: FileChangedError, HapaxError for a line without a record."""
        self.place = place
        try:
            self._read_rows(descriptor, place)
            self._flush()
        except HapaxError as error:
            return error
        return None

    def _read_rows(self, descriptor: int, place: FilePosition) -> None:
        checksum = compared(descriptor, place)

        def lines() -> Iterator[bytes]:
            for text in whole_lines(lambda: self._bytes(descriptor)):
                checksum.update(text)
                yield text

        rows = SourceRows(
            place.form, lines(), line=place.line, offset=place.offset, columns=place.columns
        )
        for row in rows:
            if self.stopping():
                return
            message = self._message(row)
            if place.path:
                self.place = FilePosition(
                    place.path, place.form, row.end, rows.line, rows.columns, checksum.digest()
                )
            if message is not None:
                self._held.append(_HeldRow(message, row.line, self.place))
                self._held_bytes += len(row.value)
            if len(self._held) >= BATCH_RECORDS or self._held_bytes >= BATCH_BYTES:
                self._flush()

    def _bytes(self, descriptor: int) -> bytes | None:
        """Return b"" at the end, None at a stop; nothing is held while it waits for bytes."""
        wait_s = 0.0
        while not select.select([descriptor], [], [], wait_s)[0]:
            self._flush()
            self.show("")
            if self.stopping():
                return None
            wait_s = POLL_S
        return os.read(descriptor, CHUNK_BYTES)

    def _message(self, row: SourceRow) -> Message | None:
        try:
            return self._make(row, None)  # the time is that of the acceptance
        except LineError as error:
            if not self.skip_bad:
                self._flush()
                raise HapaxError(
                    f"{error}: everything before it was accepted and nothing after it is read."
                    " Correct the writer, and to leave such lines out start with --skip-bad-lines"
                ) from error
            self.skipped += 1
            self.warn(f"left out: {error}")
            return None

    def _flush(self) -> None:
        """Have the spool accept what is held; wait while it is full, unless ``stopping``."""
        if not self._held:
            return
        held, self._held, self._held_bytes = self._held, [], 0
        try:
            self._accept([one.message for one in held], self.place)
        except RecordRefusedError:
            # One of them is refused, and nothing was accepted: those before it are, one by one.
            for one in held:
                try:
                    self._accept([one.message], one.place)
                except RecordRefusedError as error:
                    raise HapaxError(
                        f"line {one.line}: {error}; everything before it was accepted and nothing"
                        " after it is read"
                    ) from error
        self.show("")

    def _accept(self, messages: Sequence[Message], place: FilePosition) -> None:
        """Accept rows together. What is not accepted at a stop is read by the next process."""
        position = msgspec.msgpack.encode(place)
        while not self._given_up:
            try:
                self.accepted += len(self.publisher.publish_many(messages, position=position))
            except SpoolFullError:
                # Nothing later may be accepted then, or these rows would be missing before it.
                self._given_up = self.stopping()
                self.show("the spool is full, reading waits")
            else:
                return


def compared(descriptor: int, place: FilePosition) -> HASH:
    """Return the checksum and seek to the place; FileChangedError unless the bytes are these."""
    checksum = sha256()
    left, last = place.offset, b"\n"
    while left:
        chunk = os.read(descriptor, min(left, CHUNK_BYTES))
        if not chunk:
            raise FileChangedError(place, f"is shorter ({place.offset - left:,} bytes)")
        checksum.update(chunk)
        left, last = left - len(chunk), chunk[-1:]
    if checksum.digest() != place.checksum:
        raise FileChangedError(place, "has other content")
    following = os.pread(descriptor, 2, place.offset) if last != b"\n" else b""
    if following.removeprefix(b"\r")[:1] not in {b"", b"\n"}:
        raise FileChangedError(place, "continues its last line, which had no end")
    return checksum

"""``hapax publish --spool``: a process that reads a source, and ends when all of it is in Kafka."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import ConfigurationError
from hapax.core.interrupt import Interrupt
from hapax.engines.lifecycle import Lifecycle
from hapax.operations.files.names import open_file
from hapax.operations.spooled import SpooledReader, is_stream
from hapax.publish import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hapax.operations.spooled import ReadingReport, Spooling
    from hapax.settings import Settings

STANDARD_INPUT = "-"
FULL_S, LOOK_S = 0.5, 0.2
"""How long one call waits for room in the spool, and for records to come to Kafka: in between a
signal is heard, and a person told."""


class SpoolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which spool.

    ``adopt``: although it was moved or restored. ``resume_at``: the first sequence that is not in
    Kafka, where what says so is gone.
    """

    folder: Path
    disk_max_bytes: int
    adopt: bool = False
    resume_at: int | None = None


class SpooledSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, in records. ``waiting``: accepted, on disk, and not known to be in Kafka."""

    topic: str
    accepted: int
    skipped: int
    waiting: int
    stopped: str


def publish_spooled(
    settings: Settings,
    file: str,
    wanted: Spooling,
    choice: SpoolChoice,
    report: ReadingReport,
) -> SpooledSummary:
    """Read the file, or standard input for ``-``, into the spool; wait until Kafka has all of it.

    SIGTERM and SIGINT end the reading, and the waiting after the time of the shutdown settings.
    Raises what the spool, the publisher and the file have to say; what was accepted stays.
    """
    lifecycle = Lifecycle(time, Interrupt(), timeout_s=settings.shutdown.timeout_ms / 1000)
    with heard(lifecycle):
        return _published(settings, file, wanted, choice, report, lifecycle)


@contextmanager
def heard(lifecycle: Lifecycle) -> Iterator[None]:
    """Take signals inside the block, and leave them as they were before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    lifecycle.listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _published(
    settings: Settings,
    file: str,
    wanted: Spooling,
    choice: SpoolChoice,
    report: ReadingReport,
    lifecycle: Lifecycle,
) -> SpooledSummary:
    path = Path(file)
    if file != STANDARD_INPUT and not choice.folder.exists():
        _require(path)
    publisher = Publisher(
        choice.folder,
        settings,
        disk_max_bytes=choice.disk_max_bytes,
        timeout_s=FULL_S,
        adopt=choice.adopt,
        resume_at=choice.resume_at,
    )
    try:

        def show(text: str) -> None:
            if report.receipts is not None:
                report.receipts.write()
            # Nothing else notices it where no further line comes.
            if publisher.problem is not None:
                raise publisher.problem
            state = text or publisher.reason or publisher.state
            report.tell(f"accepted {reader.accepted:,}, waiting {publisher.waiting:,}: {state}")

        reader = SpooledReader(
            publisher,
            wanted,
            msgspec.structs.replace(report, tell=show),
            lambda: lifecycle.stopping,
        )
        if file == STANDARD_INPUT:
            reader.read_stream(sys.stdin.fileno())
        elif is_stream(path):
            reader.read_stream(open_file(path))
        else:
            reader.read_file(path)
        while not publisher.flush(min(LOOK_S, lifecycle.left_s)) and not lifecycle.overdue:
            show("")
        show("")
        return SpooledSummary(
            topic=wanted.how.topic,
            accepted=reader.accepted,
            skipped=reader.skipped,
            waiting=publisher.waiting,
            stopped=lifecycle.reason,
        )
    finally:
        publisher.close(timeout_s=0)


def _require(path: Path) -> None:
    """Raise ConfigurationError for a name that is none, before a spool is made for it.

    A spool that exists may know the file by another name: it is being rotated.
    """
    try:
        path.stat()
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"]) from error

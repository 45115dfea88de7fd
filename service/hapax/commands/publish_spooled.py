"""``hapax publish --spool``: what is shown of it, and where receipts go."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING

import typer

from hapax.commands.screen import (
    environment_settings,
    print_json,
    printable,
    progress_line,
)
from hapax.core.errors import ConfigurationError

if TYPE_CHECKING:
    from hapax.operations.publish_spooled import SpoolChoice, SpooledSummary
    from hapax.operations.spooled import Spooling
    from hapax.settings import Settings


def spool_settings(topic: str | None) -> Settings:
    """Return the settings: without ``topic`` the input topic must be among them."""
    if topic is None:
        return environment_settings()
    from hapax.publish.environment import publish_settings

    return publish_settings(os.environ)


def disk_bytes(text: str) -> int:
    """Return the bytes of ``--disk-max``. Raises ConfigurationError."""
    from hapax.settings.value_types import size_bytes

    try:
        return size_bytes(text)
    except ValueError as error:
        raise ConfigurationError([f"--disk-max {text}: {error}"]) from None


def run_spooled(
    settings: Settings,
    file: str,
    wanted: Spooling,
    choice: SpoolChoice,
    *,
    receipts: str | None,
    as_json: bool,
) -> None:
    """Run it, show how far it is, then what it did.

    With receipts on standard output nothing else goes there.
    """
    from hapax.operations.publish_spooled import publish_spooled
    from hapax.operations.receipt_lines import ReceiptLines
    from hapax.operations.spooled import ReadingReport

    with ExitStack() as stack:
        out = None if receipts is None else stack.enter_context(_receipt_file(receipts))
        line = stack.enter_context(progress_line())
        done = publish_spooled(
            settings,
            file,
            wanted,
            choice,
            ReadingReport(
                tell=line.show,
                warn=lambda text: typer.echo(printable(text), err=True),
                receipts=None if out is None else ReceiptLines(out),
            ),
        )
    _show(done, err=receipts == "-", as_json=as_json)


def _receipt_file(name: str) -> IO[str]:
    if name == "-":
        return os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    try:
        out = os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(out).st_size
        # A process that was killed may have left half a line.
        if size and os.pread(out, 1, size - 1) != b"\n":
            os.write(out, b"\n")
    except OSError as error:
        raise ConfigurationError([f"{name} cannot be written: {error.strerror}"]) from error
    return os.fdopen(out, "a", encoding="utf-8")


def _show(done: SpooledSummary, *, err: bool, as_json: bool) -> None:
    if as_json and not err:
        print_json(
            {
                "topic": done.topic,
                "accepted": done.accepted,
                "skipped": done.skipped,
                "waiting": done.waiting,
                "stopped": done.stopped,
            }
        )
        return
    left_out = f", {done.skipped:,} lines left out" if done.skipped else ""
    where = "all of the spool is in Kafka"
    if done.waiting:
        where = f"{done.waiting:,} records remain in the spool: start it again to publish them"
    why = f"{done.stopped}: " if done.stopped else ""
    typer.echo(f"{why}{done.accepted:,} accepted for {done.topic}{left_out}; {where}", err=err)

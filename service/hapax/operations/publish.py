"""Composition of ``hapax publish``: lines to records of an input."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from hapax.core.errors import HapaxError
from hapax.kafka.produce.publish import Sender
from hapax.operations.line_parser import LineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hapax.core.ports import Message
    from hapax.operations.line_parser import Lines
    from hapax.settings import Settings

    Tell = Callable[[str], None]

TOLD_EVERY = 5_000


class PublishSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the lines. ``reasons``: of those that failed, by the error."""

    topic: str
    published: int
    failed: int
    reasons: dict[str, int]


def publish(
    settings: Settings, how: Lines, lines: Iterable[bytes], tell: Tell, *, transactional: bool
) -> PublishSummary:
    """Write every line, and return when each is known to be delivered or not.

    Raises PreflightError, and HapaxError for a line that no record can be made of: nothing behind
    it is written, and in a transaction nothing at all.
    """
    sender = Sender(settings, f"{settings.app}/publish" if transactional else "")
    sender.open(how.topic)
    try:
        # Brokers stamp it anew where they are told to; here it is when the event was published.
        sender.send(_told(how.messages(lines, int(time.time() * 1000)), tell))
    except LineError as error:
        sender.abort()
        so_far = (
            "nothing was published" if transactional else f"{sender.delivered:,} before it were"
        )
        raise HapaxError(f"{error}; {so_far}") from error
    except BaseException:
        sender.abort()
        raise
    sender.close()
    return PublishSummary(
        topic=how.topic,
        published=sender.delivered,
        failed=sender.failed,
        reasons=dict(sender.reasons),
    )


def _told(messages: Iterable[Message], tell: Tell) -> Iterator[Message]:
    for count, message in enumerate(messages, 1):
        yield message
        if count % TOLD_EVERY == 0:
            tell(f"published {count:,}")

"""What can be known to be refused is refused to the caller, before it is accepted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hapax.core.errors import HapaxError, PreflightError
from hapax.core.headers import is_header
from hapax.kafka.admin.topics import SET_BYTES, topic_takes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.core.ports import Message
    from hapax.core.topic_rules import TopicTakes
    from hapax.settings import Settings

ASK_AGAIN_S = 30.0


class RecordRefusedError(HapaxError):
    """The client or the brokers would not take this record; nothing of the call was accepted."""


class Acceptance:
    """Asks once about each topic, while brokers answer; without an answer all is accepted."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits: dict[str, TopicTakes] = {}
        self._asked_s: dict[str, float] = {}
        self._ask_from_s = 0.0

    def check(self, messages: Iterable[Message], *, away: bool) -> None:
        """Raise RecordRefusedError for a missing topic, or a record it does not take.

        So for a header that the client would cut (a NUL in its name) or cannot send.

        ``away``: brokers are known not to answer, so this does not wait for them.
        """
        now_ms = int(time.time() * 1000)
        for message in messages:
            if not all(map(is_header, message.headers)):
                raise RecordRefusedError(
                    f"a record was not accepted for topic {message.topic}: its headers must be"
                    " pairs of str, in UTF-8 and without NUL, and bytes or None:"
                    f" {message.headers!r:.300}"
                )
            limit = self._limits.get(message.topic)
            if limit is None and not away:
                limit = self._asked(message.topic)
            if limit is None:
                continue
            if not away and _refusal(limit, message, now_ms):
                limit = self._renewed(message.topic, limit)
            if why := _refusal(limit, message, now_ms):
                raise RecordRefusedError(f"a record was not accepted: {why}")
            if limit.bytes_max is None:
                continue
            size = _size(message) + SET_BYTES
            if size > limit.bytes_max:
                raise RecordRefusedError(
                    f"a record of {size:,} bytes was not accepted: topic {message.topic} takes"
                    f" {limit.bytes_max:,} (max.message.bytes)"
                )

    def knows(self, topic: str) -> bool:
        return topic in self._limits

    def _renewed(self, topic: str, limit: TopicTakes) -> TopicTakes:
        """Ask again before a record is refused: settings of a topic change."""
        if time.monotonic() - self._asked_s.get(topic, 0.0) < ASK_AGAIN_S:
            return limit
        return self._asked(topic) or limit

    def _asked(self, topic: str) -> TopicTakes | None:
        if time.monotonic() < self._ask_from_s:
            return None
        try:
            limit = topic_takes(self._settings, topic)
        except PreflightError:
            self._ask_from_s = time.monotonic() + ASK_AGAIN_S
            return None
        if not limit.partitions:
            raise RecordRefusedError(
                f"topic {topic} does not exist or may not be written; nothing was accepted for it:"
                " create it"
            )
        self._limits[topic], self._asked_s[topic] = limit, time.monotonic()
        return limit


def _refusal(limit: TopicTakes, message: Message, now_ms: int) -> str | None:
    return limit.rules.refusal(message.topic, message.key, message.timestamp_ms, now_ms)


def _size(message: Message) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.value or b"") + len(message.key or b"") + headers

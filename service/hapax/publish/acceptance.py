"""What can be known to be refused is refused to the caller, before it is accepted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from hapax.cluster.topic_rules import TopicTakes
from hapax.core.errors import HapaxError, PreflightError
from hapax.core.headers import is_header
from hapax.core.records import Message
from hapax.kafka.admin.topics import SET_BYTES, topic_takes
from hapax.kafka.properties import producer_properties
from hapax.processing.transform import PARTITION_MAX, TIMESTAMP_MAX, is_number, is_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hapax.settings import Settings

ASK_AGAIN_S = 30.0
_HEADER_BYTES, _ID_BYTES = 6, 56
"""What a header adds to its name and value; ``<spool>/<sequence>`` at its longest."""


class RecordRefusedError(HapaxError):
    """The client or the brokers would not take this record; nothing of the call was accepted."""


class Acceptance:
    """Asks once about each topic, while brokers answer; without an answer they judge later."""

    def __init__(self, settings: Settings, id_header: str) -> None:
        self._settings = settings
        self._id_header = id_header
        # The client refuses by this whatever becomes of it in a compressed set.
        properties = producer_properties(settings, transactional=False)
        self._bytes_max = int(properties["message.max.bytes"])
        self._unknown = TopicTakes(PARTITION_MAX, None)
        self._limits: dict[str, TopicTakes] = {}
        self._asked_s: dict[str, float] = {}
        self._ask_from_s = 0.0

    def check(self, messages: Iterable[Message], *, away: bool) -> None:
        """Raise RecordRefusedError for what is no record, and for one that its topic refuses.

        ``away``: brokers are known not to answer, so this does not wait for them.
        """
        now_ms = int(time.time() * 1000)
        for message in messages:
            if why := next(_problems(message), None):
                raise RecordRefusedError(f"a record was not accepted: {why}")
            limit = self._limits.get(message.topic, self._unknown)
            # Asked again before a record is refused: settings of a topic change.
            if not away and (limit is self._unknown or self._refusal(limit, message, now_ms)):
                limit = self.ask(message.topic) or limit
            if why := self._refusal(limit, message, now_ms):
                raise RecordRefusedError(f"a record was not accepted: {why}")

    def knows(self, topic: str) -> bool:
        return topic in self._limits

    def ask(self, topic: str) -> TopicTakes | None:
        """Ask unless an answer is new; None: no broker answers. Raises RecordRefusedError."""
        now_s = time.monotonic()
        if now_s < max(self._ask_from_s, self._asked_s.get(topic, -ASK_AGAIN_S) + ASK_AGAIN_S):
            return self._limits.get(topic)
        try:
            limit = topic_takes(self._settings, topic)
        except PreflightError:
            self._ask_from_s = time.monotonic() + ASK_AGAIN_S
            return None
        if not limit.partitions:
            raise RecordRefusedError(
                f"topic {topic} does not exist or may not be written: nothing was accepted for it"
            )
        self._limits[topic], self._asked_s[topic] = limit, time.monotonic()
        return limit

    def _refusal(self, limit: TopicTakes, message: Message, now_ms: int) -> str | None:
        topic, partition, size = message.topic, message.partition, self._size(message)
        if partition >= limit.partitions:
            return f"it names partition {partition} of topic {topic}, which has {limit.partitions}"
        if limit.bytes_max is not None and size + SET_BYTES > limit.bytes_max:
            takes = f"topic {topic} takes {limit.bytes_max:,} (max.message.bytes)"
            return f"it has {size + SET_BYTES:,} bytes, and {takes}"
        if size > self._bytes_max:
            return f"it has {size:,} bytes, and the client sends {self._bytes_max:,}"
        return limit.rules.refusal(topic, message.key, message.timestamp_ms, now_ms)

    def _size(self, message: Message) -> int:
        size, own = len(message.value or b"") + len(message.key or b""), self._id_header
        for name, value in message.headers:
            size += len(name.encode()) + len(value or b"") + _HEADER_BYTES
            own = "" if name == own else own
        return size + (len(own) + _ID_BYTES + _HEADER_BYTES if own else 0)


def _problems(message: Any) -> Iterator[str]:
    """Yield why this is a record of no topic: the client would refuse it, or change it."""
    if type(message) is not Message:
        yield f"it must be a Message of hapax.core.ports, not {type(message).__name__}"
        return
    fields: Any = astuple(message)
    topic, value, key, partition, time_ms, headers = fields
    if not isinstance(topic, str) or not is_topic(topic):
        yield f"no topic can have this name: {topic!r:.300}"
    for name, content in (("value", value), ("key", key)):
        if content is not None and not isinstance(content, bytes):
            yield f"its {name} must be bytes or None, not {type(content).__name__}"
    if type(partition) is not int or not -1 <= partition <= PARTITION_MAX:
        yield f"its partition must be a number, or -1 for any: {partition!r:.99}"
    if time_ms is not None and not is_number(time_ms, TIMESTAMP_MAX):
        yield f"its timestamp_ms must be a number from 0 to 2^63-1, or None: {time_ms!r:.99}"
    if not isinstance(headers, list | tuple) or not all(map(is_header, headers)):
        wanted = "pairs of str, in UTF-8 and without NUL, and bytes or None"
        yield f"its headers must be {wanted}: {headers!r:.300}"

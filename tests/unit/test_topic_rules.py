"""What a topic refuses by its settings, and dead letters that are amended for it."""

from dataclasses import dataclass

import pytest

from hapax.core.dead_letters import dead_letter, is_original
from hapax.core.ports import Message
from hapax.core.records import Record
from hapax.core.topic_rules import MARGIN_MS, UNLIMITED, TopicRules, amended

NOW_MS, HOUR_MS = 1_800_000_000_000, 3_600_000
BOTH = TopicRules(compacted=True, before_ms=HOUR_MS, after_ms=HOUR_MS)


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, TopicRules()),
        ({"cleanup.policy": "delete"}, TopicRules()),
        ({"cleanup.policy": "compact,delete"}, TopicRules(compacted=True)),
        ({"message.timestamp.after.max.ms": "5"}, TopicRules(after_ms=5)),
        ({"message.timestamp.before.max.ms": "0"}, TopicRules(before_ms=0)),
        ({"message.timestamp.difference.max.ms": "7"}, TopicRules(before_ms=7, after_ms=7)),
        (
            {"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"},
            TopicRules(before_ms=7, after_ms=9),
        ),
        (
            {"message.timestamp.after.max.ms": "5", "message.timestamp.type": "LogAppendTime"},
            TopicRules(),
        ),
    ],
)
def test_rules_are_read_from_the_settings_of_a_topic(settings, rules):
    assert TopicRules.of(settings) == rules


@pytest.mark.parametrize(
    ("key", "timestamp_ms", "words"),
    [
        (b"", NOW_MS, None),
        (b"k", None, None),
        (b"k", -1, None),  # without a timestamp
        (None, NOW_MS, "no key, and topic out is compacted"),
        (b"k", 0, "message.timestamp.before.max.ms=3600000"),
        (b"k", -2, "message.timestamp.before.max.ms=3600000"),
        (b"k", NOW_MS * 1000, "message.timestamp.after.max.ms=3600000"),
        (b"k", NOW_MS + HOUR_MS + MARGIN_MS, None),  # within what clocks may differ
        (b"k", NOW_MS + HOUR_MS + MARGIN_MS + 1, "message.timestamp.after.max.ms"),
        (b"k", NOW_MS - HOUR_MS - MARGIN_MS, None),
        (b"k", NOW_MS - HOUR_MS - MARGIN_MS - 1, "message.timestamp.before.max.ms"),
    ],
)
def test_a_refusal_names_the_property_of_the_topic(key, timestamp_ms, words):
    why = BOTH.refusal("out", key, timestamp_ms, NOW_MS)
    assert (why is None) is (words is None)
    assert (words or "") in (why or "")


def test_the_sentence_is_one_object_however_many_records_are_refused():
    first, second = (BOTH.refusal("out", b"k", time, NOW_MS) for time in (0, 1))
    assert first is second


def test_a_topic_without_limits_refuses_nothing():
    assert TopicRules().refusal("out", None, UNLIMITED, NOW_MS) is None


@dataclass
class Letter:
    key: bytes | None
    timestamp_ms: int
    truncated: bytes = b""

    def amended(self, rules: TopicRules) -> Message:
        headers: list[tuple[str, bytes | None]] = [
            ("hapax-source", b"in/0/7"),
            ("hapax-error", b"ValueError: no"),
            ("hapax-attempts", b"1"),
            ("hapax-app", b"app"),
        ]
        if self.truncated:
            headers.append(("hapax-truncated", self.truncated))
        whole = Message("dead", b"v", self.key, -1, self.timestamp_ms, headers)
        return amended(whole, rules, NOW_MS)


def read(message: Message, at_ms: int) -> Record:
    headers = tuple(message.headers)
    return Record("dead", 0, 1, message.key, message.value, headers, at_ms)


@pytest.mark.parametrize("key", [b"k", b"", None])
@pytest.mark.parametrize("timestamp_ms", [NOW_MS, 0, -5000, NOW_MS * 1000])
def test_an_amended_dead_letter_is_accepted_and_is_read_as_the_record_was(key, timestamp_ms):
    message = Letter(key, timestamp_ms).amended(BOTH)
    assert BOTH.refusal("dead", message.key, message.timestamp_ms, NOW_MS) is None
    assert message.key == (b"in/0/7" if key is None else key)
    written_ms = NOW_MS if message.timestamp_ms is None else message.timestamp_ms
    one = dead_letter(read(message, written_ms))
    assert one is not None
    assert (one.record.key, one.record.timestamp_ms) == (key, timestamp_ms)
    assert (one.record.value, one.truncated) == (b"v", "")


def test_what_was_cut_before_stays_named_and_the_original_is_recognised():
    message = Letter(b"k", 5, b"value=3").amended(BOTH)
    assert dict(message.headers)["hapax-truncated"] == b"value=3,timestamp=5"
    one = dead_letter(read(message, NOW_MS))
    assert one is not None
    assert is_original(one, Record("in", 0, 7, b"k", b"abc", (), 5))
    assert not is_original(one, Record("in", 0, 7, b"k", b"abc", (), NOW_MS))
    assert not is_original(one, Record("in", 0, 7, b"other", b"abc", (), 5))

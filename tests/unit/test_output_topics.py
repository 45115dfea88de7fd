"""Messages are judged before they are sent, while there is something to judge."""

from collections.abc import Collection, Mapping
from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError

from hapax.core.errors import BatchAbortedError
from hapax.core.record_path import Outputs
from hapax.core.records import Message
from hapax.kafka.produce import base
from hapax.kafka.produce.base import ABSENT_AGE_S, RULES_AGE_S, OutputTopics, ProducerConfig
from tests.kit.doubles import Ticking
from tests.kit.producers import failing, message, transaction

LATE = {KafkaError.INVALID_TIMESTAMP}
HOUR = {"message.timestamp.after.max.ms": "3600000"}
YEAR_4000_MS = 64_060_588_800_000


class Asked:
    """Topics in OutputTopics, and brokers that answer it from ``settings``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.settings: dict[str, dict[str, str]] = {"out": HOUR, "dead": HOUR, "side": {}}
        self.asked: list[str] = []
        self.clock = Ticking()
        patch.setattr(base, "absent_topics", self.absent)
        patch.setattr(base, "topic_settings", self.told)
        config = ProducerConfig(
            properties={},
            required_topics=frozenset({"out", "dead"}),
            dead_letters="dead",
            deadline_s=1.0,
        )
        self.topics = OutputTopics(config, self.clock, lambda _call: nullcontext())

    def absent(self, _properties: object, names: Collection[str], _wait_s: float) -> set[str]:
        self.asked.append("topics")
        return set(names) - set(self.settings)

    def told(self, _properties: object, names: Collection[str]) -> dict[str, Mapping[str, str]]:
        self.asked.append("settings")
        return {name: found for name, found in self.settings.items() if name in names}

    def admitted(self, *messages: Message) -> list[Message]:
        return list(self.topics.admit(Outputs(messages)))

    def refused(self, *messages: Message) -> list[int]:
        with pytest.raises(BatchAbortedError) as caught:
            self.topics.admit(Outputs(messages))
        assert caught.value.content
        return list(caught.value.refused)


@pytest.fixture
def asked(monkeypatch):
    return Asked(monkeypatch)


def to(topic: str, timestamp_ms: int | None = None) -> Message:
    headers: list[tuple[str, bytes | None]] = [("hapax-source", b"in/0/1")]
    return Message(topic, b"v", b"k", -1, timestamp_ms, headers)


def letter(timestamp_ms: int) -> Message:
    return Message("dead", b"v", b"k", -1, timestamp_ms, [("hapax-error", b"no")])


def test_nothing_is_asked_about_topics_of_the_settings_and_messages_pass_as_they_are(asked):
    messages = Outputs([to("out", YEAR_4000_MS), to("dead")])
    assert asked.topics.admit(messages) is messages
    assert asked.asked == []


def test_a_name_is_looked_up_once_and_not_at_all_where_the_cluster_has_it(asked):
    asked.topics.meet(["listed"])
    asked.admitted(to("side"), to("listed"))
    asked.admitted(to("side"), to("listed"))
    assert asked.asked == ["topics"]


def test_messages_for_a_topic_that_does_not_exist_are_refused_until_it_does(asked):
    assert asked.refused(to("out"), to("sied"), to("side"), to("sied")) == [1, 3]
    assert asked.refused(to("sied")) == [0]
    assert asked.asked == ["topics"]
    asked.settings["sied"] = {}
    asked.clock.wait(ABSENT_AGE_S + 1)
    asked.admitted(to("sied"))
    asked.admitted(to("sied"))
    assert asked.asked == ["topics"] * 2


def test_no_answer_about_a_name_is_no_fault_of_a_record(asked, monkeypatch):
    def silent(*_given: object) -> set[str]:
        raise failing(KafkaError._TIMED_OUT)

    monkeypatch.setattr(base, "absent_topics", silent)
    with pytest.raises(BatchAbortedError, match="no answer") as caught:
        asked.topics.admit(Outputs([to("side")]))
    assert (caught.value.content, caught.value.refused) == (False, {})


def test_after_a_refusal_all_messages_are_judged_and_dead_letters_are_amended(asked):
    assert asked.topics.learn(LATE)
    assert asked.topics.awake
    early = to("out")
    messages = [to("out", YEAR_4000_MS), early, to("out", YEAR_4000_MS), letter(YEAR_4000_MS)]
    assert asked.refused(*messages) == [0, 2]
    (kept, amended) = asked.admitted(early, letter(YEAR_4000_MS))
    assert kept is early
    assert amended.timestamp_ms is None
    assert dict(amended.headers)["hapax-truncated"] == b"timestamp=%d" % YEAR_4000_MS
    # An output for that topic is none.
    assert asked.refused(to("dead", YEAR_4000_MS)) == [0]


def test_a_refusal_of_judged_messages_or_for_another_reason_asks_nothing(asked):
    assert not asked.topics.learn({KafkaError.MSG_SIZE_TOO_LARGE})
    assert asked.asked == []
    asked.topics.learn(LATE)
    assert not asked.topics.learn(LATE)


def test_settings_are_asked_for_again_while_they_refuse_and_forgotten_then(asked):
    asked.topics.learn(LATE)
    asked.refused(to("out", YEAR_4000_MS))
    asked.clock.wait(RULES_AGE_S + 1)
    asked.settings["out"] = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    asked.admitted(to("out", YEAR_4000_MS))
    assert (asked.asked, asked.topics.awake) == (["settings"] * 2, True)  # of the dead letters
    asked.clock.wait(RULES_AGE_S + 1)
    asked.admitted(to("out", YEAR_4000_MS))
    assert (asked.asked, asked.topics.awake) == (["settings"] * 2, False)


def test_without_the_right_to_read_settings_brokers_judge_outputs_and_dead_letters_arrive(asked):
    asked.settings.clear()
    assert not asked.topics.learn(LATE)
    asked.admitted(to("out", YEAR_4000_MS), to("dead", YEAR_4000_MS))
    (amended,) = asked.admitted(letter(YEAR_4000_MS))
    assert amended.timestamp_ms is None


def test_a_transaction_refused_for_a_timestamp_blames_all_that_are_in_its_next_attempt(monkeypatch):
    kafka, producer, _ = transaction(monkeypatch)
    monkeypatch.setattr(base, "topic_settings", lambda *_given: {"out": HOUR})
    late = Outputs([message(), to("out", YEAR_4000_MS), message(), to("out", YEAR_4000_MS)])
    producer.fail["commit_transaction"] = [failing(KafkaError.INVALID_TIMESTAMP, abort=True)]
    kafka.begin()
    kafka.send(late)
    with pytest.raises(BatchAbortedError) as first:
        kafka.commit()
    assert (first.value.content, first.value.refused) == (True, {})
    kafka.open()
    assert not kafka._producer().alone
    kafka.begin()
    with pytest.raises(BatchAbortedError) as second:
        kafka.send(late)
    assert list(second.value.refused) == [1, 3]
    assert kafka.doubts == []  # nothing was sent: the producer stays

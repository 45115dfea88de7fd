"""Ids of topics, as brokers answer for them; tests/integration/test_two_clusters.py has brokers."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import PreflightError
from hapax.kafka.admin import topics
from hapax.kafka.admin.topics import topic_ids
from hapax.kafka.read import offsets_client
from hapax.operations.claims import recommit_here
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED

SETTINGS = load_settings({**REQUIRED, "HAPAX_INPUT__TOPICS": "a, b"})
NO_ID = "A" * 22


class Answer:
    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    def result(self, _timeout_s: float) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return type("Topic", (), {"topic_id": self._answer})


@pytest.fixture
def answers(monkeypatch):
    def answered(of_b: str | Exception) -> None:
        found = {"a": Answer("x+y/z"), "b": Answer(of_b)}
        admin = SimpleNamespace(describe_topics=lambda *_, **__: found)
        monkeypatch.setattr(topics, "AdminClient", lambda *_, **__: admin)

    return answered


def failure(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_ids_are_spelled_as_kafkas_tools_spell_them(answers):
    answers(NO_ID)
    assert topic_ids(SETTINGS) == {"a": "x-y_z", "b": None}


def test_a_topic_that_is_not_there_is_left_out(answers, monkeypatch):
    answers(failure(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert topic_ids(SETTINGS) == {"a": "x-y_z"}

    metadata = SimpleNamespace(cluster_id="here", topics={})
    consumer = SimpleNamespace(list_topics=lambda *_, **__: metadata, close=bool)
    monkeypatch.setattr(offsets_client, "Consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(offsets_client, "require_listener", lambda _settings: None)
    with pytest.raises(PreflightError, match="topic b does not exist"):
        recommit_here(SETTINGS, "here")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (failure(KafkaError._TIMED_OUT), "the id of topic b cannot be read: _TIMED_OUT"),
        (failure(KafkaError.TOPIC_AUTHORIZATION_FAILED), "TOPIC_AUTHORIZATION_FAILED"),
        (TimeoutError(), "the id of topic b was not returned in time"),
    ],
)
def test_an_id_that_is_not_known_moves_no_offset(answers, answer, why):
    answers(answer)
    with pytest.raises(PreflightError, match=why):
        topic_ids(SETTINGS)

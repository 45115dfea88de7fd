"""The answer about a committed offset that something holds back."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, HapaxError, StopError
from hapax.kafka.produce import marked_transaction as stable_offset_module
from hapax.kafka.produce.marked_transaction import stable_offset

HANGS = "hapax transactions list"


class Member:
    """A group that answers with an offset, or with an error: of the call, or of the partition.

    event  an error that only a poll tells
    """

    def __init__(
        self, offset: int = 0, *, call: int = 0, partition: int = 0, event: int = 0
    ) -> None:
        self.offset, self.call, self.partition, self.event = offset, call, partition, event

    def poll(self, timeout: float) -> Any:
        assert timeout == 0
        return SimpleNamespace(error=lambda: KafkaError(self.event)) if self.event else None

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout > 0
        if self.call:
            raise KafkaException(KafkaError(self.call))
        error = KafkaError(self.partition) if self.partition else None
        return [SimpleNamespace(offset=self.offset, error=error) for _one in wanted]


def ask(member: Any) -> int:
    return int(stable_offset(member, ("out", 0), "the marker").offset)


def refusal(kind: type[HapaxError], **error: int) -> str:
    with pytest.raises(kind, match="the marker") as raised:
        ask(Member(7, **error))
    return str(raised.value)


def test_an_answer_that_comes_is_returned():
    assert ask(Member(7)) == 7


@pytest.mark.parametrize("place", ["call", "partition"])
@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_an_answer_that_is_held_back_is_waited_for_and_says_what_shows_the_transaction(code, place):
    assert HANGS in refusal(BatchAbortedError, **{place: code})


@pytest.mark.parametrize("place", ["call", "partition"])
def test_a_coordinator_that_moves_is_waited_for_and_blames_no_transaction(monkeypatch, place):
    monkeypatch.setattr(stable_offset_module, "ANSWER_TIMEOUT_S", 0.01)
    assert HANGS not in refusal(BatchAbortedError, **{place: KafkaError.NOT_COORDINATOR})


@pytest.mark.parametrize("place", ["call", "partition"])
def test_a_missing_right_stops_the_process(place):
    assert "grant" in refusal(StopError, **{place: KafkaError.GROUP_AUTHORIZATION_FAILED})


def test_a_coordinator_that_is_not_told_stops_the_process_with_the_right_that_is_missing():
    said = refusal(
        StopError, call=KafkaError._TIMED_OUT, event=KafkaError.GROUP_AUTHORIZATION_FAILED
    )
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert HANGS not in said


def test_other_events_of_the_client_leave_the_answer_waited_for():
    assert HANGS in refusal(
        BatchAbortedError, call=KafkaError._TIMED_OUT, event=KafkaError._ALL_BROKERS_DOWN
    )

"""The answer about a committed offset that something holds back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, HapaxError, StopError
from hapax.kafka import errors
from hapax.kafka.admin import topics
from hapax.kafka.errors import COORDINATOR_MOVES, of_group
from hapax.kafka.produce import micro_batch as module
from hapax.kafka.produce.micro_batch import stable_offset
from tests.kit.sink_parts import sink_settings

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


@pytest.mark.parametrize("place", ["call", "partition"])
@pytest.mark.parametrize(
    ("code", "kind", "hangs"),
    [
        (KafkaError._TIMED_OUT, BatchAbortedError, True),
        (KafkaError.UNSTABLE_OFFSET_COMMIT, BatchAbortedError, True),
        (KafkaError.NOT_COORDINATOR, BatchAbortedError, False),  # it moves
        (KafkaError.GROUP_AUTHORIZATION_FAILED, StopError, False),
    ],
)
def test_an_answer_that_is_held_back_is_waited_for_and_says_what_shows_the_transaction(
    monkeypatch, code, place, kind, *, hangs
):
    assert ask(Member(7)) == 7
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.01)
    said = refusal(kind, **{place: code})
    assert (HANGS in said) is hangs
    assert ("grant" in said) is (kind is StopError)


def test_a_coordinator_that_is_not_told_stops_the_process_with_the_right_that_is_missing():
    late, missing = KafkaError._TIMED_OUT, KafkaError.GROUP_AUTHORIZATION_FAILED
    said = refusal(StopError, call=late, event=missing)
    assert "GROUP_AUTHORIZATION_FAILED" in said
    assert HANGS not in said
    other = KafkaError._ALL_BROKERS_DOWN  # leaves the answer waited for
    assert HANGS in refusal(BatchAbortedError, call=late, event=other)


MOVES = sorted(COORDINATOR_MOVES)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(errors, "_REST_S", 0.001)


class Coordinator:
    """Answers after so many errors of a code, to whichever client asks."""

    def __init__(self, code: int, times: int, *, beside: bool = False) -> None:
        self._code, self._times, self._beside = code, times, beside
        self.asked = 0

    def committed(self, asked: list[TopicPartition], **_named: object) -> list[Any]:
        self.asked += 1
        error = KafkaError(self._code) if self.asked <= self._times else None
        if error is not None and not self._beside:
            raise KafkaException(error)
        return [SimpleNamespace(offset=7, metadata="", error=error) for _ in asked]

    def describe_consumer_groups(self, names: list[str], **_named: object) -> dict[str, Any]:
        return dict.fromkeys(names, self)

    def result(self, _timeout_s: float) -> Any:
        self.committed([])
        return SimpleNamespace(members=[SimpleNamespace(client_id="other", host="/h")])

    def poll(self, _wait_s: float) -> None:
        return None


@pytest.mark.parametrize("code", MOVES)
@pytest.mark.parametrize("beside", [False, True])
def test_a_marker_is_asked_for_until_its_coordinator_has_loaded(code, *, beside):
    member = Coordinator(code, 2, beside=beside)
    assert stable_offset(cast("Any", member), ("out", 0), "the marker").offset == 7
    assert member.asked == 3


@pytest.mark.parametrize("code", MOVES)
def test_the_members_of_a_group_are_asked_for_likewise(monkeypatch, code):
    coordinator = Coordinator(code, 2)
    monkeypatch.setattr(topics, "AdminClient", lambda _properties: coordinator)
    assert topics.members(sink_settings("broker:9092", "app")) == {"other": "/h"}
    assert coordinator.asked == 3


def test_other_errors_are_not_waited_for_and_the_wait_has_an_end(monkeypatch):
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.01)
    for code, most in ((KafkaError.GROUP_AUTHORIZATION_FAILED, 1), (MOVES[0], 1_000)):
        member = Coordinator(code, 1_000)
        with pytest.raises(KafkaException) as caught:
            of_group(lambda: member.committed([]), 0.01)  # noqa: B023 - called at once
        assert caught.value.args[0].code() == code
        assert member.asked <= most
    with pytest.raises(BatchAbortedError, match="the marker is not known"):
        stable_offset(cast("Any", Coordinator(MOVES[0], 1_000)), ("out", 0), "the marker")

"""The answer about a committed offset that something holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from hapax.core.errors import BatchAbortedError, StopError
from hapax.kafka.produce.stable_offset import stable_offset

if TYPE_CHECKING:
    from hapax.core.offset_commit import OffsetCommit

KEY = ("out", 0)


class Member:
    """A group whose answers are given: offsets, and errors by their codes."""

    def __init__(self, *answers: int, errors: tuple[int, ...] = ()) -> None:
        self.errors = list(errors)
        self.answers = list(answers)

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        (one,) = wanted
        return [TopicPartition(one.topic, one.partition, self.answers.pop(0))]

    def consumer_group_metadata(self) -> bytes:
        return b"group"


class Holder:
    """A producer that notes what it was told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self) -> None:
        self.calls.append("begin")

    def send_offsets(self, commit: OffsetCommit) -> None:
        assert bytes(commit.group_metadata) == b"group"
        assert [(one.topic, one.partition) for one in commit.offsets] == [KEY]
        self.calls.append("offsets")

    def abort(self) -> None:
        self.calls.append("abort")


def ask(member: Any, holder: Any = None) -> int:
    return int(stable_offset(member, KEY, "the marker", holder).offset)


def test_an_answer_that_comes_costs_no_transaction() -> None:
    holder = Holder()
    assert ask(Member(7), holder) == 7
    assert holder.calls == []


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT])
def test_what_holds_the_answer_back_is_rolled_back_and_never_committed(code: int) -> None:
    holder = Holder()
    assert ask(Member(7, errors=(code,)), holder) == 7
    assert holder.calls == ["begin", "offsets", "abort"]


def test_an_answer_that_stays_away_is_not_guessed() -> None:
    holder = Holder()
    twice = (KafkaError._TIMED_OUT,) * 2
    with pytest.raises(BatchAbortedError, match="the marker is not known"):
        ask(Member(7, errors=twice), holder)
    assert holder.calls == ["begin", "offsets", "abort"]


def test_who_does_not_hold_the_id_rolls_nothing_back() -> None:
    with pytest.raises(BatchAbortedError, match="the marker is not known"):
        ask(Member(7, errors=(KafkaError._TIMED_OUT,)))


def test_a_missing_right_is_told_and_not_worked_around() -> None:
    holder = Holder()
    with pytest.raises(StopError, match="cannot be read"):
        ask(Member(7, errors=(KafkaError.GROUP_AUTHORIZATION_FAILED,)), holder)
    assert holder.calls == []

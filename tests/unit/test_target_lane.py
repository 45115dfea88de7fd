"""A lane of another cluster: when its progress is committed once more, and when it is not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from hapax.core.errors import BatchAbortedError, ProducerDeadError
from hapax.core.offset_commit import GroupOffset
from hapax.kafka.produce.target import TargetTransaction
from hapax.kafka.produce.target_lane import KEEP_INTERVAL_S, TargetLane, shown_id, target_names
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED, TARGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.ports import Message
    from hapax.core.records import TopicPartition
    from hapax.settings import Settings

WHERE = ("in-a", 3)
PROGRESS = GroupOffset(*WHERE, 7)


class Clock:
    def monotonic(self) -> float:
        """Return the time, which stands still."""
        return 0.0


def settings() -> Settings:
    target = {name: text for name, text in TARGET.items() if name.endswith("BOOTSTRAP_SERVERS")}
    return load_settings(REQUIRED | target)


class Kept(TargetLane):
    """A lane that notes what it is to commit."""

    def __init__(self) -> None:
        super().__init__(
            settings().target,
            WHERE,
            logger=None,
            clock=Clock(),
            forward=lambda *_line: None,
            watch=lambda _call: nullcontext(),
        )
        self.commits: list[GroupOffset] = []

    def run(self, messages: Sequence[Message], offset: GroupOffset) -> None:
        assert not messages
        self.commits.append(offset)


def test_the_status_names_the_ids_of_the_lanes_and_none_of_a_process_that_is_not_used():
    ids = shown_id(settings())
    lane = target_names(settings().app, WHERE).transactional_id
    assert lane == ids.replace("TOPIC", WHERE[0]).replace("PARTITION", str(WHERE[1]))
    assert shown_id(load_settings(REQUIRED)) == "orders:orders-0"


def test_progress_that_rests_is_committed_once_more_before_brokers_forget_it():
    lane = Kept()
    lane.progress, lane.sound = PROGRESS, True
    for now_s in (100.0, 101.0, 100.0 + KEEP_INTERVAL_S):
        lane.keep(now_s)
    assert lane.commits == []
    lane.keep(101.0 + KEEP_INTERVAL_S)
    lane.keep(102.0 + KEEP_INTERVAL_S)
    assert lane.commits == [PROGRESS]


def test_a_lane_that_is_not_certain_keeps_nothing():
    lane = Kept()
    for lane.progress, lane.sound in ((PROGRESS, False), (None, True)):
        lane.keep(1.0)
        lane.keep(2.0 + KEEP_INTERVAL_S)
    assert lane.commits == []


def test_a_lane_that_is_not_open_commits_nothing():
    with pytest.raises(BatchAbortedError, match="its lane is not open") as caught:
        TargetLane.run(Kept(), [], PROGRESS)
    assert not caught.value.resolved


def test_names_of_lanes_are_those_of_no_worker_sink_or_other_topic():
    assert target_names("app", ("sink", 1)) == ("app/from/sink/1", "app--from/sink/1")


def test_a_lane_that_cannot_be_opened_is_told_with_its_reason_each_time():
    told: list[tuple[TopicPartition, str]] = []
    transaction = TargetTransaction(
        settings(),
        logger=None,
        clock=Clock(),
        source_cluster=lambda: None,
        on_retry=lambda where, why: told.append((where, why)),
        forward=lambda *_line: None,
        watch=lambda _call: nullcontext(),
    )
    answers = [ProducerDeadError("no answer"), BatchAbortedError("no progress"), None]

    class Late(TargetLane):
        def open(self) -> None:
            self.sound = False
            if (answer := answers.pop(0)) is not None:
                raise answer
            self.progress, self.sound = PROGRESS, True

    with mock.patch("hapax.kafka.produce.target.TargetLane", Late):
        for reason in ("no answer", "no progress"):
            with pytest.raises(BatchAbortedError, match=f"in-a/3: .* {reason}"):
                transaction.progress([WHERE], frozenset({WHERE}))
            assert told[-1] == (WHERE, reason)
        (found,) = transaction.progress([WHERE], frozenset({WHERE})).values()
    assert (found.offset, len(told)) == (7, 2)

"""A lane of another cluster: when its progress is committed once more, and when it is not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from hapax.core.errors import BatchAbortedError
from hapax.core.offset_commit import GroupOffset
from hapax.kafka.produce.target_lane import KEEP_INTERVAL_S, TargetLane, target_names
from hapax.settings import load_settings
from tests.unit.test_settings import REQUIRED, TARGET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hapax.core.ports import Message

WHERE = ("in-a", 3)
PROGRESS = GroupOffset(*WHERE, 7)


class Clock:
    def monotonic(self) -> float:
        """Return the time, which stands still."""
        return 0.0


class Kept(TargetLane):
    """A lane that notes what it is to commit."""

    def __init__(self) -> None:
        target = {name: text for name, text in TARGET.items() if name.endswith("BOOTSTRAP_SERVERS")}
        super().__init__(
            load_settings(REQUIRED | target).target,
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


def test_progress_that_rests_is_committed_once_more_before_brokers_forget_it() -> None:
    lane = Kept()
    lane.progress, lane.sound = PROGRESS, True
    for now_s in (100.0, 101.0, 100.0 + KEEP_INTERVAL_S):
        lane.keep(now_s)
    assert lane.commits == []
    lane.keep(101.0 + KEEP_INTERVAL_S)
    lane.keep(102.0 + KEEP_INTERVAL_S)
    assert lane.commits == [PROGRESS]


def test_a_lane_that_is_not_certain_keeps_nothing() -> None:
    lane = Kept()
    for lane.progress, lane.sound in ((PROGRESS, False), (None, True)):
        lane.keep(1.0)
        lane.keep(2.0 + KEEP_INTERVAL_S)
    assert lane.commits == []


def test_a_lane_that_is_not_open_commits_nothing() -> None:
    with pytest.raises(BatchAbortedError, match="its lane is not open") as caught:
        TargetLane.run(Kept(), [], PROGRESS)
    assert not caught.value.resolved


def test_names_of_lanes_are_those_of_no_worker_sink_or_other_topic() -> None:
    assert target_names("app", ("sink", 1)) == ("app/from/sink/1", "app--from/sink/1")

"""A lane of another cluster: when its progress is committed once more, and when it is not."""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, strategies as st

from hapax.cluster.offset_moves import Halving
from hapax.core.errors import BatchAbortedError, HapaxError, ProducerDeadError
from hapax.core.headers import ID, PATH, SOURCE
from hapax.core.offset_commit import GroupOffset
from hapax.core.record_path import Plan
from hapax.core.records import Headers, Message, Output, Record, TopicPartition
from hapax.kafka.consume.target_source import KafkaTargetSource
from hapax.kafka.produce.target import (
    KEEP_INTERVAL_S,
    TargetLane,
    TargetTransaction,
    shown_id,
    target_names,
)
from hapax.processing.plan import Destinations, OtherCluster, Planner
from hapax.settings import Settings, load_settings
from tests.kit.doubles import Ticking
from tests.unit.test_settings import REQUIRED, TARGET

WHERE = ("in-a", 3)
PROGRESS = GroupOffset(*WHERE, 7)


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
            clock=Ticking(),
            forward=lambda *_line: None,
            watch=lambda _call: nullcontext(),
        )
        self.commits: list[GroupOffset] = []

    def run(self, messages: Sequence[Message], offset: GroupOffset) -> None:
        assert not messages
        self.commits.append(offset)


def test_the_status_names_the_ids_of_the_lanes_which_are_those_of_nothing_else_that_is_used():
    ids = shown_id(settings())
    lane = target_names(settings().app, WHERE).transactional_id
    assert lane == ids.replace("TOPIC", WHERE[0]).replace("PARTITION", str(WHERE[1]))
    assert shown_id(load_settings(REQUIRED)) == "orders:orders-0"
    assert target_names("app", ("sink", 1)) == ("app/from/sink/1", "app--from/sink/1")


def test_progress_that_rests_is_committed_once_more_before_brokers_forget_it():
    lane = Kept()
    for lane.progress, lane.sound in ((PROGRESS, False), (None, True)):  # not certain
        lane.keep(1.0)
        lane.keep(2.0 + KEEP_INTERVAL_S)
    lane = Kept()
    lane.progress, lane.sound = PROGRESS, True
    for now_s in (100.0, 101.0, 100.0 + KEEP_INTERVAL_S):
        lane.keep(now_s)
    assert lane.commits == []
    lane.keep(101.0 + KEEP_INTERVAL_S)
    lane.keep(102.0 + KEEP_INTERVAL_S)
    assert lane.commits == [PROGRESS]


def test_a_lane_that_is_not_open_commits_nothing():
    with pytest.raises(BatchAbortedError, match="its lane is not open") as caught:
        TargetLane.run(Kept(), [], PROGRESS)
    assert not caught.value.resolved


def test_a_lane_that_cannot_be_opened_is_told_with_its_reason_each_time():
    told: list[tuple[TopicPartition, str]] = []
    transaction = TargetTransaction(
        settings(),
        logger=None,
        clock=Ticking(),
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


# -- What outputs on another cluster carry, and where an offset is in a mirror ------------

HERE = OtherCluster(b"a", b"b", mirrors=True, partitions=4)


def planned(elsewhere: OtherCluster, headers: Headers = (), partition: int = 3) -> Plan:
    record = Record("in", partition, 7, b"k", b"v", headers, 5)
    planner = Planner(Destinations("app", "out", None, None, elsewhere))
    return planner.plan([record], [b""], [(Output(b"v"),)], {("in", partition): 8})


def test_a_mirrored_record_keeps_its_partition_and_all_its_headers_and_an_output_neither():
    headers = (("x", b"1"), ("x", None), (ID, b"own"), ("hapax-error", b"E: why"))
    (message,) = planned(HERE, (*headers, (SOURCE, b"far/0/1"))).messages
    assert message.partition == 3
    assert message.headers == [*headers, (SOURCE, b"in/3/7"), (PATH, b"a")]
    (message,) = planned(HERE, partition=4).messages  # which the mirror does not have
    assert message.partition == -1
    (message,) = planned(OtherCluster(b"a", b"b"), (("x", b"1"), ("hapax-error", b"E"))).messages
    assert message.partition == -1
    assert message.headers == [("x", b"1"), (ID, b"in/3/7"), (SOURCE, b"in/3/7"), (PATH, b"a")]


def test_the_path_grows_by_the_cluster_that_is_read_and_what_has_been_there_is_not_written_again():
    (message,) = planned(HERE, ((PATH, b"z,y"),)).messages
    assert (PATH, b"z,y,a") in message.headers
    assert sum(name == PATH for name, _value in message.headers) == 1
    plan = planned(HERE, ((PATH, b"b,c"),))
    assert (list(plan.messages), plan.looped, plan.filtered) == ([], 1, 0)
    assert planned(HERE, ((PATH, b"bb"),)).looped == 0
    spread = OtherCluster(b"a", b"b", mirrors=True)  # numbers of partitions differ
    assert planned(spread, ((PATH, b"b"),)).looped == 1


def test_a_function_has_its_output_whatever_path_a_sender_has_named():
    plan = planned(OtherCluster(b"a", b"b"), ((PATH, b"b,c"),))
    assert ([message.value for message in plan.messages], plan.looped) == ([b"v"], 0)


@given(st.sets(st.integers(0, 60)), st.integers(0, 62), st.data())
def test_the_place_of_an_offset_is_the_first_record_from_it_on_whatever_lies_between(
    sources, committed, data
):
    origins = sorted(sources)
    gaps = data.draw(st.lists(st.integers(1, 9), min_size=len(origins), max_size=len(origins)))
    low, places = data.draw(st.integers(0, 5)), []
    end = low
    for gap in gaps:
        places.append(end + gap - 1)
        end += gap
    end += data.draw(st.integers(0, 4))
    halving = Halving(("in", 0), committed, low, end)
    looks = 0
    while (at := halving.at) is not None:
        index = bisect_left(places, at)
        inside = index < len(places) and places[index] < halving.end
        halving.see(mirrored(places[index], origins[index]) if inside else None)
        looks += 1
    after = [place for place, origin in zip(places, origins, strict=True) if origin >= committed]
    assert halving.found == (after[0] if after else None)
    assert looks <= (end - low).bit_length() + 1


def mirrored(offset: int, origin: int, topic: str = "in") -> Record:
    return Record("out", 0, offset, None, b"", ((SOURCE, f"{topic}/0/{origin}".encode()),))


def test_a_record_of_another_topic_is_no_mirror():
    halving = Halving(("in", 0), 3, 0, 9)
    with pytest.raises(HapaxError, match="out/0/5 does not come from in/0"):
        halving.see(mirrored(5, 5, "other"))


@pytest.mark.parametrize(
    ("mirrors", "count", "remarks", "kept"), [(True, 3, 0, 3), (True, 2, 1, 0), (False, 2, 0, 0)]
)
def test_a_mirror_keeps_partitions_where_both_topics_have_as_many(mirrors, count, remarks, kept):
    source: Any = SimpleNamespace(
        lanes=SimpleNamespace(partitions=3, cluster="there"),
        cluster_id="here",
        _topics=["in"],
        _consumer=SimpleNamespace(partitions=lambda _topics: [("in", at) for at in range(count)]),
    )
    assert len(KafkaTargetSource.meet_target(source, mirrors=mirrors)) == remarks
    assert source.elsewhere == OtherCluster(b"here", b"there", mirrors, kept)


def test_a_close_drops_the_producer_of_every_lane():
    left: list[TopicPartition] = []
    lanes: Any = SimpleNamespace(_lanes={("in", 0): None, ("in", 1): None}, leave=left.extend)
    TargetTransaction.close(lanes)
    assert left == [("in", 0), ("in", 1)]

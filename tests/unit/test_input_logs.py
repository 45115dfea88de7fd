"""Which logs a checkpoint belongs to: kept next to it, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hapax.cluster.micro_batches import InputLogs, require_uncut
from hapax.core.errors import PositionLostError
from hapax.engines.spark.dataframe.checkpoint import Checkpoint
from hapax.engines.spark.dataframe.query import check_marker
from hapax.settings import load_settings
from tests.kit.managed_process import required

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hapax.cluster.micro_batches import Anchors
    from hapax.core.records import TopicPartition

KNOWN = InputLogs(
    app="a", output="out", cluster="c", topics={"in": "A"}, epochs={"in": {0: 3, 1: 5}}
)
OFFSETS = """v1
{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"8"}}
{"in":{"0":100,"1":7}}
-
{"next":2000}
{"in":{"0":90,"2":0}}"""

OWN = required(
    app="orders",
    servers="kafka:9092",
    ENGINE="spark",
    SPARK__DATAFRAME="a:b",
    SPARK__CHECKPOINT="/durable",
)


class Brokers:
    """Say what they are told to."""

    def __init__(self, now: InputLogs, cut: dict[TopicPartition, str] | None = None) -> None:
        self.now, self.told = now, cut or {}
        self.asked: list[Anchors] = []

    def look(self, topics: Iterable[str]) -> InputLogs:
        assert list(topics) == ["in"]
        return self.now

    def cut(self, anchors: Anchors) -> dict[TopicPartition, str]:
        self.asked.append(anchors)
        return {where: why for where, why in self.told.items() if where in anchors}


def logs(**changes: object) -> InputLogs:
    return InputLogs(**{name: getattr(KNOWN, name) for name in KNOWN.__struct_fields__} | changes)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text(OFFSETS)
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.keep(KNOWN)
    return checkpoint


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (logs(topics={"in": "B"}), "in: the checkpoint's offsets belong to a topic that was"),
        (logs(cluster="d", topics={}), "belong to cluster c, and the brokers are those of d"),
    ],
)
def test_another_topic_or_cluster_under_the_same_name_is_a_stop(checkpoint, now, words):
    with pytest.raises(PositionLostError, match=words) as refused:
        checkpoint.followed(Brokers(now), ["in"], 7)
    assert "docs/dataframes.md" in str(refused.value)
    assert checkpoint.logs() == KNOWN


def test_what_a_former_version_did_not_keep_or_brokers_do_not_say_is_taken_from_the_other(
    checkpoint, tmp_path
):
    assert Checkpoint(str(tmp_path / "former")).followed(Brokers(KNOWN), ["in"], 7) == KNOWN
    silent = logs(cluster=None, topics={}, epochs={"in": {0: 3}})
    assert checkpoint.followed(Brokers(silent), ["in"], 7) == KNOWN


@pytest.mark.parametrize("last", [7, 6, -1])
def test_the_same_logs_are_gone_on_with_and_leaders_that_stayed_are_asked_nothing(checkpoint, last):
    brokers = Brokers(KNOWN)
    assert checkpoint.followed(brokers, ["in"], last) == KNOWN
    assert brokers.asked == []


def test_topics_and_partitions_that_were_added_are_taken_and_none_is_forgotten(checkpoint):
    more = logs(topics={"in": "A", "new": "N"}, epochs={"in": {0: 3, 1: 5, 2: 0}, "new": {0: 0}})
    assert checkpoint.followed(Brokers(more), ["in"], 7) == more
    checkpoint.keep(more)
    assert checkpoint.followed(Brokers(KNOWN), ["in"], 7) == more


def test_a_topic_that_is_missing_at_a_commit_and_recreated_before_the_next_start_is_noticed(
    checkpoint,
):
    checkpoint.keep(checkpoint.followed(Brokers(logs(topics={}, epochs={})), ["in"], 7))
    with pytest.raises(PositionLostError, match="belong to a topic that was deleted"):
        checkpoint.followed(Brokers(logs(topics={"in": "B"})), ["in"], 7)


def test_a_new_leader_is_asked_whether_its_log_reaches_up_to_what_was_published(checkpoint):
    now = logs(epochs={"in": {0: 4, 1: 5}})
    brokers = Brokers(now, {("in", 1): "not asked"})
    assert checkpoint.followed(brokers, ["in"], 7) == now
    assert brokers.asked == [{("in", 0): (100, 3)}]
    with pytest.raises(PositionLostError, match=r"in/0: the checkpoint's offset is 100, .*cut off"):
        checkpoint.followed(Brokers(now, {("in", 0): "ends at 50"}), ["in"], 7)


def test_an_offset_and_an_epoch_of_0_are_known():
    known, now = logs(epochs={"in": {0: 0}}), logs(epochs={"in": {0: 1}})
    assert known.anchors(now, {("in", 0): 0}) == {("in", 0): (0, 0)}
    require_uncut({}, {("in", 0): 0})


def test_a_checkpoint_that_was_copied_half_is_no_guess(tmp_path):
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.logs() is None
    checkpoint.keep(KNOWN)
    assert checkpoint.logs() == KNOWN
    (tmp_path / "hapax.json").write_text("{")
    with pytest.raises(PositionLostError, match=r"hapax\.json is damaged: restore the checkpoint"):
        checkpoint.logs()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"app": "other"}, "it belongs to HAPAX_APP=other, and HAPAX_APP="),
        ({"output": "else"}, "it was at HAPAX_OUTPUT__TOPIC=else"),
        (None, "it expired while the query was stopped"),
    ],
)
def test_a_checkpoint_without_its_marker_is_told_at_the_start_with_a_reason(tmp_path, changes, why):
    own = load_settings(OWN)
    checkpoint = Checkpoint(str(tmp_path))
    if changes is not None:
        checkpoint.keep(logs(**{"app": own.app, "output": own.output.topic} | changes))
    check_marker(own, checkpoint, "q", None)  # nothing is through: the first is to come
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    check_marker(own, checkpoint, "q", None)
    (tmp_path / "commits" / "0").touch()
    check_marker(own, checkpoint, None, None)
    with pytest.raises(PositionLostError, match=why):
        check_marker(own, checkpoint, "q", None)

"""Lanes of the sink on a real broker, without Spark: killed at every commit, late, forgotten."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ResourceType

from hapax.core.errors import PositionLostError, StopError
from hapax.core.micro_batches import Marker, PublishedBatch
from hapax.engines.spark.dataframe.parts import (
    LanePlan,
    LaneReport,
    Publication,
    Publishing,
)
from hapax.kafka.produce import micro_batch
from hapax.kafka.produce.marked_transaction import MarkedTransaction
from hapax.spark import open_publisher, publish_lanes
from tests.kit import topics
from tests.kit.configs import configure
from tests.kit.sink_parts import QUERY, batch, sink_settings, spool_of, staged

TASKS, ROWS = 4, 20
LANES = 2


class Killed(BaseException):
    """A process ends here, with all it has open."""


class App:
    """An app with its spool; each publication is that of a new process."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.folder = servers, topic, folder
        self.settings = sink_settings(servers, topic)
        self.plans: list[LanePlan] = []

    def publish(self, number: int, *, lanes: int = LANES, turned: bool = False) -> PublishedBatch:
        """Publish a micro-batch; ``turned``: its tasks have the rows in another order."""
        values = [b"%d-%d" % (number, row) for row in range(ROWS)]
        tasks = [values[task::TASKS] for task in range(TASKS)]
        spool = spool_of(self.folder)
        parcels = staged(spool, number, tasks[::-1] if turned else tasks)
        with open_publisher(self.settings) as publisher:
            publishing = Publishing(publisher, self.topic, self.topic, frozenset(), self.run, lanes)
            published = Publication(publishing, batch(number), spool, parcels).publish()
        spool.clear(number)
        return published

    def run(self, plans: Sequence[LanePlan]) -> list[LaneReport]:
        self.plans = list(plans)
        return [*publish_lanes(self.settings, plans)]

    def values(self) -> list[bytes]:
        return [one.value or b"" for one in topics.read_back(self.servers, self.topic)]

    def check(self, batches: int) -> None:
        """Require each row once, each with a header of its own, in the order of its task."""
        found = topics.read_back(self.servers, self.topic)
        values = [one.value or b"" for one in found]
        wanted = [b"%d-%d" % (n, row) for n in range(batches) for row in range(ROWS)]
        assert sorted(values) == sorted(wanted)
        assert len({dict(one.headers)["hapax-batch"] for one in found}) == len(found)
        for number in range(batches):
            for task in range(TASKS):
                own = [b"%d-%d" % (number, row) for row in range(task, ROWS, TASKS)]
                assert [value for value in values if value in own] == own

    def marker(self) -> int | None:
        return topics.committed(self.servers, f"{self.topic}--sink", self.topic)[0]

    def lane_marker(self, lane: int) -> int | None:
        return topics.committed(self.servers, f"{self.topic}--sink/{lane}", self.topic)[0]

    def forget_lane(self, lane: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for future in admin.delete_consumer_groups([f"{self.topic}--sink/{lane}"]).values():
            future.result(30)


@pytest.fixture
def app(sandbox, unique, tmp_path):
    topic = unique("out")
    sandbox.create_topic(topic)
    return App(sandbox.bootstrap_servers, topic, tmp_path)


@pytest.fixture
def _a_transaction_for_each_parcel(monkeypatch):
    monkeypatch.setattr(micro_batch, "PART_OF_TIMEOUT", 1e9)


COMMITS = 1 + TASKS + 1
"""The choice of rows, each parcel, and the marker of all."""


class Killing:
    """Kills at one commit, before or after it took effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, *, after: bool) -> None:
        self.seen = 0
        commit = MarkedTransaction.commit

        def killing(marked: MarkedTransaction, *arguments: Any) -> None:
            self.seen += 1
            if self.seen == at and not after:
                raise Killed
            commit(marked, *arguments)
            if self.seen == at:
                raise Killed

        monkeypatch.setattr(MarkedTransaction, "commit", killing)


@pytest.mark.usefixtures("_a_transaction_for_each_parcel")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, COMMITS + 1))
def test_killed_at_any_commit_the_next_start_publishes_the_rest_of_the_same_rows(
    app, monkeypatch, at, *, after
):
    with monkeypatch.context() as patch:
        killing = Killing(patch, at, after=after)
        with pytest.raises(Killed):
            app.publish(0)
    assert killing.seen == at
    # The next start has the rows in other tasks, and another number of lanes: 0 is together.
    app.publish(0, lanes=at % 4, turned=True)
    assert app.marker() == 1
    app.publish(1)
    app.check(2)
    assert list(app.folder.iterdir()) == []


@pytest.mark.usefixtures("_a_transaction_for_each_parcel")
def test_without_markers_of_lanes_a_repetition_doubles(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 3, after=True)
        with pytest.raises(Killed):
            app.publish(0)
    monkeypatch.setattr(micro_batch, "published_parcels", lambda *_: 0)
    app.publish(0)
    assert len(app.values()) > len(set(app.values())) == ROWS


def test_an_attempt_that_comes_back_in_a_later_micro_batch_publishes_nothing(app):
    app.publish(0)
    late = app.plans
    app.publish(1)
    reports = [*publish_lanes(app.settings, late)]
    assert all("its marker belongs to" in report.problem for report in reports)
    app.check(2)


def test_an_attempt_that_comes_back_while_its_lane_publishes_costs_that_one_attempt(
    app, monkeypatch
):
    app.publish(0)
    late = list(app.plans)
    parcels = LanePlan.parcels

    def disturbed(plan: LanePlan) -> list[Any]:
        def giving(give: Callable[[], Any]) -> Iterator[Any]:
            yield from give()
            while late:
                with monkeypatch.context() as patch:
                    patch.setattr(LanePlan, "parcels", parcels)
                    [*publish_lanes(app.settings, [late.pop(0)])]

        return [partial(giving, give) for give in parcels(plan)]

    monkeypatch.setattr(LanePlan, "parcels", disturbed)
    assert app.publish(1).attempts == 2
    app.check(2)


def test_a_lane_whose_marker_is_gone_is_not_published(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 2, after=True)  # lane 0 has published
        with pytest.raises(Killed):
            app.publish(0)
    app.forget_lane(0)
    with pytest.raises(PositionLostError, match=r"in part \(0 of 2 .*its marker is gone"):
        app.publish(0)
    assert len(app.values()) == ROWS


def test_rows_that_were_fixed_and_are_gone_stop_it_and_say_what_is_published(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 1, after=True)
        with pytest.raises(Killed):
            app.publish(0)
    gone = min(app.folder.glob("0-3-*.arrow"))
    content = gone.read_bytes()
    gone.unlink()
    with pytest.raises(PositionLostError, match=r"2 of 2 parcels of lane 0, 0 of 2 .*is missing"):
        app.publish(0)
    (app.folder / gone.name).write_bytes(content[:-9] + b"damaged!!")
    with pytest.raises(PositionLostError, match=r"2 of 2 .*0 of 2 .*does not hold the 5 rows"):
        app.publish(0)
    (app.folder / gone.name).write_bytes(content)
    app.publish(0)
    app.check(1)


def test_a_manifest_that_is_gone_or_damaged_stops_it(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 1, after=True)
        with pytest.raises(Killed):
            app.publish(0)
    (manifest,) = app.folder.glob("*.manifest")
    content = manifest.read_bytes()
    manifest.write_bytes(content + b"x")
    with pytest.raises(PositionLostError, match="does not hold what was written"):
        app.publish(0, lanes=0)
    manifest.unlink()
    with pytest.raises(PositionLostError, match="cannot be read"):
        app.publish(0, lanes=0)
    manifest.write_bytes(content)
    app.publish(0, lanes=0)
    app.check(1)


def test_a_person_may_give_up_what_lanes_have_not_published(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 2, after=True)
        with pytest.raises(Killed):
            app.publish(0)
    held = len(app.values())
    assert 0 < held < ROWS
    with open_publisher(app.settings) as publisher:
        publisher.overwrite(Marker(1, QUERY))
    late = [*publish_lanes(app.settings, app.plans)]
    assert all(report.problem for report in late)
    assert len(app.values()) == held
    app.publish(1)
    assert len(app.values()) == held + ROWS


def test_a_refresh_keeps_markers_and_what_is_fixed(app, monkeypatch):
    with monkeypatch.context() as patch:
        Killing(patch, 2, after=True)
        with pytest.raises(Killed):
            app.publish(0)
    before = app.lane_marker(0), app.lane_marker(1)
    with open_publisher(app.settings) as publisher:
        first, second = publisher.refresh(), publisher.refresh()
    assert first == second
    assert first is not None
    assert first.fixed is not None
    assert (app.lane_marker(0), app.lane_marker(1)) == before == (2, 0)
    app.publish(0)
    app.check(1)


def test_a_record_that_the_broker_refuses_is_named_with_what_is_published(
    sandbox, unique, tmp_path
):
    topic = unique("out")
    sandbox.create_topic(topic, config={"max.message.bytes": "100"})
    app = App(sandbox.bootstrap_servers, topic, tmp_path)
    with pytest.raises(
        StopError, match=r"0 of 2 parcels of lane 0.*a record was refused.*MSG_SIZE"
    ):
        app.publish(0)
    assert app.values() == []
    admin = AdminClient({"bootstrap.servers": app.servers, "log_level": 0})
    configure(admin, ResourceType.TOPIC, [topic], {"max.message.bytes": "100000"})
    app.publish(0)
    app.check(1)

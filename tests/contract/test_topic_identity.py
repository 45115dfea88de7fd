"""Which topic a name stands for, on a real broker: what the client tells in time, and what the
group keeps beside its offsets."""

import time
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from hapax.core.errors import PositionLostError
from hapax.core.record_path import Batch
from hapax.engines.spark.plan import RangeOutcome
from hapax.kafka.consume.source import KafkaSource
from hapax.sandbox import Sandbox
from tests.kit.parts import Parts
from tests.kit.topics import Given, produce
from tests.kit.waiting import await_

TAKE_S = 60.0
OTHER = "hapax topic=another-topic-0123456A"
HASTE = '{"topic.metadata.propagation.max.ms": 1000}'
TEN = [Given(b"%d" % number, partition=0) for number in range(10)]


class Topic:
    """An input and an output of its own, and a group that reads it now and then."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self._sandbox, self.bootstrap = sandbox, sandbox.bootstrap_servers
        self.source, self.target, self.app = f"{name}-in", f"{name}-out", name
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        sandbox.create_topic(self.source)
        sandbox.create_topic(self.target)

    def parts(self, **settings: str) -> Parts:
        """Return a member of the group; another one has left before."""
        more = {"HAPAX_GROUP__MEMBERSHIP": "dynamic", "HAPAX_GROUP__SESSION_TIMEOUT": "10s"}
        return Parts(self.bootstrap, self.source, self.target, self.app, **more, **settings)

    def write(self, records: list[Given]) -> None:
        produce(self.bootstrap, self.source, *records)

    def delete(self) -> None:
        self._admin.delete_topics([self.source], operation_timeout=30)[self.source].result(30)
        await_(self._absent, 30, lambda: "still there")

    def make_again(self) -> None:
        """Delete the input and create it under the same name; the group has forgotten it."""
        before = self.id()
        self.delete()
        self._sandbox.create_topic(self.source)
        assert self.id() != before

    def id(self) -> str:
        asked = self._admin.describe_topics(TopicCollection([self.source]))
        return str(asked[self.source].result(30).topic_id).replace("+", "-").replace("/", "_")

    def beside(self) -> str:
        """Return what a commit of ours writes beside an offset."""
        cluster = self._admin.list_topics(timeout=30).cluster_id
        return f"hapax topic={self.id()} cluster={cluster}"

    def committed(self) -> tuple[int, str]:
        with self._outside() as consumer:
            (found,) = consumer.committed([TopicPartition(self.source, 0)], 30)
        return found.offset, found.metadata or ""

    def commit(self, offset: int, words: str) -> None:
        """Set the group's offset from outside; only while it has no members."""
        with self._outside() as consumer:
            place = TopicPartition(self.source, 0, offset, words)
            consumer.commit(offsets=[place], asynchronous=False)

    def _outside(self) -> closing[Consumer]:
        member = {"bootstrap.servers": self.bootstrap, "group.id": self.app, "log_level": 0}
        return closing(Consumer(member))

    def _absent(self) -> bool:
        return self.source not in self._admin.list_topics(timeout=10).topics


@pytest.fixture
def topic(sandbox, unique):
    return Topic(sandbox, unique("identity"))


def taken(source: KafkaSource, count: int = 1) -> list[Batch]:
    batches: list[Batch] = []
    until_s = time.monotonic() + TAKE_S
    while sum(len(batch.records) for batch in batches) < count:
        batches.append(source.take(100, 0.1))
        assert time.monotonic() < until_s, "no records"
    return batches


def process(parts: Parts, count: int) -> None:
    for batch in taken(parts.source, count):
        if batch.records:
            parts.process(batch)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_topics_id_stands_beside_committed_offsets(topic, protocol):
    topic.write(TEN)
    with topic.parts(HAPAX_GROUP__PROTOCOL=protocol) as parts:
        process(parts, 10)
    assert topic.committed() == (10, topic.beside())


@pytest.mark.parametrize("offset", [5, 10])
def test_an_offset_of_another_topic_is_never_read_from_even_at_the_end_of_this_one(topic, offset):
    topic.write(TEN)
    topic.commit(offset, OTHER)
    with topic.parts() as parts, pytest.raises(PositionLostError, match="belongs to a topic that"):
        taken(parts.source)
    assert topic.committed() == (offset, OTHER)


@pytest.mark.parametrize("words", ["", "an operator's note"])
def test_an_offset_without_an_id_is_accepted_and_the_next_commit_names_its_topic(topic, words):
    topic.write(TEN)
    topic.commit(5, words)
    with topic.parts() as parts:
        process(parts, 5)
    assert topic.committed() == (10, f"{topic.beside()} began=1")


def test_a_topic_that_is_deleted_is_named_and_aborts_no_process_that_takes_native_records(topic):
    pytest.importorskip("hapax_fast")
    topic.write(TEN)
    with topic.parts(HAPAX_KAFKA__PROPERTIES=HASTE, HAPAX_FAST="on") as parts:
        process(parts, 10)
        topic.delete()
        with pytest.raises(PositionLostError, match=f"{topic.source}: the input topic was deleted"):
            taken(parts.source)
        assert parts.source._consumer.intake.arrivals(list, 10, 0.1) == ([], None)


@pytest.mark.row("M1")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_record_of_a_topic_made_again_is_read_from_the_old_position(topic, protocol):
    topic.write(TEN)
    with topic.parts(HAPAX_GROUP__PROTOCOL=protocol) as parts:
        process(parts, 10)
        topic.make_again()
        topic.write([*TEN, *TEN])
        try:
            offsets = [one.offset for each in taken(parts.source, 20) for one in each.records]
        except PositionLostError as error:
            assert "next record is 10 of a topic that was deleted" in str(error)  # noqa: PT017
        else:
            # A rebalance came first, and the brokers had forgotten the group's offset.
            assert offsets == list(range(20))


# -- within a task of Spark ---------------------------------------------------------------


@pytest.fixture
def app(application):
    made = application("identity", partitions=1)
    produce(made.bootstrap, made.input, *TEN)
    return made


def test_a_task_never_reads_from_an_offset_of_another_topic(app):
    with closing(Consumer({"bootstrap.servers": app.bootstrap, "group.id": app.app})) as consumer:
        consumer.commit(offsets=[TopicPartition(app.input, 0, 5, OTHER)], asynchronous=False)
    report = app.run(app.plan(app.member()))
    assert isinstance(report.error, PositionLostError)
    assert "belongs to a topic that was deleted" in str(report.error)
    assert app.values() == []
    assert app.committed() == {0: 5}


def test_a_task_names_the_topic_of_its_offsets(app):
    report = app.run(app.plan(app.member()))
    assert report.outcome == RangeOutcome.DONE, report.error
    with closing(Consumer({"bootstrap.servers": app.bootstrap, "group.id": app.app})) as consumer:
        (found,) = consumer.committed([TopicPartition(app.input, 0)], 30)
    assert found.offset == 10
    assert str(found.metadata).startswith("hapax topic=")

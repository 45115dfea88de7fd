import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from hapax.cluster.micro_batches import FixedBatch, Marker, MicroBatch, PublishedBatch
from hapax.core.errors import PositionLostError, StopError
from hapax.core.records import Message
from hapax.kafka.produce.micro_batch import KafkaPublisher, sink_names
from hapax.settings import load_settings
from tests.kit import topics
from tests.kit.managed_process import required

Chunks = Callable[[], Iterable[Sequence[Message]]]

QUERY = "query-1"


class Lines:
    def log(self, level: int, form: str, *parts: object) -> None:
        return


class Stage(NamedTuple):
    """One app and its output topic."""

    servers: str
    topic: str

    def publisher(self, **more: str) -> KafkaPublisher:
        environ = required(app=self.topic, servers=self.servers, source="unused", target=self.topic)
        return KafkaPublisher(
            load_settings(environ | more),
            clock=time,
            forward=lambda *_: None,
            logger=Lines(),
            watch=lambda _: nullcontext(),
        )

    def values(self) -> list[bytes | None]:
        return [record.value for record in topics.read_back(self.servers, self.topic)]

    def marker(self) -> int | None:
        return topics.committed(self.servers, sink_names(self.topic).group, self.topic)[0]

    def messages(self, *values: bytes) -> list[Message]:
        return [Message(self.topic, value, None, 0, 0, []) for value in values]

    def marked(self, query: str, number: int, *values: bytes) -> Chunks:
        """Return messages as the sink writes them: each says which micro-batch it is of."""
        header = MicroBatch(query, number).header
        return lambda: [
            [
                Message(self.topic, value, None, 0, 0, [("hapax-batch", header(row, self.topic))])
                for row, value in enumerate(values)
            ]
        ]

    def chunks(self, *values: bytes) -> Chunks:
        return lambda: [self.messages(value) for value in values]


def whole(found: PublishedBatch | FixedBatch) -> PublishedBatch:
    assert isinstance(found, PublishedBatch)
    return found


@pytest.fixture
def stage(sandbox, unique):
    topic = unique("out")
    sandbox.create_topic(topic)
    return Stage(sandbox.bootstrap_servers, topic)


@pytest.fixture
def publisher(stage):
    made = stage.publisher()
    yield made
    made.close()


def test_micro_batches_come_out_whole_and_with_their_marker(stage, publisher):
    first = whole(publisher.publish(MicroBatch(QUERY, 0, "aa"), stage.chunks(b"a", b"b")))
    publisher.publish(MicroBatch(QUERY, 1, "bb"), stage.chunks(b"c"))
    publisher.publish(MicroBatch(QUERY, 2, "cc"), stage.chunks())

    assert first.records == {stage.topic: 2}
    assert stage.values() == [b"a", b"b", b"c"]
    assert stage.marker() == 3


@pytest.mark.row("SP7")
def test_an_old_checkpoint_that_is_one_behind_is_told_by_its_input(stage, publisher):
    publisher.publish(MicroBatch(QUERY, 0, "aa"), stage.chunks(b"a"))
    with pytest.raises(PositionLostError, match="old copy"):
        publisher.publish(MicroBatch(QUERY, 0, "bb"), stage.chunks(b"a", b"b"))
    assert stage.values() == [b"a"]


@pytest.mark.row("SP7")
@pytest.mark.parametrize("query", [QUERY, "query-2"])
def test_a_first_micro_batch_without_marker_stops_where_the_app_has_published_before(
    stage, publisher, query
):
    values = [b"%d" % number for number in range(300)]
    publisher.publish(MicroBatch(QUERY, 0, "aa"), stage.marked(QUERY, 0, *values))
    # What an attempt that was aborted left lies between the end and the last visible record.
    topics.produce_aborted(stage.servers, stage.topic, *values)
    topics.delete_group(stage.servers, sink_names(stage.topic).group)

    with pytest.raises(PositionLostError, match="is a record of micro-batch 0 of query query-1"):
        publisher.publish(MicroBatch(query, 0, "aa"), stage.marked(query, 0, b"again"))
    assert stage.values() == values
    assert stage.marker() is None

    publisher.overwrite(Marker(0, query))
    publisher.publish(MicroBatch(query, 0, "aa"), stage.marked(query, 0, b"on purpose"))
    assert stage.values() == [*values, b"on purpose"]


@pytest.mark.row("SP7")
def test_a_topic_that_only_rows_name_is_looked_at_as_well(sandbox, stage, publisher, unique):
    side = unique("side")
    sandbox.create_topic(side)
    header = ("hapax-batch", MicroBatch("query-0", 4).header(0, stage.topic))
    topics.produce(stage.servers, side, topics.Given(b"a", headers=(header,)))

    def chunks() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        yield [Message(side, b"b", None, 0, 0, [])]

    with pytest.raises(PositionLostError, match=f"{side}/0/0 is a record of micro-batch 4"):
        publisher.publish(MicroBatch(QUERY, 0, "aa"), chunks)
    assert stage.values() == []


def test_rows_that_cannot_be_read_leave_nothing_visible_and_no_transaction_open(stage, publisher):
    def damaged() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        raise StopError("the spool is damaged")

    with pytest.raises(StopError, match="the spool is damaged"):
        publisher.publish(MicroBatch(QUERY, 0, "aa"), damaged)
    # Behind an open transaction nobody would see this record.
    topics.produce(stage.servers, stage.topic, b"other")
    assert stage.values() == [b"other"]
    assert stage.marker() is None


@pytest.mark.row("SP8")
def test_of_two_publishers_of_one_micro_batch_one_publishes(stage):
    slow, fast = stage.publisher(), stage.publisher()
    batch = MicroBatch(QUERY, 0, "aa")

    def overtaken() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        if not stage.values():
            fast.publish(batch, stage.chunks(b"a", b"b"))
        yield stage.messages(b"b")

    late = whole(slow.publish(batch, overtaken))

    assert late.repeated
    assert late.attempts == 2
    assert stage.values() == [b"a", b"b"]
    assert stage.marker() == 1
    slow.close()
    fast.close()


@pytest.mark.row("SP8")
def test_a_publisher_that_was_overtaken_by_the_next_micro_batch_says_so(stage):
    slow, fast = stage.publisher(), stage.publisher()

    def overtaken() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        fast.publish(MicroBatch(QUERY, 0, "aa"), stage.chunks(b"a"))
        fast.publish(MicroBatch(QUERY, 1, "bb"), stage.chunks(b"b"))

    with pytest.raises(PositionLostError, match="two queries run on it"):
        slow.publish(MicroBatch(QUERY, 0, "aa"), overtaken)
    assert stage.values() == [b"a", b"b"]
    slow.close()
    fast.close()


def test_a_refresh_beside_a_publication_costs_it_one_attempt(stage, publisher):
    other = stage.publisher()
    refreshed: list[Marker | None] = []

    def beside() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        if not refreshed:
            refreshed.append(other.refresh())

    published = whole(publisher.publish(MicroBatch(QUERY, 0, "aa"), beside))

    assert refreshed == [None]
    assert published.attempts == 2
    assert stage.values() == [b"a"]
    other.close()


def test_a_record_that_the_broker_refuses_is_named(sandbox, unique):
    topic = unique("out")
    sandbox.create_topic(topic, config={"max.message.bytes": "1000"})
    stage = Stage(sandbox.bootstrap_servers, topic)
    publisher = stage.publisher()

    with pytest.raises(StopError, match="of micro-batch 0 was refused: MSG_SIZE"):
        publisher.publish(MicroBatch(QUERY, 0, "aa"), stage.chunks(b"a", b"b" * 5000, b"c"))
    assert stage.values() == []
    assert stage.marker() is None
    publisher.close()


@pytest.mark.row("SP9")
def test_a_micro_batch_longer_than_its_transaction_is_told_what_to_lower(stage):
    publisher = stage.publisher(HAPAX_TRANSACTION__TIMEOUT="1s")

    def slow() -> Iterator[list[Message]]:
        yield stage.messages(b"a")
        time.sleep(1.1)  # the transaction's own time is what is tested
        yield stage.messages(b"b")

    with pytest.raises(StopError, match="HAPAX_SPARK__BATCH_RECORDS_MAX"):
        publisher.publish(MicroBatch(QUERY, 0, "aa"), slow)
    assert stage.values() == []
    publisher.close()

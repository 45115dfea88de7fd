"""Which topic a name stands for: what the client tells, and what stands beside offsets."""

from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaError, KafkaException

from hapax.core.errors import BatchAbortedError, PositionLostError
from hapax.core.offset_commit import CommittedMetadata
from hapax.kafka.client_log import Remade, TopicIds
from hapax.kafka.consume.source import KafkaSource
from tests.kit.consumers import OUT_OF_RANGE, event, message, take

P0, P1 = ("in", 0), ("in", 1)
NONE, ONE, TWO = "A" * 22, "oneoneoneoneoneoneone1", "twotwotwotwotwotwotwo2"
EOF = KafkaError._PARTITION_EOF


def line(before: str, now: str, topic: str = "in") -> str:
    return f"[thrd:main]: Topic {topic} changed id from {before} to {now}"


def tell(kafka: KafkaSource, before: str, now: str) -> None:
    kafka._consumer.log.log(10, "%s [%s] %s", "METADATA", "client", line(before, now))


def beside(topic_id: str) -> str:
    return f"hapax topic={topic_id}"


@pytest.fixture
def known(kafka, consumer):
    tell(kafka, NONE, ONE)
    return kafka, consumer


@pytest.fixture
def ids():
    return TopicIds()


def test_an_id_is_heard_once_and_a_second_one_means_another_topic(ids):
    assert not ids.knows("in")
    for _ in range(2):
        ids.hear(line(NONE, ONE))
    ids.hear("[thrd:main]: Topic in [0] Leader 1 Epoch 0")
    assert ids.knows("in")
    assert ids.remade() == []
    ids.hear(line(ONE, TWO))
    assert ids.remade() == [Remade("in", ONE, TWO)]
    ids.hear(line(TWO, ONE))
    assert ids.remade() == []
    ids.hear(line(ONE, TWO))
    ids.accept("in")
    assert ids.remade() == []
    assert ids.offset(P0, 3).metadata == beside(TWO)
    ids.hear(line(NONE, "plus+and/slash0123456A", "other"))
    spelled = beside("plus-and_slash0123456A")  # as Kafka's own tools spell it
    assert ids.offset(("other", 0), 3).metadata == spelled


def test_brokers_without_ids_leave_offsets_bare(ids):
    ids.hear(line(ONE, NONE))
    assert not ids.knows("in")
    assert ids.offset(P0, 3).metadata is None
    assert ids.other("in", CommittedMetadata(TWO)) is None


@pytest.mark.parametrize("words", ["", "somebody's own words", "hapax1 q aa", beside(ONE)])
def test_an_offset_without_an_id_or_with_ours_is_accepted(words, ids):
    ids.hear(line(NONE, ONE))
    assert ids.other("in", CommittedMetadata.decode(words)) is None
    assert ids.other("in", CommittedMetadata(TWO)) == TWO


def test_offsets_are_committed_with_the_id_of_their_topic_which_a_new_member_learns_again(known):
    kafka, _ = known
    offset = kafka.offset(P0, 7)
    assert (offset.topic, offset.partition, offset.offset) == ("in", 0, 7)
    assert offset.metadata == beside(ONE)
    assert kafka.offset(("other", 0), 7).metadata is None
    kafka.subscribe = lambda: None  # the fake has none
    kafka.reopen()
    assert kafka.offset(P0, 7).metadata is None
    tell(kafka, NONE, TWO)
    assert kafka.offset(P0, 7).metadata == beside(TWO)


@pytest.mark.parametrize("first", [message(10), event(EOF, 10)])
def test_an_offset_of_a_topic_that_was_deleted_is_never_read_from(known, first):
    kafka, consumer = known
    consumer.offsets, consumer.words = {P0: 10}, {P0: beside(TWO)}
    with pytest.raises(PositionLostError, match=f"in/0: the offset of group app .* {TWO}"):
        take(kafka, first)


def test_the_group_is_asked_once_for_all_partitions_of_an_assignment(known):
    kafka, consumer = known
    consumer.offsets = {P0: 10, P1: 20}
    consumer.words = {P0: beside(ONE)}
    for number in range(3):
        consumer.queue = [message(10 + number), message(20 + number, partition=1)]
        assert len(kafka.take(10, 0.1).records) == 2
    assert consumer.calls.count("committed") == 1
    kafka._on_assign(consumer, consumer.assignment())  # the fake
    take(kafka, message(13))
    assert consumer.calls.count("committed") == 2


def test_a_group_that_does_not_answer_is_asked_again_and_nothing_is_handed_out_before(known):
    kafka, consumer = known
    consumer.offsets = {P0: 10}
    consumer.fail["committed"] = [KafkaException(KafkaError(KafkaError._TIMED_OUT))]
    with pytest.raises(BatchAbortedError) as caught:
        take(kafka, message(10))
    assert not caught.value.resolved
    kafka.rewind({P0: 10})
    assert [record.offset for record in take(kafka, message(10)).records] == [10]


def test_an_offset_that_vanished_while_reading_began_is_told(known):
    kafka, consumer = known
    consumer.queue = [message(10)]
    with pytest.raises(PositionLostError, match="in/0: the committed offset at which reading beg"):
        kafka.take(10, 0.1)


@pytest.mark.parametrize("attending", [True, False])
def test_a_topic_that_is_made_again_while_it_is_read_stops_the_service(known, *, attending):
    kafka, consumer = known
    consumer.offsets = {P0: 9}
    take(kafka, message(9))
    consumer.before_poll = lambda: tell(kafka, ONE, TWO)
    consumer.queue = [message(10)]
    for _ in range(2):  # it stays so
        with pytest.raises(PositionLostError, match="in/0: the next record is 10 of a topic that"):
            kafka.attend(0.0) if attending else kafka.take(10, 0.1)


GONE, DENIED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("fault", "deleted"), [(GONE, True), (DENIED, False), (None, False)])
def test_a_topic_that_is_deleted_while_it_is_read_stops_the_service(known, fault, *, deleted):
    kafka, consumer = known
    consumer.fault_of_topic = fault and KafkaError(fault)
    kafka._consumer.log.log(5, "%s", f"Topic in (id {ONE}) partition count changed from 2 to 0")
    stopped = pytest.raises(PositionLostError, match="in: the input topic was")
    for asked in (1, 1 + deleted):  # where it is still there, a broker was late
        with stopped if deleted else nullcontext():
            kafka.take(10, 0.1)
        assert consumer.calls.count("list_topics") == asked


def test_a_topic_that_was_made_again_while_it_was_away_is_placed_by_the_group(known):
    kafka, consumer = known
    consumer.before_poll = lambda: tell(kafka, ONE, TWO)
    assert take(kafka, message(10)).records == []
    assert sorted(consumer.seeks) == [("in", 0, 0), ("in", 1, 0)]
    assert kafka.offset(P0, 7).metadata == beside(TWO)


def cluster_line(cluster: str) -> str:
    return f"[thrd:main]: localhost:9092/1: ClusterId: {cluster}, ControllerId: 1"


def test_the_first_cluster_is_ours_and_another_one_is_never_forgotten(ids):
    ids.hear(cluster_line("A"))
    ids.hear(line(NONE, ONE))
    assert ids.offset(P0, 3).metadata == f"hapax topic={ONE} cluster=A"
    ids.hear(cluster_line("B"))
    ids.hear(cluster_line("A"))
    ids.forget()
    assert (ids.cluster, ids.other_cluster) == ("A", "B")


@pytest.mark.parametrize(
    "first", [message(10), event(KafkaError._AUTO_OFFSET_RESET, text=OUT_OF_RANGE)]
)
def test_an_offset_of_another_cluster_is_never_read_from(known, first):
    kafka, consumer = known
    kafka._consumer.log.topics.meet_cluster("B")
    consumer.offsets, consumer.words = {P0: 10}, {P0: f"hapax topic={TWO} cluster=A"}
    consumer.marks = (50, 100)
    with pytest.raises(PositionLostError, match=r"belongs to cluster A.*those of B.*claims adopt"):
        take(kafka, first)


@pytest.mark.parametrize("attending", [True, False])
def test_another_cluster_behind_the_same_names_stops_the_service(known, *, attending):
    kafka, consumer = known
    lines = iter(["A", "B", "B"])

    def hear() -> None:
        kafka._consumer.log.log(7, "%s [%s] %s", "METADATA", "c", cluster_line(next(lines)))

    consumer.before_poll = hear
    kafka.attend(0.0)
    for _ in range(2):
        with pytest.raises(PositionLostError, match=r"now those of cluster B.*reads cluster A"):
            kafka.attend(0.0) if attending else kafka.take(10, 0.1)


def test_a_producer_that_meets_another_cluster_is_refused(known):
    kafka, consumer = known
    consumer.cluster = "A"
    kafka.list_topics(1.0)
    assert kafka.cluster_id == "A"
    kafka.meet_cluster("A")
    with pytest.raises(PositionLostError, match="now those of cluster B"):
        kafka.meet_cluster("B")


def test_the_start_names_another_cluster_beside_the_offsets_with_the_two_ways_out(known):
    kafka, consumer = known
    consumer.cluster, consumer.offsets = "B", {P0: 10, P1: 20}
    kafka.list_topics(1.0)
    assert kafka.strangers() == []
    consumer.words = {P0: "hapax cluster=A", P1: "hapax cluster=A"}
    (told,) = kafka.strangers()
    assert "cluster B" in told
    assert "2 partitions (in/0 and others) on cluster A" in told
    assert "new HAPAX_APP" in told
    assert "hapax claims adopt" in told

"""The consumer's adapter, on messages made by hand."""

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from hapax.core.errors import BatchAbortedError, MemberFencedError, PositionLostError
from hapax.kafka.client_log import Remade
from hapax.kafka.consume.partition_state import PartitionState
from hapax.kafka.consume.positions import LATE_S
from hapax.kafka.consume.source import WAITING_MAX, KafkaSource
from hapax.kafka.undecodable import RETRY_S
from tests.kit.consumers import (
    OUT_OF_RANGE,
    TRUNCATED,
    FakeConsumer,
    Undecodable,
    event,
    message,
    metadata,
    source,
    take,
)
from tests.kit.doubles import Ticking

P0, P1 = ("in", 0), ("in", 1)
EOF, RESET = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
Patch = pytest.MonkeyPatch


def test_records_come_with_first_and_next_offset_per_partition(kafka, consumer):
    batch = take(kafka, message(3), message(5), message(1, partition=1), message(6))
    assert [(r.partition, r.offset) for r in batch.records] == [(0, 3), (0, 5), (1, 1), (0, 6)]
    assert batch.first == {P0: 3, P1: 1}
    assert batch.next == {P0: 7, P1: 2}
    assert (batch.records[0].key, batch.records[0].timestamp_ms) == (b"k", 7)
    pairs: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None)]
    consumer.queue = [Message(topic="in", partition=0, offset=7, headers=pairs, timestamp=(0, 0))]
    assert kafka.take(10, 0.1).records[0].headers == tuple(pairs)


def forgetting(self: KafkaSource, batch: object) -> object:
    self._states.clear()
    return batch


@pytest.mark.parametrize("is_control", [False, True])
def test_records_that_are_handed_out_again_are_dropped_and_counted(
    kafka, consumer, monkeypatch, is_control
):
    """As the client does in rare group starts; the control forgets its next offsets."""
    if is_control:
        monkeypatch.setattr(KafkaSource, "_finish", forgetting)
    consumer.queue = [message(n) for n in (0, 1, 2)]
    offsets = [record.offset for record in kafka.take(10, 0.1).records]
    consumer.queue = [message(n) for n in (0, 1, 2, 3)]
    offsets += [record.offset for record in kafka.take(10, 0.1).records]
    assert offsets == ([0, 1, 2, 0, 1, 2, 3] if is_control else [0, 1, 2, 3])
    assert kafka.changes().repeated == ({} if is_control else {P0: 3})


def test_after_a_rewind_the_same_records_are_no_repeats(kafka, consumer):
    first = take(kafka, message(4), message(5)).first
    kafka.rewind({**first, ("other", 9): 3})
    assert consumer.seeks == [("in", 0, 4)]
    assert len(take(kafka, message(4)).records) == 1
    assert kafka.changes().repeated == {}


def test_partitions_of_many_topics_are_asked_for_at_once(kafka, consumer):
    kafka._topics = ["in", "gone", "more"]
    assert list(kafka.told()) == [("in", 0), ("in", 1), ("more", 0), ("more", 1)]
    assert consumer.calls.count("list_topics") == 1


def test_the_end_of_a_partition_is_progress_behind_its_records(kafka, consumer):
    batch = take(kafka, message(4), event(EOF, 8), event(EOF, 3, partition=1))
    assert batch.next == {P0: 8, P1: 3}
    assert batch.first == {P0: 4}
    assert take(kafka, event(EOF, 8)).next == {P0: 8}
    consumer.queue = [event(EOF, 8), message(8), message(9)]  # before records of the same call
    assert kafka.take(10, 0.1).next == {P0: 10}


def test_records_of_a_partition_that_left_inside_the_call_are_dropped(kafka, consumer):
    consumer.queue = [message(4), message(1, partition=1), event(EOF, 5)]
    consumer.ours = [P1]
    consumer.before_poll = lambda: kafka._states.leave([P0])
    assert list(kafka.take(10, 0.1).next) == [P1]
    assert consumer.seeks == []


def test_a_partition_that_came_back_is_read_again_from_its_committed_offset(kafka, consumer):
    consumer.queue = [message(9)]
    consumer.offsets = {P0: 7}
    consumer.before_poll = lambda: kafka._states.leave([P0, P1])
    assert kafka.take(10, 0.1).records == []
    assert sorted(consumer.seeks) == [("in", 0, 7), ("in", 1, 0)]


THIS, OTHER = "hapax topic=AAAA", "hapax topic=BBBB"


def gone_back(patch: Patch, beside: str = THIS) -> tuple[KafkaSource, FakeConsumer, Ticking]:
    """Commit up to 20, and have the group answer with 7 afterwards, to a member that came again."""
    kafka, consumer, clock = source(patch)
    consumer.offsets, consumer.words = {P0: 9}, {P0: THIS}
    assert kafka.committed([P0]) == {P0: 9}
    patch.setattr(kafka._consumer.log.topics, "known", lambda _topic: "AAAA")
    kafka.mark_processed({P0: 20})
    kafka._states.leave([P0])
    consumer.offsets, consumer.words = {P0: 7}, {P0: beside}
    return kafka, consumer, clock


def test_an_offset_below_what_was_committed_is_asked_for_again(monkeypatch):
    kafka, consumer, clock = gone_back(monkeypatch)
    for _ in range(2):
        with pytest.raises(BatchAbortedError, match="offset is 7, but it was 20 before") as raised:
            kafka.committed([P0])
        assert not raised.value.resolved
        clock.now_s += LATE_S / 3
    consumer.offsets = {P0: 20}
    assert kafka.committed([P0]) == {P0: 20}
    clock.now_s += LATE_S
    consumer.offsets = {P0: 8}
    with pytest.raises(BatchAbortedError, match="offset is 8"):
        kafka.committed([P0])


def test_an_offset_that_stays_below_what_was_committed_is_lost(monkeypatch):
    kafka, _consumer, clock = gone_back(monkeypatch)
    with pytest.raises(BatchAbortedError):
        kafka.committed([P0])
    clock.now_s += LATE_S
    with pytest.raises(PositionLostError, match=r"in/0.* 7, but it was 20 before.*") as lost:
        kafka.committed([P0])
    words = [str(lost.value).find(word) for word in ("transactions list", "audit", "set in/0/20")]
    assert -1 not in words
    assert words == sorted(words)  # whoever follows it sees what is open before anything is set


def test_an_offset_that_another_program_has_moved_ahead_is_named_once(monkeypatch):
    kafka, consumer, _clock = gone_back(monkeypatch, "")
    consumer.offsets = {P0: 30}
    assert kafka.committed([P0]) == {P0: 30}
    (said,) = kafka.changes().errors
    assert "in/0: another program has moved the group's offset from 20 to 30" in said
    assert kafka.committed([P0]) == {P0: 30}
    assert kafka.changes().errors == []


def test_a_topic_that_was_recreated_after_its_partitions_had_left_is_noticed(monkeypatch):
    kafka, _consumer, _clock = gone_back(monkeypatch)
    remade = [Remade("in", "AAAA", "BBBB")]
    monkeypatch.setattr(kafka._consumer.log.topics, "remade", lambda: remade)
    with pytest.raises(PositionLostError, match="in/0: the next record is 20 of a topic that was"):
        kafka.take(10, 0.0)


@pytest.mark.parametrize("beside", ["", OTHER])
def test_an_offset_that_was_set_back_on_purpose_is_taken(monkeypatch, beside):
    """Kafka's tools write no id beside it; a topic that was made again has another one."""
    kafka, consumer, clock = gone_back(monkeypatch, beside)
    assert kafka.committed([P0]) == {P0: 7}
    clock.now_s += LATE_S
    consumer.offsets = {P0: 3}
    if beside:
        with pytest.raises(BatchAbortedError):
            kafka.committed([P0])
    else:
        assert kafka.committed([P0]) == {P0: 3}


def test_nothing_beyond_a_set_that_cannot_be_decoded_is_taken(kafka, consumer):
    """Not its records, and not the end, which would be committed."""
    broken = event(KafkaError._BAD_MSG, 4)
    batch = take(kafka, message(3), broken, message(9), event(EOF, 10), message(1, partition=1))
    assert batch.next == {P0: 4, P1: 2}
    assert kafka.stuck()[P0].offset == 4
    assert consumer.paused == {P0}
    assert take(kafka, message(9), event(EOF, 10), message(2, partition=1)).next == {P1: 3}


def test_a_stuck_partition_is_tried_again_and_goes_on_when_its_set_is_whole(kafka, consumer, clock):
    take(kafka, message(3), event(KafkaError._BAD_COMPRESSION, 4))
    clock.wait(RETRY_S + 0.1)
    assert take(kafka, event(KafkaError._BAD_COMPRESSION, 4), message(9)).records == []
    assert (consumer.seeks, consumer.paused) == ([("in", 0, 4)], {P0})
    clock.wait(RETRY_S + 0.1)
    assert [record.offset for record in take(kafka, message(4), message(9)).records] == [4, 9]
    assert (kafka.stuck(), consumer.paused) == ({}, set())


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_set_that_cannot_be_decoded_is_noted_at_every_offset(kafka, consumer, offset):
    take(kafka, event(KafkaError._BAD_COMPRESSION, offset))
    assert {where: one.offset for where, one in kafka.stuck().items()} == {P0: offset}
    assert consumer.paused == {P0}


def test_an_event_of_no_partition_holds_none(kafka, consumer):
    take(kafka, event(KafkaError._CRIT_SYS_RESOURCE))
    assert (kafka.stuck(), consumer.paused) == ({}, set())


def test_a_stuck_partition_that_comes_back_is_read_again(kafka, consumer):
    take(kafka, event(KafkaError._NOT_IMPLEMENTED, 4))
    kafka._on_revoke(consumer, [TopicPartition(*P0)])
    assert kafka.stuck() == {}
    consumer.offsets = {P0: 5}
    take(kafka, message(9))
    assert consumer.paused == set()
    assert ("in", 0, 5) in consumer.seeks


def test_a_header_name_that_is_not_utf8_marks_its_record(kafka):
    batch = take(kafka, message(0), Undecodable(message(1)), message(2))
    assert list(batch.unreadable) == [1]
    assert batch.records[1].headers == ()


def test_of_what_attend_met_no_more_is_taken_than_asked_for(kafka, consumer):
    consumer.queue = [message(0), message(1), message(2), event(EOF, 3)]
    for _ in range(4):
        kafka.attend(0.0)
    consumer.queue = [message(3)]
    taken = [kafka.take(2, 0.1) for _ in range(3)]
    assert [[record.offset for record in batch.records] for batch in taken] == [[0, 1], [2], [3]]
    assert [batch.next for batch in taken] == [{P0: 2}, {P0: 3}, {P0: 4}]


def test_attending_for_long_lets_only_so_many_records_wait(kafka, consumer):
    consumer.queue = [message(number) for number in range(WAITING_MAX)]
    for _ in range(WAITING_MAX):
        kafka.attend(0.0)
    assert not consumer.paused
    kafka.attend(0.0)
    assert consumer.paused
    consumer.queue = [message(number) for number in range(WAITING_MAX, 700)]
    taken = [record.offset for _ in range(3) for record in kafka.take(300, 0.1).records]
    assert taken == list(range(700))
    assert not consumer.paused


def test_a_few_large_records_that_wait_are_enough(kafka, consumer):
    consumer.queue = [message(number, value=b"x" * (1 << 20)) for number in range(16)]
    for _ in range(17):
        kafka.attend(0.0)
    assert consumer.paused


def test_what_attend_met_of_a_partition_that_leaves_is_dropped(kafka, consumer):
    consumer.queue = [message(0), message(0, partition=1), message(1)]
    for _ in range(3):
        kafka.attend(0.0)
    consumer.ours = [P1]
    kafka._states.leave([P0])
    taken = [kafka.take(most, 0.1).records for most in (1, 5)]
    assert [[(one.partition, one.offset) for one in records] for records in taken] == [[(1, 0)], []]


def test_a_record_that_attend_meets_waits_for_the_next_take(kafka, consumer):
    consumer.queue = [message(0), message(1)]
    kafka.attend(0.0)
    assert [record.offset for record in kafka.take(10, 0.1).records] == [0, 1]
    consumer.queue = [message(2)]
    kafka.attend(0.0)
    kafka.rewind({P0: 2})
    assert [record.offset for record in take(kafka, message(2)).records] == [2]


def test_a_call_that_fails_leaves_only_the_committed_offsets_certain(kafka, consumer):
    consumer.fail["poll"] = [TIMED_OUT]
    with pytest.raises(BatchAbortedError, match="take: _TIMED_OUT") as caught:
        kafka.take(10, 0.1)
    assert not caught.value.resolved


def test_a_partition_that_cannot_be_sought_is_taken_anew(kafka, consumer):
    consumer.fail["seek"] = [KafkaException(KafkaError(KafkaError._STATE))]
    kafka.rewind({P0: 2})
    assert consumer.calls[-2:] == ["incremental_unassign", "incremental_assign"]


@pytest.mark.parametrize(
    ("start", "offsets", "to"),
    [("earliest", {}, 10), ("latest", {}, 100), ("latest", {P1: 3}, 100), ("refuse", {P0: 50}, 50)],
)
def test_a_position_that_is_missing_starts_where_it_should(monkeypatch, start, offsets, to):
    kafka, consumer, _ = source(monkeypatch, start=start)
    consumer.marks, consumer.offsets, consumer.ours = (10, 100), offsets, [P0]
    take(kafka, event(RESET))
    assert consumer.seeks == [("in", 0, to)]
    assert kafka.processed().get(P0, offsets.get(P0)) == to


def test_latest_begins_all_partitions_at_once_whoever_owns_them(monkeypatch):
    kafka, consumer, _ = source(monkeypatch, start="latest")
    consumer.marks, consumer.ours = (10, 100), [P0]
    take(kafka, event(RESET))
    assert consumer.offsets == {P0: 100, P1: 100}
    assert set(consumer.words.values()) == {"hapax began=2"}
    assert consumer.seeks == [("in", 0, 100)]


def test_where_latest_begins_is_said_once_although_partitions_are_told_one_by_one(monkeypatch):
    kafka, consumer, _ = source(monkeypatch, start="latest")
    consumer.marks = (10, 100)
    take(kafka, event(RESET), event(RESET, partition=1))
    consumer.marks = (10, 200)
    take(kafka, event(RESET, partition=1))
    assert consumer.calls.count("commit") == 1
    assert set(consumer.seeks) == {("in", 0, 100), ("in", 1, 100)}


def test_a_second_member_waits_until_the_group_has_begun(monkeypatch):
    kafka, consumer, _ = source(monkeypatch, start="latest")
    consumer.marks, consumer.ours = (0, 100), [P1]
    take(kafka, event(RESET, partition=1))
    kafka.take(10, 0.1)
    assert (consumer.seeks, consumer.offsets) == ([], {})
    consumer.offsets, consumer.words = {P0: 100, P1: 90}, {P0: "hapax began=2"}
    kafka.take(10, 0.1)
    assert consumer.seeks == [("in", 1, 90)]


@pytest.mark.parametrize(
    ("beside", "to"),
    [
        *(("hapax began=1", 10), ("hapax began=2", 100), ("hapax topic=t", 10)),
        *(("", 100), ("of another tool", 100)),  # start decides for what another client has left
    ],
)
def test_a_partition_added_after_latest_began_is_read_whole_and_start_decides_for_what_others_left(
    monkeypatch, beside, to
):
    kafka, consumer, _ = source(monkeypatch, start="latest")
    consumer.marks, consumer.ours = (10, 100), [P1]
    consumer.offsets, consumer.words = {P0: 50}, {P0: beside}
    take(kafka, event(RESET, partition=1))
    assert consumer.seeks == [("in", 1, to)]
    assert consumer.offsets == {P0: 50, P1: to}
    assert "hapax" in beside or consumer.words[P1] == "hapax began=2"


def test_a_group_that_is_taken_over_says_so_with_its_first_progress(monkeypatch):
    """From then on its other partitions would pass for ones that were added."""
    kafka, consumer, _ = source(monkeypatch, start="latest")
    kafka._consumer.log.topics.meet_cluster("here")
    consumer.ours, consumer.offsets = [P0], {P0: 4}
    progress = take(kafka, message(4)).next
    (offset,) = kafka.offset_commit(progress).offsets
    assert offset.metadata == "hapax cluster=here began=2"
    consumer.words[P0], consumer.offsets[P0] = offset.metadata, 5
    again, consumer.marks = event(RESET, partition=1), (10, 100)
    consumer.ours, consumer.queue = [P0, P1], [again]
    kafka.take(10, 0.1)
    assert consumer.seeks == [("in", 1, 100)]


@pytest.mark.parametrize(
    ("start", "offsets", "asked", "committed"),
    [
        ("earliest", {}, 1, {0, 1, 2}),
        ("latest", {}, 1, {0, 1, 2}),
        ("earliest", {P0: 101, P1: 101}, 2, {1}),  # which fell off their logs
    ],
)
def test_partitions_of_a_start_are_looked_up_at_once(monkeypatch, start, offsets, asked, committed):
    kafka, consumer, _ = source(monkeypatch, start=start)
    consumer.offsets, consumer.marks = offsets, (10, 100) if offsets else consumer.marks
    take(kafka, event(RESET), event(RESET, partition=1))
    assert consumer.calls.count("offsets_for_times") == asked
    assert consumer.calls.count("committed") in committed
    assert offsets or len(consumer.seeks) == 2


def test_a_beginning_that_may_have_been_committed_twice_costs_the_member(monkeypatch):
    kafka, _, _ = source(monkeypatch, start="latest")
    take(kafka, event(RESET))
    kafka._consumer.log.log(3, "%s [%s] %s", "FAIL", "client", "Disconnected")
    with pytest.raises(MemberFencedError, match="the group's beginning was committed") as caught:
        take(kafka, message(100))
    assert caught.value.explained


@pytest.mark.parametrize(("text", "known"), [("", False), ("hapax cluster=one", True)])
def test_a_group_is_known_by_any_of_its_offsets_that_hapax_has_committed(
    kafka, consumer, text, *, known
):
    assert kafka.group_knows() is False
    consumer.offsets, consumer.words = {P1: 0}, {P1: text}
    assert kafka.group_knows() is known


def test_by_the_consumer_protocol_a_member_without_a_partition_is_assigned_none(kafka, consumer):
    kafka._consumer.properties["group.protocol"] = "consumer"
    consumer.metadata = metadata(0, "member-1")  # its name is its own, before it has joined
    assert kafka.changes().assigned is None
    consumer.metadata = metadata(1, "member-1")
    assert [kafka.changes().assigned, kafka.changes().assigned] == [[], None]


@pytest.mark.parametrize(
    ("start", "offsets", "said"),
    [
        ("refuse", {}, "HAPAX_INPUT__START"),
        ("earliest", {P0: 9}, "the next record is 9, but the log now holds"),
    ],
)
def test_a_position_that_is_missing_or_fell_off_the_log_may_stop_the_service(
    monkeypatch, start, offsets, said
):
    kafka, consumer, _ = source(monkeypatch, start=start)
    consumer.marks, consumer.offsets = (10, 100), offsets
    with pytest.raises(PositionLostError, match=said):
        take(kafka, event(RESET))


def test_a_position_behind_the_end_is_borne_for_the_time_of_an_election(kafka, consumer, clock):
    consumer.offsets = {P0: 101}
    take(kafka, event(RESET))
    clock.wait(11.0)
    with pytest.raises(PositionLostError):
        take(kafka, event(RESET))


def test_each_election_has_its_own_time(kafka, consumer, clock):
    consumer.offsets, consumer.epochs = {P0: 101}, {P0: 3}
    take(kafka, event(RESET, text=OUT_OF_RANGE))
    consumer.marks = (0, 200)
    take(kafka, message(101, epoch=4))
    clock.wait(3600.0)
    take(kafka, event(RESET, text=OUT_OF_RANGE))


# -- a log that was cut below the position, and has grown again ------------------------------


@pytest.mark.parametrize(
    ("before", "text", "said"),
    [
        ([message(20), message(21)], TRUNCATED, r"next record is 22.*cut off at 10.*10 to 21"),
        ([], OUT_OF_RANGE, r"next record is 20.*was cut off"),  # the end grew again meanwhile
    ],
)
def test_a_log_that_was_cut_off_stops_the_service_and_says_what_is_missing(
    kafka, consumer, before, text, said
):
    consumer.ours, consumer.offsets = [P0], {P0: 20}
    if before:
        consumer.queue = before
        kafka.take(10, 0.1)
    consumer.queue, consumer.marks = [event(RESET, text=text)], (0, 35)
    with pytest.raises(PositionLostError, match=f"in/0: the {said}"):
        kafka.take(10, 0.1)


def test_records_that_follow_an_end_below_the_position_are_those_of_another_log(kafka, consumer):
    consumer.ours, consumer.offsets = [P0], {P0: 20}
    consumer.queue, consumer.marks = [event(RESET, text=OUT_OF_RANGE)], (0, 10)
    kafka.take(10, 0.1)
    consumer.queue, consumer.marks = [message(20)], (0, 35)
    with pytest.raises(PositionLostError, match=r"next record is 20.*cut off at 10.*10 to 19"):
        kafka.take(10, 0.1)


def test_with_an_epoch_the_client_decides_whether_the_log_was_cut(kafka, consumer):
    consumer.ours, consumer.offsets, consumer.epochs = [P0], {P0: 20}, {P0: 3}
    consumer.queue, consumer.marks = [event(RESET, text=OUT_OF_RANGE)], (0, 10)
    kafka.take(10, 0.1)
    assert (consumer.seeks, consumer.sought) == ([("in", 0, 20)], [3])
    consumer.queue, consumer.marks = [message(20, epoch=4)], (0, 35)
    assert len(kafka.take(10, 0.1).records) == 1


def test_offsets_are_committed_with_the_epoch_of_the_last_record(kafka):
    take(kafka, message(4, epoch=3), message(5, epoch=4), message(0, partition=1))
    assert kafka.offset(P0, 6).leader_epoch == 4
    assert kafka.offset(P0, 5).leader_epoch == 4
    assert kafka.offset(P1, 1).leader_epoch is None


def test_an_end_beyond_the_last_record_has_the_epoch_of_the_leader_or_none(kafka):
    """The markers before it may be of a later leader than the last record."""
    take(kafka, message(4, epoch=3), event(EOF, 9))
    assert kafka.offset(P0, 9).leader_epoch is None
    kafka._consumer.log.log(7, "%s [%s] %s", "M", "c", "[thrd:main]: Topic in [0] Leader 2 Epoch 5")
    take(kafka, event(EOF, 11))
    assert kafka.offset(P0, 11).leader_epoch == 5


def test_a_rewind_names_the_epoch_so_that_the_client_looks_for_a_cut(kafka, consumer):
    kafka.rewind(take(kafka, message(4, epoch=3), message(5, epoch=3)).first)
    assert (consumer.seeks, consumer.sought) == ([("in", 0, 4)], [3])


@pytest.mark.parametrize(
    ("epochs", "first", "again"),
    [
        ({P0: 3}, message(20, epoch=3), False),
        ({P0: 3}, message(20, epoch=4), True),
        ({P0: 3}, event(EOF, 20), True),
        ({}, message(20, epoch=4), False),  # without one it proves nothing and costs nothing
    ],
)
def test_the_log_behind_a_committed_offset_is_proven_before_a_record_is_handed_out(
    kafka, consumer, epochs, first, *, again
):
    kafka._consumer.log.topics.meet_cluster("here")
    consumer.offsets, consumer.epochs = {P0: 20, P1: 0}, epochs
    batch = take(kafka, first, message(0, partition=1))
    assert (P0 not in batch.next) is again
    assert [record.partition for record in batch.records][-1] == 1
    assert consumer.seeks == ([("in", 0, 20)] if again else [])
    assert consumer.sought == ([3] if again else [])
    assert len(take(kafka, message(20, epoch=4)).records) == (1 if again else 0)


@pytest.mark.parametrize(("epoch", "again"), [(3, False), (4, True)])
def test_where_the_client_reads_on_without_a_look_the_first_record_proves_the_log(
    kafka, consumer, epoch, *, again
):
    """A seek is refused where fetching has ended, and an assignment is not validated."""
    kafka._consumer.log.topics.meet_cluster("here")
    consumer.ours, consumer.offsets, consumer.epochs = [P0], {P0: 19}, {P0: 3}
    take(kafka, message(19, epoch=3))
    consumer.fail["seek"] = [KafkaException(KafkaError(KafkaError._STATE))]
    kafka.rewind({P0: 20})
    assert consumer.sought == []
    assert len(take(kafka, message(20, epoch=epoch)).records) == (0 if again else 1)
    assert (consumer.seeks, consumer.sought) == (([("in", 0, 20)], [3]) if again else ([], []))
    assert len(take(kafka, message(20, epoch=epoch)).records) == (1 if again else 0)


def test_a_missing_position_is_asked_for_again_when_the_group_gave_no_answer(kafka, consumer):
    consumer.queue = [event(RESET)]
    consumer.fail["committed"] = [TIMED_OUT]
    with pytest.raises(BatchAbortedError):
        kafka.take(10, 0.1)
    kafka.rewind(kafka.processed())
    kafka.take(10, 0.1)
    kafka.attend(0.0)
    assert consumer.seeks == [("in", 0, 0)]


def test_a_coordinator_that_loads_is_no_warning_until_it_lasts(kafka, consumer, clock):
    told: list[tuple[int, int]] = []
    for _ in range(8):
        consumer.queue = [event(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)]
        kafka.attend()
        changes = kafka.changes()
        told.append((len(changes.passing), len(changes.errors)))
        clock.wait(1.0)
    assert told == [(1, 0)] * 5 + [(0, 1)] * 3
    clock.wait(60.0)
    consumer.queue = [event(KafkaError.NOT_COORDINATOR), event(KafkaError._TRANSPORT)]
    kafka.attend()
    kafka.attend()
    changes = kafka.changes()
    assert (len(changes.passing), len(changes.errors)) == (1, 1)


@pytest.mark.parametrize(("epoch", "learned"), [(None, None), (-1, None), (0, 0), (3, 3)])
def test_the_first_epoch_of_a_topic_is_one(epoch, learned):
    state = PartitionState()
    state.learn_epoch(epoch, 5)
    assert state.epoch == learned

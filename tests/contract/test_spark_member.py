"""The driver's membership on a real broker: it holds partitions, fetches nothing, and is lent."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from hapax.kafka.consume.spark_sources import KafkaMember
from tests.kit.spark_ranges import Application
from tests.kit.topics import Given, produce, produce_open, transaction
from tests.kit.waiting import await_


@pytest.fixture(params=["classic", "consumer"])
def app(request, application):
    return application("member", HAPAX_GROUP__PROTOCOL=request.param)


def write(app: Application, count: int) -> None:
    for partition in range(2):
        values = (Given(b"%d" % number, partition=partition) for number in range(count))
        produce(app.bootstrap, app.input, *values)


def lend(app: Application, metadata: bytes, progress: dict[tuple[str, int], int]) -> int | None:
    """Commit with somebody's metadata, as a task does; return the code of a refusal."""
    offsets = [TopicPartition(*where, offset) for where, offset in progress.items()]
    with transaction(app.bootstrap) as producer:
        try:
            producer.send_offsets_to_transaction(offsets, metadata, 30)
        except KafkaException as error:
            producer.abort_transaction(30)
            return int(error.args[0].code())
        producer.commit_transaction(30)
        return None


def goes_on_fetching(app: Application, member: KafkaMember) -> bool:
    """Whether the client learns of records that are written now.

    Assigning and pausing are two calls, between which a fetch may slip out (once in some dozens of
    runs); brokers hold one for half a second.
    """
    attend(member, 1.0)
    before = ends_known(member)
    write(app, 1)
    attend(member, 1.0)
    return ends_known(member) != before


def ends_known(member: KafkaMember) -> dict[tuple[str, int], int]:
    """Return the high watermarks that fetches have brought; negative: none."""
    client = member._consumer.client
    return {
        where: client.get_watermark_offsets(TopicPartition(*where), cached=True)[1]
        for where in member.assignment()
    }


def attend(member: KafkaMember, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        member.attend(0.05)


def test_a_member_holds_its_partitions_without_fetching_anything(app):
    write(app, 3)
    member = app.member()
    assert member.changes().assigned is not None
    assert not goes_on_fetching(app, member)
    member.pause("operator")
    member.resume("operator")
    assert not goes_on_fetching(app, member), "a pause that ends is not that of a member"
    assert member.take(100, 0.0).records == []
    assert member.changes().errors == []


def test_without_the_pause_the_client_fetches_what_nobody_takes(app, monkeypatch):
    """The control of the test above."""
    paused = KafkaMember._on_assign

    def resumed(self: KafkaMember, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        paused(self, consumer, partitions)
        consumer.resume(partitions)

    monkeypatch.setattr(KafkaMember, "_on_assign", resumed)
    write(app, 3)
    assert goes_on_fetching(app, app.member())


def test_lent_metadata_commits_in_the_name_of_the_member(app):
    write(app, 3)
    member = app.member()
    assert lend(app, member.member(), {app.partitions[0]: 2}) is None
    assert app.committed() == {0: 2, 1: None}
    assert member.committed(app.partitions) == {app.partitions[0]: 2, app.partitions[1]: None}


def test_metadata_from_before_a_partition_went_and_came_back_is_refused(app):
    write(app, 3)
    first = app.member()
    before = first.member()
    second = app.member(count=1)
    (moved,) = second.assignment()
    app.leave(second)
    app.settle(newest=2)
    assert moved in (first.changes().assigned or [])
    assert not goes_on_fetching(app, first)
    assert lend(app, before, {moved: 1}) == KafkaError.ILLEGAL_GENERATION
    assert lend(app, first.member(), {moved: 2}) is None


# -- where the protocol of the group has no part --------------------------------------------


@pytest.fixture
def classic(application):
    return application("ends")


def test_a_stable_end_lies_before_the_first_open_transaction(classic):
    write(classic, 3)
    member = classic.member()
    first, second = classic.partitions
    with produce_open(classic.bootstrap, classic.input, Given(b"open", partition=0)) as producer:
        write(classic, 1)
        assert member.stable_ends([first, second]) == {first: 3, second: 4}
        producer.commit_transaction(30)
        await_(
            lambda: member.stable_ends([first]) == {first: 6},
            10,
            lambda: f"ends: {member.stable_ends([first])}",
        )


def test_nobody_is_asked_for_the_ends_of_nothing(classic):
    assert classic.member().stable_ends([]) == {}

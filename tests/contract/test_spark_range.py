"""The source of a task on a real broker: placed where the driver says, confirmed by the group."""

from typing import Any

import pytest

from hapax.core.errors import BatchAbortedError, PositionLostError, StopError
from hapax.kafka.consume.spark_sources import KafkaRange
from tests.kit.consumers import metadata
from tests.kit.spark_ranges import Application, taken
from tests.kit.topics import Given, produce

LIVE = metadata(3, "member-1")


@pytest.fixture
def app(application):
    return application("range")


def write(app: Application, count: int, partition: int = 0) -> None:
    values = (Given(b"%d" % number, partition=partition) for number in range(count))
    produce(app.bootstrap, app.input, *values)


def placed(app: Application, starts: Any, start: str = "earliest") -> KafkaRange:
    source = app.range(starts, LIVE, start)
    source.place()
    return source


def confirmed(app: Application, starts: Any, start: str = "earliest") -> KafkaRange:
    source = placed(app, starts, start)
    source.confirm()
    return source


def test_a_range_reads_from_where_it_was_placed_and_confirmed(app):
    write(app, 5)
    write(app, 3, partition=1)
    first, second = app.partitions
    app.commit({first: 2, second: 1})
    source = placed(app, {first: 2, second: 1})
    assert source.confirm() == {first: 2, second: 1}
    assert source.assignment() == {first, second}
    found = sorted((record.partition, record.value) for record in taken(source, 5))
    assert found == [(0, b"2"), (0, b"3"), (0, b"4"), (1, b"1"), (1, b"2")]
    assert source.positions() == {first: 5, second: 3}
    assert source.processed() == {first: 2, second: 1}


def test_what_an_earlier_attempt_came_to_is_skipped_also_when_it_was_fetched(app):
    write(app, 5)
    first = app.partitions[0]
    app.commit({first: 1})
    source = placed(app, {first: 1})
    assert taken(source, 4)[0].offset == 1
    app.commit({first: 3})
    assert source.confirm() == {first: 3}
    assert [record.offset for record in taken(source, 2)] == [3, 4]
    assert source.processed() == {first: 3}


def test_an_earlier_attempt_that_was_the_first_to_commit_is_found(app):
    write(app, 5)
    first = app.partitions[0]
    source = placed(app, {first: None})
    app.commit({first: 4})
    assert source.confirm() == {first: 4}
    assert [record.offset for record in taken(source, 1)] == [4]


@pytest.mark.row("SP12")
@pytest.mark.parametrize("now", [None, 2])
def test_offsets_that_were_set_back_or_deleted_are_refused(app, now):
    write(app, 5)
    first = app.partitions[0]
    if now is not None:
        app.commit({first: now})
    source = placed(app, {first: 3})
    told = f"3 was committed, .* now has {now}: .* its offsets were set back or deleted"
    with pytest.raises(PositionLostError, match=told):
        source.confirm()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_partition_without_an_offset_is_read_from_its_first_record_for_the_driver_has_begun(
    app, start
):
    write(app, 3)
    source = placed(app, {app.partitions[0]: None}, start)
    assert source.confirm() == {}
    write(app, 2)
    assert [record.offset for record in taken(source, 5)] == [0, 1, 2, 3, 4]


def test_a_group_without_offsets_is_refused_where_that_was_asked_for(app):
    write(app, 3)
    source = confirmed(app, {app.partitions[0]: None}, "refuse")
    with pytest.raises(PositionLostError, match="HAPAX_INPUT__START=refuse"):
        taken(source, 1)


def test_a_range_over_deleted_records_begins_where_the_log_begins_now(app, sandbox):
    write(app, 5)
    first = app.partitions[0]
    sandbox.delete_records(app.input, 0, 4)
    source = confirmed(app, {first: None})
    assert [record.offset for record in taken(source, 1)] == [4]


@pytest.mark.row("SP13")
def test_a_committed_offset_that_fell_off_the_log_stops_the_service(app, sandbox):
    write(app, 5)
    first = app.partitions[0]
    app.commit({first: 1})
    sandbox.delete_records(app.input, 0, 4)
    source = confirmed(app, {first: 1})
    with pytest.raises(PositionLostError, match="the log now holds 4 to 5"):
        taken(source, 1)


def test_the_members_metadata_is_handed_on_as_it_is_and_only_of_a_live_one(app):
    assert app.range({}, LIVE).member() == LIVE
    for dead in (metadata(-1, "member-1"), metadata(3, "")):
        with pytest.raises(BatchAbortedError, match="no live member"):
            app.range({}, dead).member()


def test_a_range_is_no_member_of_the_group(app):
    write(app, 2)
    first, second = app.partitions
    source = confirmed(app, {first: None, second: None})
    taken(source, 2)
    assert app.member().assignment() == {first, second}
    assert source.adopt_orphans() == []
    with pytest.raises(StopError, match="no member"):
        source.reopen()

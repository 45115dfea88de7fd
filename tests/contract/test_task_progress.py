"""How far tasks are that have not reported yet: the group's word, without waiting for anybody."""

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from hapax.cluster.lag import GroupProgress
from hapax.kafka.read.lag_probe import TaskProgress
from tests.kit.spark_ranges import Application
from tests.kit.topics import Given, produce, transaction


@pytest.fixture
def app(application):
    return application("progress")


def told(app: Application, *offsets: int) -> Callable[[], GroupProgress]:
    return lambda: GroupProgress(dict(zip(app.partitions, offsets, strict=False)))


def test_what_tasks_have_committed_counts_before_they_report_and_nothing_is_taken_back(app):
    first, second = app.partitions
    away = app.with_settings(HAPAX_KAFKA__BOOTSTRAP_SERVERS="127.0.0.1:1")
    assert TaskProgress(away, told(app, 5))().committed == {first: 5}, "without an answer"
    app.commit({first: 3})
    assert TaskProgress(app.settings, told(app, 5, 4))().committed == {first: 5, second: 4}
    app.commit({first: 7, second: 4})
    assert TaskProgress(app.settings, told(app, 5, 4))().committed == {first: 7, second: 4}
    assert TaskProgress(app.settings, told(app, 5))().committed == {first: 7}, "others are not ours"


def test_a_transaction_under_way_is_not_waited_for(app: Application) -> None:
    produce(app.bootstrap, app.input, Given(b"a", partition=0))
    member = app.member()
    app.run(app.plan(member))
    first, _second = app.partitions
    with transaction(app.bootstrap, app.lane) as producer:
        producer.send_offsets_to_transaction([TopicPartition(*first, 9)], member.member(), 30)
        assert TaskProgress(app.settings, told(app, 0))().committed == {first: 1}
        producer.abort_transaction(30)

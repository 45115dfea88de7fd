"""Feeder, service, live reader and judge together on a real broker."""

from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.fault.checking import reading
from tests.fault.checking.checker import check
from tests.fault.checking.judge import Topics, judge, read_back
from tests.fault.checking.judge_open import open_transactions
from tests.fault.feeding.feed import Feeder
from tests.fault.feeding.ledger import Ledger
from tests.fault.results import VIOLATIONS
from tests.fault.watching.live import LiveHistory, LiveReader
from tests.kit.managed_process import WorkerProcess
from tests.kit.topics import lag, transaction
from tests.kit.waiting import await_

PARTITIONS = 4
RECORDS = 4000


@dataclass
class Played:
    """A run that is over."""

    topics: Topics
    ledger: Ledger
    live: LiveHistory


@pytest.fixture
def played(sandbox, tmp_path, unique):
    app = unique("checked")
    topics = Topics.create(sandbox, app, PARTITIONS, headers=True)
    environment = topics.environment(
        **sandbox.environment(), HAPAX_TRANSFORM="tests.fault.business:split"
    )
    worker = WorkerProcess(environment, "w-1", tmp_path / "w-1.log")
    where = (sandbox.bootstrap_servers,)
    feeder = Feeder(
        *where, topics.source, tmp_path, run=app, partitions=PARTITIONS, rate=5000, seed=1
    )
    outputs = [*topics.outputs, topics.dead]
    reader = LiveReader(*where, outputs, tmp_path, source=topics.source, partitions=PARTITIONS)
    try:
        yield _play(topics, worker, feeder, reader)
    finally:
        for one in (worker, feeder, reader):
            one.close()


def _play(topics: Topics, worker: WorkerProcess, feeder: Feeder, reader: LiveReader) -> Played:
    """Feed while the worker is killed, so that there is something to hide; end in order."""
    reader.start()
    worker.start()
    feeder.start()
    await_(lambda: reader.done > 0, 60, lambda: f"no output: {worker.text()}")
    for _ in range(2):
        seen = reader.done
        worker.kill()
        worker.start()
        await_(lambda seen=seen: reader.done > seen, 60, worker.text)  # type: ignore[misc]
    await_(lambda: feeder.written > RECORDS, 60, lambda: f"written {feeder.written}")
    ledger = feeder.stop()
    left = partial(lag, topics.bootstrap, topics.app, topics.source)
    await_(lambda: left() == 0, 60, lambda: f"lag {left()}")
    assert worker.terminate() == 0
    return Played(topics, ledger, reader.stop())


def test_the_service_is_clean_and_one_output_written_twice_is_caught(played):
    topics, ledger, live = played.topics, played.ledger, played.live
    history = read_back(topics, ledger, live)
    assert len(history.aborted) >= ledger.hidden > 0
    assert {name.partition("/")[0] for name in history.whos} == {"w-1", ""}
    judgement = check(history)
    assert judgement.violations == dict.fromkeys(VIOLATIONS, 0), judgement.examples
    counts = judgement.counts
    assert counts.distinct > RECORDS * 0.9
    assert min(counts.duplicates, counts.filtered, counts.dead_letters, counts.hidden_in) > 0
    assert judgement.consume_counts.keys() == {1}
    assert live.complete
    assert len(live.seen) == counts.outputs + counts.dead_letters
    assert all(live.first_seen_s(0))

    again = _any_output(topics)
    _write(topics, again)
    judgement = judge(topics, ledger, live)
    assert judgement.anomalies.keys() == {"duplicate"}
    assert judgement.violations["duplicate"] == 1
    source = dict(again.headers() or ())["hapax-source"]
    assert isinstance(source, bytes)
    assert source.decode() in judgement.examples["duplicate"][0]
    assert "w-1/" in judgement.examples["duplicate"][0]


def test_an_open_transaction_is_named_for_as_long_as_it_is_open(sandbox, unique):
    topic, other, name = unique("out"), unique("out"), unique("w")
    for one in (topic, other):
        sandbox.create_topic(one)
    bootstrap = sandbox.bootstrap_servers
    with transaction(bootstrap, name) as producer:
        producer.produce(topic, b"1")
        assert producer.flush(30) == 0
        assert open_transactions(bootstrap, [topic], "feeder") == [f"{name}: ongoing"]
        assert open_transactions(bootstrap, [other], "feeder") == []
        assert open_transactions(bootstrap, [topic], name) == []
        (end,) = reading.ends(bootstrap, topic)
        assert end.stable < end.high
        producer.abort_transaction(30)
    await_(
        lambda: not open_transactions(bootstrap, [topic], "feeder"), 30, lambda: "it is still open"
    )
    (end,) = reading.ends(bootstrap, topic)
    assert end.stable == end.high


def _any_output(topics: Topics) -> Message:
    consumer = Consumer(
        {"bootstrap.servers": topics.bootstrap, "group.id": "any", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topics.outputs[0], 0, 0)])
        message = consumer.poll(30)
    finally:
        consumer.close()
    assert message is not None
    assert message.error() is None
    return message


def _write(topics: Topics, message: Message) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(
        topics.outputs[0],
        message.value(),
        message.key(),
        message.partition() or 0,
        headers=message.headers(),
    )
    assert producer.flush(30) == 0

"""``hapax.publish.Publisher`` on a real broker: killed, copied, restored, left alone."""

import asyncio
import shutil
import threading
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from hapax.core.ports import Message
from hapax.publish import Publisher, Receipt, SpoolDisagreesError, SpoolMovedError, SpoolOwnedError
from tests.kit import topics
from tests.kit.sink_parts import sink_settings


class Stage(NamedTuple):
    """An app, its topic of one partition, and the folder of its spool."""

    servers: str
    topic: str
    folder: Path

    def publisher(self, folder: Path | None = None, **more: object) -> Publisher:
        settings = sink_settings(self.servers, self.topic)
        return Publisher(folder or self.folder, settings, **more)  # type: ignore[arg-type]

    def values(self) -> list[bytes | None]:
        return [record.value for record in topics.read_back(self.servers, self.topic)]

    def messages(self, *values: bytes) -> list[Message]:
        return [Message(self.topic, value, None, -1, 0, []) for value in values]


@pytest.fixture
def stage(sandbox, tmp_path):
    stage = Stage(sandbox.bootstrap_servers, f"spool-{uuid.uuid4().hex[:8]}", tmp_path / "spool")
    sandbox.create_topic(stage.topic)
    return stage


def test_records_reach_kafka_once_in_order_each_with_its_receipt(stage):
    values = [b"%d" % number for number in range(200)]
    told: list[Receipt] = []
    with stage.publisher() as publisher:
        one = publisher.publish(
            stage.topic, values[0], key=b"k", message_id="mine", callback=told.append
        )
        receipts = publisher.publish_many(stage.messages(*values[1:]), position=b"line 200")
        assert publisher.position == b"line 200"
        places = [receipt.future.result(30) for receipt in [one, *receipts]]
        assert publisher.flush(30)
        assert publisher.waiting == 0
        told_of = {
            sample.name: sample.value
            for metric in publisher.metrics.collect()
            for sample in metric.samples
        }
    assert told_of["hapax_spool_records_accepted_total"] == 200
    assert told_of["hapax_spool_records_published_total"] == 200
    assert told_of["hapax_spool_records_waiting"] == told_of["hapax_spool_waiting_seconds"] == 0
    assert told_of["hapax_spool_full"] == 0
    assert 0 < told_of["hapax_spool_sync_seconds_sum"] < 60
    assert told_of["hapax_spool_bytes"] > 1000
    found = topics.read_back(stage.servers, stage.topic)
    assert [record.value for record in found] == values
    assert [place.offset for place in places] == [record.offset for record in found]
    assert [receipt.sequence for receipt in [one, *receipts]] == list(range(1, 201))
    ids = [dict(record.headers)["message-id"] for record in found]
    assert ids == [receipt.message_id.encode() for receipt in [one, *receipts]]
    assert ids[0] == b"mine"
    assert [receipt.message_id for receipt in told] == ["mine"]


def test_what_was_accepted_without_brokers_is_published_by_the_next_process(stage, monkeypatch):
    monkeypatch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
    away = sink_settings("127.0.0.1:1", stage.topic)
    publisher = Publisher(stage.folder, away)
    publisher.publish_many(stage.messages(b"a", b"b"), position=b"2")
    assert publisher.waiting == 2
    publisher.close(timeout_s=0)
    with stage.publisher() as publisher:
        assert publisher.position == b"2"
        publisher.publish_many(stage.messages(b"c"))
    assert stage.values() == [b"a", b"b", b"c"]


def test_threads_and_coroutines_share_a_publisher(stage):
    def some(publisher: Publisher, name: int) -> None:
        for number in range(20):
            publisher.publish(stage.topic, b"%d-%d" % (name, number))

    async def others(publisher: Publisher) -> None:
        async def one(name: int) -> None:
            for number in range(20):
                await publisher.publish_async(stage.topic, b"%d-%d" % (name, number))

        await asyncio.gather(*map(one, range(4, 8)))

    with stage.publisher() as publisher:
        threads = [threading.Thread(target=some, args=(publisher, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        asyncio.run(others(publisher))
        for thread in threads:
            thread.join()
    found = stage.values()
    assert len(found) == 160
    for name in range(8):
        own = [value for value in found if value and value.startswith(b"%d-" % name)]
        assert own == [b"%d-%d" % (name, number) for number in range(20)]


def test_a_second_publisher_of_the_folder_is_refused_with_the_pid_of_the_first(stage):
    with stage.publisher(), pytest.raises(SpoolOwnedError, match=r"pid \d+"):
        stage.publisher()


def test_a_copied_folder_is_refused_and_adopted_only_where_it_agrees_with_its_marker(
    stage, tmp_path
):
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
    copy = tmp_path / "copy"
    shutil.copytree(stage.folder, copy)
    with pytest.raises(SpoolMovedError, match="was copied"):
        stage.publisher(copy)
    with stage.publisher(copy, adopt=True) as publisher:
        publisher.publish(stage.topic, b"b")
    with pytest.raises(SpoolDisagreesError, match="old copy"):
        stage.publisher()
    assert stage.values() == [b"a", b"b"]

"""``hapax.publish.Publisher`` on a real broker: killed, copied, restored, refused, left alone."""

import asyncio
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ResourceType
from msgspec.structs import replace

from hapax import publish
from hapax.core import errors
from hapax.core.records import Message
from hapax.kafka.produce.micro_batch import MarkedTransaction
from hapax.publish import stored
from hapax.publish.drainer import Drainer
from hapax.publish.stored import Acceptance
from hapax.spool.folder import Folder
from hapax.spool.spool import SpoolStore
from tests.kit import topics
from tests.kit.managed_process import child
from tests.kit.proof import rounds
from tests.kit.sink_parts import sink_settings
from tests.kit.topics import configure
from tests.kit.waiting import await_

# -- ``hapax.publish.Publisher`` on a real broker: killed, copied, restored, left alone ----


class Stage(NamedTuple):
    """An app, its topic of one partition, and the folder of its spool."""

    servers: str
    topic: str
    folder: Path

    def publisher(
        self, folder: Path | None = None, servers: str = "", **more: Any
    ) -> publish.Publisher:
        settings = sink_settings(servers or self.servers, self.topic)
        return publish.Publisher(folder or self.folder, settings, **more)

    def values(self) -> list[bytes | None]:
        return [record.value for record in topics.read_back(self.servers, self.topic)]

    def messages(self, *values: bytes) -> list[Message]:
        return [Message(self.topic, value, None, -1, 0, []) for value in values]

    def group(self, publisher: publish.Publisher) -> str:
        return f"{self.topic}--spool-{publisher.spool_id}"


@pytest.fixture
def stage(sandbox, tmp_path):
    stage = Stage(sandbox.bootstrap_servers, f"spool-{uuid.uuid4().hex[:8]}", tmp_path / "spool")
    sandbox.create_topic(stage.topic)
    return stage


def test_records_reach_kafka_once_in_order_each_with_its_receipt(stage):
    values = [b"%d" % number for number in range(200)]
    told: list[publish.Receipt] = []
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
    publisher = publish.Publisher(stage.folder, away)
    publisher.publish_many(stage.messages(b"a", b"b"), position=b"2")
    assert publisher.publish_many([]) == publisher.publish_many([], position=b"3") == []
    assert publisher.waiting == 2
    publisher.close(timeout_s=0)
    with stage.publisher() as publisher:
        assert publisher.position == b"3"
        publisher.publish_many(stage.messages(b"c"))
    assert stage.values() == [b"a", b"b", b"c"]


def test_threads_and_coroutines_share_a_publisher(stage):
    def some(publisher: publish.Publisher, name: int) -> None:
        for number in range(20):
            publisher.publish(stage.topic, b"%d-%d" % (name, number))

    async def others(publisher: publish.Publisher) -> None:
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


def test_a_copied_folder_is_refused_and_adopted_only_where_it_agrees_with_its_marker(
    stage, tmp_path
):
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
    copy = tmp_path / "copy"
    shutil.copytree(stage.folder, copy)
    with pytest.raises(publish.SpoolMovedError, match="was copied"):
        stage.publisher(copy)
    with stage.publisher(copy, adopt=True) as publisher:
        publisher.publish(stage.topic, b"b")
    with pytest.raises(publish.SpoolDisagreesError, match="old copy"):
        stage.publisher()
    assert stage.values() == [b"a", b"b"]


# -- ``hapax.publish.Publisher`` when things go wrong, on a real broker --------------------

ROOT = Path(__file__).parents[2]


class Killed(BaseException):
    """A process ends here."""


def killed_in_a_loop(stage: Stage, form: str, kills: int) -> tuple[list[int], list[int]]:
    """Let the process publish and kill it again and again; return what it said, what is there."""
    chance, said, until = random.Random(1), [0], 10**9
    for kill in range(kills + 1):
        if kill == kills:
            until = said[-1] + 30
        words = [form, stage.servers, stage.topic, str(stage.folder), str(until)]
        command = [sys.executable, "-m", "tests.kit.spool_process", *words]
        with child(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            lines = chance.randrange(5, 60)
            for line in process.stdout:
                said.append(int(line))
                lines -= 1
                if kill < kills and not lines:
                    process.kill()
            if kill == kills:
                assert process.wait(60) == 0
    return said, [int(value or b"0") for value in stage.values()]


@pytest.mark.rounds
def test_a_process_killed_in_a_loop_loses_no_record_and_doubles_none(stage):
    said, found = killed_in_a_loop(stage, "spool", rounds(3, 40))
    assert found == list(range(1, said[-1] + 1))


@pytest.mark.rounds
def test_control_a_plain_producer_with_a_buffer_loses_or_doubles(stage):
    said, found = killed_in_a_loop(stage, "plain", rounds(3, 40))
    assert found != list(range(1, said[-1] + 1))


@pytest.mark.parametrize("answered", [True, False])
def test_a_process_that_dies_around_its_commit_doubles_nothing(stage, monkeypatch, *, answered):
    struck = []
    commit = MarkedTransaction.commit

    def dying(self: MarkedTransaction, number: int, *more: Any) -> None:
        if number > 1:
            struck.append(number)
            if answered:
                commit(self, number, *more)
            raise Killed
        commit(self, number, *more)

    publisher = stage.publisher()
    with monkeypatch.context() as patch:
        patch.setattr(MarkedTransaction, "commit", dying)
        patch.setattr("threading.excepthook", lambda _args: None)
        publisher.publish_many(stage.messages(*(b"%d" % n for n in range(9))))
        await_(lambda: struck)
        publisher._drainer._thread.join()
        publisher.close(timeout_s=0)
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"9")
        assert publisher.flush(30)
    assert struck == [10]
    assert stage.values() == [b"%d" % n for n in range(10)]


def test_of_two_copies_that_both_publish_one_stops_and_nothing_is_doubled(stage, tmp_path):
    copy = tmp_path / "copy"
    with stage.publisher() as first:
        first.publish(stage.topic, b"a")
        assert first.flush(30)
        shutil.copytree(stage.folder, copy)
        with stage.publisher(copy, adopt=True) as second:
            second.publish(stage.topic, b"b")
            assert second.flush(30)
            first.publish(stage.topic, b"c")
            with pytest.raises((publish.SpoolDisagreesError, errors.DuplicateInstanceError)):
                first.flush(30)
            second.publish(stage.topic, b"d")
    assert stage.values() == [b"a", b"b", b"d"]


def test_a_marker_that_is_gone_is_no_new_spool(stage):
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
        group = stage.group(publisher)
    topics.delete_group(stage.servers, group)
    with pytest.raises(publish.SpoolDisagreesError, match="is gone"):
        stage.publisher()
    with pytest.raises(publish.SpoolDisagreesError, match="has records"):
        stage.publisher(resume_at=9)
    with stage.publisher(resume_at=2) as publisher:
        publisher.publish(stage.topic, b"b")
    assert stage.values() == [b"a", b"b"]


def test_an_idle_publisher_keeps_its_marker_alive(stage, monkeypatch):
    numbers: list[int] = []
    commit = MarkedTransaction.commit

    def noted(self: MarkedTransaction, number: int, *more: Any) -> None:
        commit(self, number, *more)
        numbers.append(number)

    monkeypatch.setattr(MarkedTransaction, "commit", noted)
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
        assert publisher.flush(30)
    numbers.clear()
    with stage.publisher():
        await_(lambda: numbers)  # by a start alone
    monkeypatch.setattr("hapax.publish.drainer.KEEP_ALIVE_S", 0.05)
    with stage.publisher():
        await_(lambda: len(numbers) > 3)
    assert set(numbers) == {2}
    assert stage.values() == [b"a"]


def test_a_folder_restored_from_before_is_refused_also_when_it_has_gone_on(
    stage, tmp_path, monkeypatch
):
    backup = tmp_path / "backup"
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
        assert publisher.flush(30)
    shutil.copytree(stage.folder, backup)
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"b")
    shutil.copytree(backup, stage.folder, dirs_exist_ok=True)
    for gone in {one.name for one in stage.folder.iterdir()} - {
        one.name for one in backup.iterdir()
    }:
        (stage.folder / gone).unlink()
    monkeypatch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
    away = stage.publisher(servers="127.0.0.1:1")
    for value in (b"x", b"y", b"z"):
        away.publish(stage.topic, value)
    away.close(timeout_s=0)
    monkeypatch.undo()
    with pytest.raises(publish.SpoolDisagreesError, match="another copy"):
        stage.publisher()
    assert stage.values() == [b"a", b"b"]


def test_a_spool_of_another_cluster_is_refused(stage):
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"a")
    spool = SpoolStore(Folder(stage.folder), stage.topic, disk_max_bytes=1 << 30)
    assert spool.meta.cluster is not None
    spool.settle("another", stage.topic)
    spool.close()
    with pytest.raises(errors.OtherClusterError, match="cluster another"):
        stage.publisher()


def test_what_brokers_would_refuse_is_refused_to_the_caller(stage):
    admin = AdminClient({"bootstrap.servers": stage.servers})
    configure(admin, ResourceType.TOPIC, [stage.topic], {"max.message.bytes": "2000"})
    with stage.publisher() as publisher:
        for size in (3000, 2000 - 61 - 67):  # the second one with its id
            with pytest.raises(publish.RecordRefusedError, match="takes 2,000"):
                publisher.publish(stage.topic, bytes(size))
        elsewhere = Message(stage.topic, b"a", None, 99, 0, [])
        with pytest.raises(
            publish.RecordRefusedError, match=r"partition 99 of topic .*, which has 1$"
        ):
            publisher.publish_many([*stage.messages(b"a"), elsewhere])
        with pytest.raises(publish.RecordRefusedError, match="does not exist"):
            publisher.publish("no-such-topic", b"a")
        publisher.publish(stage.topic, bytes(1500))
    assert stage.values() == [bytes(1500)]


def test_a_timestamp_or_a_lack_of_a_key_that_the_topic_refuses_is_refused_to_the_caller(
    stage, monkeypatch
):
    admin = AdminClient({"bootstrap.servers": stage.servers})
    limits = {"message.timestamp.before.max.ms": "3600000", "cleanup.policy": "compact"}
    configure(admin, ResourceType.TOPIC, [stage.topic], limits)
    with stage.publisher() as publisher:
        with pytest.raises(publish.RecordRefusedError, match="no key, and topic"):
            publisher.publish(stage.topic, b"a")
        with pytest.raises(publish.RecordRefusedError, match=r"before\.max\.ms=3600000"):
            publisher.publish(stage.topic, b"b", key=b"k", timestamp_ms=1)
        publisher.publish(stage.topic, b"c", key=b"k")
        monkeypatch.setattr(stored, "ASK_AGAIN_S", 0.0)  # settings of a topic change
        configure(admin, ResourceType.TOPIC, [stage.topic], {"cleanup.policy": "delete"})
        await_(lambda: accepted(publisher, stage.topic), 10)
    assert stage.values() == [b"c", b"d"]


def accepted(publisher: publish.Publisher, topic: str) -> bool:
    try:
        publisher.publish(topic, b"d")
    except publish.RecordRefusedError:
        return False
    return True


def test_a_record_refused_late_stops_it_with_its_number_and_is_published_once_it_fits(
    stage, monkeypatch
):
    admin = AdminClient({"bootstrap.servers": stage.servers})
    configure(admin, ResourceType.TOPIC, [stage.topic], {"max.message.bytes": "2000"})
    monkeypatch.setattr(Acceptance, "check", lambda *_, **__: None)
    values = [b"a", bytes(3000), b"b"]
    publisher = stage.publisher()
    publisher.publish_many(stage.messages(*values))
    with pytest.raises(errors.StopError, match="record 2 of the spool was refused"):
        publisher.flush(60)
    assert publisher.state == "stopped"
    with pytest.raises(errors.StopError, match="record 2"):
        publisher.publish(stage.topic, b"c")
    publisher.close()
    configure(admin, ResourceType.TOPIC, [stage.topic], {"max.message.bytes": "5000"})
    with stage.publisher() as publisher:
        publisher.publish(stage.topic, b"c")
    assert stage.values() == [*values, b"c"]


LATE = {"value": bytes(3000), "partition": 99, "topic": "no-such-topic", "timestamp_ms": 1}


@pytest.mark.parametrize(
    ("kind", "first"), [("value", True), ("topic", True), *((kind, False) for kind in LATE)]
)
def test_a_record_refused_late_stops_it_with_its_number_and_can_be_left_out(
    stage, monkeypatch, caplog, kind, *, first
):
    admin = AdminClient({"bootstrap.servers": stage.servers})
    limits = {"max.message.bytes": "2000", "message.timestamp.before.max.ms": "3600000"}
    configure(admin, ResourceType.TOPIC, [stage.topic], limits)
    fit = Message(stage.topic, b"a", None, -1, None, [])
    bad = replace(fit, **{kind: LATE[kind]})
    number = 1 if first else 2
    with monkeypatch.context() as patch:
        patch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
        away = stage.publisher(servers="127.0.0.1:1")
        away.publish_many([bad] if first else [fit, bad, replace(fit, value=b"b")])
        away.close(timeout_s=0)
    for _start in range(2):
        words = rf"record {number} of .* --skip {number}, .*skip_at="
        with pytest.raises(errors.StopError, match=words), stage.publisher() as publisher:
            publisher.flush(30)
    with pytest.raises(errors.ConfigurationError, match="skip_at=9: the spool has records 1 to"):
        stage.publisher(skip_at=9)
    for skipped in (1, 0):  # a setting that stays after it has done its work
        with stage.publisher(skip_at=[number]) as publisher:
            publisher.publish(stage.topic, b"z")
            assert publisher.flush(30)
            assert publisher.skipped == skipped
            told = {each.name: each.samples[0].value for each in publisher.metrics.collect()}
            assert told["hapax_spool_records_skipped"] == skipped
    assert stage.values() == ([b"z", b"z"] if first else [b"a", b"b", b"z", b"z"])
    assert f"record {number} of the spool is left out" in caplog.text
    assert f"record {number} of the spool was passed before" in caplog.text


def test_what_callbacks_do_never_stops_publishing(stage):
    told, touched = list[int](), list[bool]()
    free = threading.Event()

    def raises(receipt: publish.Receipt) -> None:
        told.append(receipt.sequence)
        raise SystemExit

    def touches(_done: Any) -> None:
        touched.extend(each.future.done() for each in receipts)
        publisher.publish(stage.topic, b"of a callback")

    publisher = stage.publisher(linger_s=0.5)  # what asks is there before there is an answer
    publisher.publish(stage.topic, b"raises", callback=raises)
    cancelled = publisher.publish(stage.topic, b"cancelled")
    loop = asyncio.new_event_loop()
    asyncio.wrap_future(cancelled.future, loop=loop)
    loop.close()
    cancelled.future.cancel()
    receipts = publisher.publish_many(stage.messages(b"a", b"b", b"c"))
    for receipt in receipts:
        receipt.future.add_done_callback(touches)
    assert cancelled.future.result(30).offset >= 0
    await_(lambda: len(touched) == 9 and publisher.waiting == 0)
    assert (told, touched[-3:]) == ([1], [True] * 3)
    publisher.publish(stage.topic, b"blocks", callback=lambda _: free.wait(60))
    publisher.publish(stage.topic, b"last")
    assert publisher.flush(30)
    publisher.close(timeout_s=1)
    stage.publisher().close()  # the folder is free although a callback blocks
    free.set()
    wanted = [b"raises", b"cancelled", b"a", b"b", b"c", *[b"of a callback"] * 3]
    assert stage.values() == [*wanted, b"blocks", b"last"]


def test_a_process_that_ends_as_it_makes_the_marker_leaves_a_spool_that_continues(
    stage, monkeypatch
):
    begin = Drainer._begin

    def ending(self: Drainer, *more: Any) -> None:
        begin(self, *more)
        self._ending = True

    with monkeypatch.context() as patch:
        patch.setattr(Drainer, "_begin", ending)
        publisher = stage.publisher()
        publisher.publish(stage.topic, b"a")
        publisher._drainer._thread.join(30)
        publisher.close(timeout_s=0)
    assert stage.values() == []
    for value in (b"b", b"c"):
        with stage.publisher() as publisher:
            publisher.publish(stage.topic, value)
            assert publisher.flush(30)
    assert stage.values() == [b"a", b"b", b"c"]


LINK_BYTES_PER_S = 400_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_backlog_on_a_slow_link_drains_at_its_rate(stage, proxied_broker, monkeypatch, size):
    monkeypatch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
    records = 12_000_000 // size
    away = stage.publisher(servers="127.0.0.1:1")
    away.publish_many(stage.messages(*map(random.Random(1).randbytes, [size] * records)))
    away.close(timeout_s=0)
    monkeypatch.undo()
    proxied_broker.proxy.bytes_per_s = LINK_BYTES_PER_S
    states, reasons = set(), set()
    with stage.publisher(servers=proxied_broker.proxied) as publisher:
        await_(lambda: publisher.waiting < records)
        began_s, left = time.monotonic(), publisher.waiting
        while not publisher.flush(0.2):
            states.add(publisher.state)
            reasons.add(publisher.reason)
            assert time.monotonic() - began_s < 120
    taken_s = time.monotonic() - began_s
    found = topics.read_back(stage.servers, stage.topic)
    assert len(found) == records
    content = sum(len(each.value or b"") + len(str(each.headers)) for each in found[-left:])
    assert content / taken_s > 0.9 * LINK_BYTES_PER_S, reasons
    assert states == {"publishing"}, reasons
    assert any("records took" in reason for reason in reasons)


def test_a_full_spool_refuses_and_takes_records_again_once_it_is_drained(stage, monkeypatch):
    monkeypatch.setattr("hapax.publish.publisher.MARKER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(Acceptance, "check", lambda *_, **__: None)
    bounds: dict[str, Any] = {"disk_max_bytes": 300_000, "on_full": "error"}
    publisher = stage.publisher(servers="127.0.0.1:1", **bounds)
    accepted = 0
    while publisher.state != "full":
        try:
            publisher.publish(stage.topic, b"%d" % accepted + bytes(5000))
            accepted += 1
        except publish.SpoolFullError as error:
            assert "300,000" in str(error)  # noqa: PT017 - of however many calls, the last
    assert accepted > 30
    assert publisher.state == "full"
    publisher.close(timeout_s=0)
    with stage.publisher(disk_max_bytes=300_000) as publisher:
        for number in range(accepted, 2 * accepted):
            publisher.publish(stage.topic, b"%d" % number + bytes(5000))
    assert stage.values() == [b"%d" % number + bytes(5000) for number in range(2 * accepted)]
